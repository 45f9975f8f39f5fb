"""CuPy's arrays of every element type: made and copied by their bits where CuPy itself cannot.

CuPy has views of arrays of bfloat16 and the float8 types, and depending on its version refuses to make, to copy or
to fetch them. Unsigned integers of the same size serve as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np

from .devices import is_cupy
from .dtypes import DType

_REGISTERED = 2  # dtype.isbuiltin of a type that is not NumPy's own


def asarray(cupy: Any, array: Any) -> Any:
    """Return a NumPy array copied to the GPU."""
    return _by_bits(cupy.asarray, array)


def asnumpy(array: Any) -> Any:
    """Return an array of CuPy copied to the host, once what computes it is done; any other value as it is."""
    return _by_bits(sys.modules["cupy"].asnumpy, array) if is_cupy(array) else array


def copy(array: Any) -> Any:
    """Return a copy of an array of CuPy, with memory of its own."""
    return _by_bits(methodcaller("copy"), array)


def copyto(cupy: Any, target: Any, array: Any) -> None:
    """Copy an array of CuPy into another one of its shape and dtype."""
    cupy.copyto(_bits(target), _bits(array))


def empty(cupy: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """Return an array of CuPy whose elements may be anything."""
    return _as(dtype, cupy.empty(shape, _bits_dtype(dtype)))


def _by_bits(function: Callable[[Any], Any], array: Any) -> Any:
    return _as(array.dtype, function(_bits(array)))


def _bits(array: Any) -> Any:
    return _as(_bits_dtype(array.dtype), array)


def _bits_dtype(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == _REGISTERED else dtype


def _as(dtype: DType, array: Any) -> Any:
    return array if array.dtype == dtype else array.view(dtype)
