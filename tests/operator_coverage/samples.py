"""Sample calls of operators, from torch's database or another list of OpInfo objects."""

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
from exporters.errors import ExportError
from pyops.errors import MissingDependencyError

# Without a given dtype, the first of these that an operator supports is used.
_ORDER = [
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"),
]
_SEED = 1234  # torch's own for samples


class Database:
    """Operators with their sample calls.

    Parameters
    ----------
    where : str
        ``"module:name"`` of a list of OpInfo objects (torch's class for samples); ``""`` for torch's own database.

    Raises
    ------
    ExportError
        `where` is not such a list.
    MissingDependencyError
        torch's own database needs a package that is not installed.
    """

    def __init__(self, where: str = "") -> None:
        self._infos = {info.full_name: info for info in (_load(where) if where else op_database())}

    def names(self, dtype: str = "") -> list[str]:
        """Return the operators that support `dtype`; by default, all with samples of any dtype."""
        return [name for name, info in self._infos.items() if _dtype(info, dtype) is not None]

    def sample(
        self, name: str, dtype: str = "", index: int = 0, fits: Callable[[SingleCall], bool] = lambda sample: True
    ) -> SingleCall | None:
        """Return a sample of an operator, by its index among those that fit, or None after the last.

        Samples with an empty tensor are skipped. The samples are the same in every process.
        """
        info = self._infos[name]
        chosen = _dtype(info, dtype)
        return next(itertools.islice(filter(fits, _samples(info, chosen)), index, None), None)


def op_database() -> Sequence[Any]:
    """Return torch's own database, one OpInfo per operator.

    Raises
    ------
    MissingDependencyError
        expecttest is not installed, which torch's testing code imports.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f'torch\'s database of sample calls needs {error.name}; pip install "onnx-pyops[coverage]"'
        ) from error
    found: Sequence[Any] = op_db
    return found


def sample_inputs(info: Any, dtype: torch.dtype | None) -> Iterator[Any]:
    """Yield an operator's samples of torch's class, as `OpInfo.sample_inputs` does.

    That method looks on the stack for the test that called it, which takes half a second where torch is imported.
    """
    found = iter(info.sample_inputs_func(info, "cpu", dtype, requires_grad=False))
    while True:
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(_SEED)
        try:
            yield next(found)
        except StopIteration:
            return


def _load(where: str) -> Sequence[Any]:
    module, _, name = where.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Sequence[Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ExportError(
            f"{where!r} is not a list of samples: {error}; write module:name of a list of OpInfo objects"
        ) from error
    finally:
        sys.path.pop(0)
    return found


def _dtype(info: Any, dtype: str) -> torch.dtype | None:
    known = {str(item).removeprefix("torch."): item for item in info.supported_dtypes("cpu")}
    return next((known[name] for name in ([dtype] if dtype else _ORDER) if name in known), None)


def _samples(info: Any, dtype: torch.dtype | None) -> Iterator[SingleCall]:
    for item in sample_inputs(info, dtype):
        sample = SingleCall(info.op, (item.input, *item.args), item.kwargs)
        if all(tensor.numel() for tensor in sample.tensors):
            yield sample
