"""The calls that are tried: torch's database of samples, or another list of OpInfo objects."""

from __future__ import annotations

import importlib
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporters._torch.single_call import SingleCall
from exporters._torch_private.sample_calls import op_database
from exporters.errors import ExportError

# An operator without float32 is tried with the first of these that it has.
_ORDER = [
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"),
]


class Database:
    """Operators with sample calls.

    Parameters
    ----------
    where : str
        ``"module:name"`` of a list of OpInfo objects (torch's way to write samples); empty for torch's own.

    Raises
    ------
    ExportError
        There is no such list.
    MissingDependencyError
        Torch's own needs a package that is not installed.
    """

    def __init__(self, where: str = "") -> None:
        self._infos = {info.full_name: info for info in (_load(where) if where else op_database())}

    def names(self, dtype: str = "") -> list[str]:
        """The operators that have a dtype, or any."""
        return [name for name, info in self._infos.items() if _dtype(info, dtype) is not None]

    def sample(
        self, name: str, dtype: str = "", index: int = 0, fits: Callable[[SingleCall], bool] = lambda sample: True
    ) -> SingleCall | None:
        """A sample of an operator, counted from 0 among those that fit; None after the last.

        Those with an empty tensor are left out. It is the same one in every process.
        """
        info = self._infos[name]
        chosen = _dtype(info, dtype)
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        return next(itertools.islice(filter(fits, _samples(info, chosen)), index, None), None)


def _load(where: str) -> Sequence[Any]:
    module, _, name = where.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Sequence[Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ExportError(
            f"{where!r} is no list of samples: {error}; write module:name of a list of OpInfo objects"
        ) from error
    finally:
        sys.path.pop(0)
    return found


def _dtype(info: Any, dtype: str) -> torch.dtype | None:
    known = {str(item).removeprefix("torch."): item for item in info.supported_dtypes("cpu")}
    return next((known[name] for name in ([dtype] if dtype else _ORDER) if name in known), None)


def _samples(info: Any, dtype: torch.dtype | None) -> Iterator[SingleCall]:
    for item in info.sample_inputs("cpu", dtype, requires_grad=False):
        sample = SingleCall(info.op, (item.input, *item.args), item.kwargs)
        if all(tensor.numel() for tensor in sample.tensors):
            yield sample
