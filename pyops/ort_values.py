"""NumPy arrays of element types that ``onnxruntime.InferenceSession.run`` does not take (bfloat16).

They travel as ``OrtValue``, and in one call either all tensors do or none.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import onnx
import onnxruntime

from .engines import native
from .hosting import Host
from .op import Op
from .signature import Input, Output, Signature, TypeParameter
from .types import ELEMENT_TYPES, STRING, element_type, from_onnx

# ONNX Runtime's names of the types whose dtype comes from ml_dtypes.
FOREIGN_TYPES = {row.type_str for row in ELEMENT_TYPES if row.dtype.type.__module__ != "numpy"}


def from_array(array: Any) -> Any:
    """An ``OrtValue`` that holds `array`, for as long as the array lives; itself, if it is one already."""
    if isinstance(array, onnxruntime.OrtValue):
        return array
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    row = element_type(array.dtype)
    if row is not None and row.type_str in FOREIGN_TYPES:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, row.onnx)
    return _from_strings(array) if array.dtype.kind in "OU" else onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _from_strings(array: Any) -> Any:
    # ONNX Runtime makes no OrtValue from strings, other than as the output of an operator.
    number = onnxruntime.OrtValue.ortvalue_from_numpy(np.array(id(array), np.int64))
    _strings[id(array)] = array.astype(STRING)
    try:
        return _string_session().run_with_ort_values(None, {"x": number})[0]
    finally:
        del _strings[id(array)]


_strings: dict[int, Any] = {}


@functools.cache
def _string_session() -> Any:
    types = [TypeParameter(row.type_str, (row.dtype,)) for row in map(element_type, (np.int64, STRING)) if row]
    signature = Signature("pyops", "Strings", 1, (Input("x", types[0]),), (Output("y", types[1]),))

    def look_up(number: Any) -> Any:
        return _strings[int(number)]

    op = Op(signature, look_up)
    model = onnx.parser.parse_model(_STRING_MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    with native.registered(options, [Host(op.domain, op.name, op)]):
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


_STRING_MODEL = """
<ir_version: 8, opset_import: ["" : 17, "pyops" : 1]>
strings (int64 x) => (string[] y) { y = pyops.Strings(x) }
"""


def to_array(value: Any) -> Any:
    """An array with a copy of what an ``OrtValue`` in CPU memory holds."""
    if not value.is_tensor() or value.data_type() not in FOREIGN_TYPES:
        return value.numpy()
    row = from_onnx(value.element_type())
    assert row is not None
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(data), row.dtype).reshape(value.shape())
