"""Element types that ONNX Runtime's Python bindings do not convert by themselves.

``onnxruntime.InferenceSession.run`` does not accept some element types (bfloat16, float8, 2-bit and 4-bit types), but
its ``OrtValue`` methods do. One call passes either only arrays or only OrtValues.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from ..._support.element_types import ELEMENT_TYPES, element_type, from_onnx, is_masked
from ...errors import InputError
from .native.call_tensors import pack, unpack

# ONNX Runtime's names of the element types whose dtypes come from ml_dtypes.
FOREIGN_TYPES = {row.type_str for row in ELEMENT_TYPES if row.dtype.type.__module__ != "numpy"}


def check_arrays(feed: Any) -> None:
    """Check that no array of a feed is in another byte order than this machine's, or masked; ONNX Runtime misreads it.

    Raises
    ------
    InputError
        An array is in another byte order, or masked.
    """
    for name, value in feed.items() if isinstance(feed, Mapping) else ():
        for array in value if isinstance(value, list) else (value,):  # a list may be a sequence of tensors
            if is_masked(array):
                raise InputError(f"input {name!r} is a masked array, but ONNX has no masks; pass {name}.filled(...)")
            if isinstance(array, np.ndarray) and not array.dtype.isnative:
                raise InputError(
                    f"input {name!r} is an array of {array.dtype.str}, in another byte order than this machine's; "
                    f'{name}.astype({name}.dtype.newbyteorder("=")) changes it'
                )


def from_array(array: Any) -> Any:
    """Return an ``OrtValue`` with the elements of `array`; an ``OrtValue`` is returned unchanged.

    The value may share the array's memory; it then keeps the array alive.
    """
    if isinstance(array, onnxruntime.OrtValue):
        return array
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    row = element_type(array.dtype)
    if row is None or row.type_str not in FOREIGN_TYPES:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if row.per_byte == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, row.onnx)
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, row.onnx)
    data = pack(array, row)
    ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def to_array(value: Any) -> Any:
    """Return a copy of an ``OrtValue`` in CPU memory as a NumPy array."""
    if not value.is_tensor() or value.data_type() not in FOREIGN_TYPES:
        return value.numpy()
    row = from_onnx(value.element_type())
    assert row is not None
    shape = tuple(value.shape())
    if row.per_byte > 1:
        data = ctypes.string_at(value.data_ptr(), row.packed_size(math.prod(shape)))
        return unpack(data, shape, row).copy()
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(data), row.dtype).reshape(shape)
