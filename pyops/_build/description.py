"""The description that a library contains: a text in the file, which can be read without loading the library."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InputError
from .report import BuildReport, BuiltOp
from .symbols import elf_symbols

_MARK = b"pyops library: "
T = TypeVar("T")


def description(target: str, cpu: str, ops: Sequence[BuiltOp], oldest_onnxruntime: str) -> str:
    """Return the text to put into a library."""
    told = {"target": target, "cpu": cpu, "ops": list(map(dataclasses.asdict, ops)), "onnxruntime": oldest_onnxruntime}
    return _MARK.decode() + json.dumps(told)


def read_library(path: Path, warnings: Sequence[str] = (), refused: Sequence[str] = ()) -> BuildReport:
    """Return the report on a library that `pyops.build` made.

    Parameters
    ----------
    warnings, refused : sequence of str
        What only the build itself knows.

    Raises
    ------
    InputError
        The file is not such a library, or is damaged.
    """
    data = path.read_bytes()
    begin = data.find(_MARK + b"{")
    if begin < 0:
        raise InputError(f"{path} is not a library that pyops build made")
    try:
        told = json.loads(data[begin + len(_MARK) : data.index(b"\0", begin)])
        ops = tuple(map(_built_op, _checked(list, told["ops"])))
        target, cpu, oldest_onnxruntime = (_text(told[name]) for name in ("target", "cpu", "onnxruntime"))
        symbols = list(elf_symbols(path)) if data.startswith(b"\x7fELF") else []
        versions = {version for _, version, _ in symbols if version.startswith("GLIBC_2")}
        glibc = max((tuple(map(int, version[6:].split("."))) for version in versions), default=())
    except (struct.error, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} is a library that pyops build made, but it is damaged; build it again") from error
    return BuildReport(
        str(path),
        target,
        cpu,
        ops,
        len(data),
        tuple(sorted(name for name, _, defined in symbols if not defined and not name.startswith("_"))),
        ".".join(map(str, glibc)),
        oldest_onnxruntime,
        tuple(warnings),
        tuple(refused),
    )


def _built_op(told: Any) -> BuiltOp:
    types, ranks = (tuple(map(_text, _checked(list, told[name]))) for name in ("types", "ranks"))
    return BuiltOp(_text(told["name"]), _checked(int, told["version"]), types, ranks, _checked(int, told["functions"]))


def _text(value: Any) -> str:
    if not _checked(str, value).isprintable():
        raise ValueError(f"{value!r} has characters that cannot be shown")
    return str(value)


def _checked(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value
