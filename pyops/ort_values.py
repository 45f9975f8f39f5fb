"""NumPy arrays of element types that ``onnxruntime.InferenceSession.run`` does not take (bfloat16)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnxruntime

from .types import ELEMENT_TYPES, element_type, from_onnx

# ONNX Runtime's names of the types whose dtype comes from ml_dtypes.
FOREIGN_TYPES = {row.type_str for row in ELEMENT_TYPES if row.dtype.type.__module__ != "numpy"}


def from_array(array: Any) -> Any:
    """An ``OrtValue`` that holds `array`, for as long as the array lives."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    row = element_type(array.dtype)
    if row is not None and row.type_str in FOREIGN_TYPES:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, row.onnx)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def to_array(value: Any) -> Any:
    """An array with a copy of what an ``OrtValue`` in CPU memory holds."""
    if not value.is_tensor() or value.data_type() not in FOREIGN_TYPES:
        return value.numpy()
    row = from_onnx(value.element_type())
    assert row is not None
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(data), row.dtype).reshape(value.shape())
