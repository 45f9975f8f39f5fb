"""Conversion between NumPy arrays and ``OrtValue``.

``onnxruntime.InferenceSession.run`` does not accept some element types (bfloat16, float8, 4-bit integers), but its
``OrtValue`` methods do. One call passes either only arrays or only OrtValues.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np
import onnx
import onnxruntime

from .._models.hosting import Host
from .._ops.op import Op
from .._schema.dtypes import ELEMENT_TYPES, ElementType, element_type, from_onnx, is_viewable
from .._schema.signature import Input, Output, Signature, TypeParameter
from .native import arrays
from .native import session as native

# ONNX Runtime's names of the element types whose dtypes come from ml_dtypes.
FOREIGN_TYPES = {row.type_str for row in ELEMENT_TYPES if row.dtype.type.__module__ != "numpy"}


def from_array(array: Any) -> Any:
    """Return an ``OrtValue`` with the elements of `array`; an ``OrtValue`` is returned unchanged.

    The value may share the array's memory, so the array must outlive it.
    """
    if isinstance(array, onnxruntime.OrtValue):
        return array
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    row = element_type(array.dtype)
    if row is not None and not is_viewable(row.dtype):
        return _value_from_kernel(array.astype(row.dtype), row)
    if row is not None and row.type_str in FOREIGN_TYPES:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, row.onnx)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _value_from_kernel(array: Any, row: ElementType) -> Any:
    # ONNX Runtime's Python bindings cannot create an OrtValue of strings or packed types from an array. An operator's
    # output can be one, so a one-node session produces it.
    number = onnxruntime.OrtValue.ortvalue_from_numpy(np.array(id(array), np.int64))
    _arrays[id(array)] = array
    try:
        return _session_of(row).run_with_ort_values(None, {"x": number})[0]
    finally:
        del _arrays[id(array)]


_arrays: dict[int, Any] = {}


@functools.cache
def _session_of(row: ElementType) -> Any:
    int64 = TypeParameter("tensor(int64)", (np.dtype(np.int64),))
    given = Output("y", TypeParameter(row.type_str, (row.dtype,)))
    op = Op(Signature("pyops", "Given", 1, (Input("x", int64),), (given,)), lambda number: _arrays[int(number)])
    model = onnx.parser.parse_model(
        '<ir_version: 11, opset_import: ["": 17, "pyops": 1]> '
        f"given (int64 x) => ({row.name}[] y) {{ y = pyops.Given(x) }}"
    )
    options = onnxruntime.SessionOptions()
    with native.registered(options, [Host(op.domain, op.name, op)]):
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def to_array(value: Any) -> Any:
    """Return a copy of an ``OrtValue`` in CPU memory as a NumPy array."""
    if not value.is_tensor() or value.data_type() not in FOREIGN_TYPES:
        return value.numpy()
    row = from_onnx(value.element_type())
    assert row is not None
    shape = tuple(value.shape())
    if row.packed:
        packed = ctypes.string_at(value.data_ptr(), (math.prod(shape) + 1) // 2)
        return arrays.unpack(packed, shape, row.dtype).copy()
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(data), row.dtype).reshape(shape)
