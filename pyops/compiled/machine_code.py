"""The machine code of compute callbacks, which is never freed: another thread may be about to run it."""

from __future__ import annotations

import functools
from typing import Any

import numba
from numba import types
from numba.core.ccallback import CFunc

from . import entry
from .decorators import INNER
from .disk_cache import keep
from .functions import CallableKernel, define
from .specialization import Specialization

_kept: list[CFunc] = []


class MachineCode:
    """The compute callback of one specialization.

    Attributes
    ----------
    entry, part : int
        The addresses that a record needs; `part` is 0 where the kernel is not called on parts.
    """

    def __init__(self, name: str, kernel: CallableKernel, specialization: Specialization) -> None:
        codes = {"body": entry.body_code(specialization)}
        names: dict[str, Any] = entry.CODE_NAMES | {"kernel": kernel.call}
        if specialization.cores is not None:
            codes["part_body"] = entry.part_body_code(specialization)
            names["part_body"] = numba.njit(**INNER)(define("part_body", codes["part_body"], names))
        names["body"] = numba.njit(**INNER)(define("body", codes["body"], names))
        made_from = (*kernel.made_from, *codes.values())
        self.entry = _callback("entry", entry.entry_code(specialization), 3, name, names, made_from)
        self.part = _callback("part", entry.PART, 2, name, names, made_from) if "part_body" in names else 0


@functools.cache
def dispatch() -> int:
    """The address of the KernelComputeV2 of every compiled op."""
    return _callback("dispatch", entry.DISPATCH, 2, "pyops", entry.CODE_NAMES, ())


def _callback(
    name: str, code: str, parameters: int, label: str, names: dict[str, Any], made_from: tuple[str | None, ...]
) -> int:
    """The address of the C function, of words and returning one, that some code defines."""
    signature = ((types.intp,) * parameters, types.intp)
    made = CFunc(define(name, code, names), signature, locals={}, options={"nopython": True})
    keep(made, f"{label}-{name}", code, *made_from)
    made.compile()
    _kept.append(made)
    return made.address or 0
