"""Creation and copies of CuPy arrays of every element type, including those that CuPy does not support.

CuPy can view an array as bfloat16 or a float8 type, but depending on its version cannot create, copy or fetch one.
These functions do so through unsigned integers of the same size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np

from .devices import is_cupy
from .dtypes import DType

_USER_DEFINED = 2  # dtype.isbuiltin of a type that another package (ml_dtypes) registered with NumPy


def asarray(cupy: Any, array: Any) -> Any:
    """Return a copy of a NumPy array on the GPU."""
    return _through_bits(cupy.asarray, array)


def asnumpy(array: Any) -> Any:
    """Return a copy of a CuPy array on the host, and any other value unchanged.

    Blocks until the array has been computed.
    """
    return _through_bits(sys.modules["cupy"].asnumpy, array) if is_cupy(array) else array


def copy(array: Any) -> Any:
    """Return a copy of a CuPy array in new memory."""
    return _through_bits(methodcaller("copy"), array)


def copyto(cupy: Any, target: Any, array: Any) -> None:
    """Copy a CuPy array into `target`, which has the same shape and dtype."""
    cupy.copyto(_bits(target), _bits(array))


def empty(cupy: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """Return an uninitialized CuPy array."""
    return _view_as(dtype, cupy.empty(shape, _bits_dtype(dtype)))


def _through_bits(function: Callable[[Any], Any], array: Any) -> Any:
    return _view_as(array.dtype, function(_bits(array)))


def _bits(array: Any) -> Any:
    return _view_as(_bits_dtype(array.dtype), array)


def _bits_dtype(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == _USER_DEFINED else dtype


def _view_as(dtype: DType, array: Any) -> Any:
    return array if array.dtype == dtype else array.view(dtype)
