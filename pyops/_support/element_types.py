"""ONNX element types and their NumPy dtypes.

All of pyops represents an element type by its NumPy dtype; strings are ``dtype(object)`` arrays of ``str``. Only the
table in this module knows the numeric codes of ONNX and ONNX Runtime. Tables that outlive a call have the names of
dtypes for keys: reading a pickle that another release of ml_dtypes wrote changes the hashes of its dtypes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

DType = np.dtype[Any]


@dataclass(frozen=True)
class ElementType:
    """An element type of ONNX tensors.

    Attributes
    ----------
    name : str
        ONNX's name, as in ``tensor(float16)``.
    dtype : numpy.dtype
        The dtype of the arrays that kernels receive.
    onnx : int
        ``onnx.TensorProto.DataType``.
    ort : int or None
        ``ONNXTensorElementDataType`` of ONNX Runtime's C API; None if custom operators of some supported
        ONNX Runtime do not support the type (complex, and the newest ones).
    per_byte : int
        How many elements ONNX Runtime packs into a byte, if more than one; NumPy stores one in each.
    """

    name: str
    dtype: DType
    onnx: int
    ort: int | None
    per_byte: int = 1

    def packed_size(self, count: int) -> int:
        """Return the number of bytes of `count` packed elements."""
        return -(-count // self.per_byte)

    @property
    def type_str(self) -> str:
        """Return ONNX's spelling of a tensor of this type: ``"tensor(float16)"``."""
        return f"tensor({self.name})"


def _row(name: str, scalar: type[Any], onnx: int, ort: int | None, per_byte: int = 1) -> ElementType:
    return ElementType(name, np.dtype(scalar), onnx, ort, per_byte)


ELEMENT_TYPES: tuple[ElementType, ...] = (
    _row("float16", np.float16, 10, 10),
    _row("float", np.float32, 1, 1),
    _row("double", np.float64, 11, 11),
    _row("int8", np.int8, 3, 3),
    _row("int16", np.int16, 5, 5),
    _row("int32", np.int32, 6, 6),
    _row("int64", np.int64, 7, 7),
    _row("uint8", np.uint8, 2, 2),
    _row("uint16", np.uint16, 4, 4),
    _row("uint32", np.uint32, 12, 12),
    _row("uint64", np.uint64, 13, 13),
    _row("bool", np.bool_, 9, 9),
    _row("string", np.object_, 8, 8),
    _row("complex64", np.complex64, 14, None),
    _row("complex128", np.complex128, 15, None),
    _row("bfloat16", ml_dtypes.bfloat16, 16, 16),
    _row("float8e4m3fn", ml_dtypes.float8_e4m3fn, 17, 17),
    _row("float8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 18, 18),
    _row("float8e5m2", ml_dtypes.float8_e5m2, 19, 19),
    _row("float8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 20, 20),
    _row("uint4", ml_dtypes.uint4, 21, 21, per_byte=2),
    _row("int4", ml_dtypes.int4, 22, 22, per_byte=2),
    _row("float4e2m1", ml_dtypes.float4_e2m1fn, 23, 23, per_byte=2),
    _row("float8e8m0", ml_dtypes.float8_e8m0fnu, 24, None),
    _row("uint2", ml_dtypes.uint2, 25, None, per_byte=4),
    _row("int2", ml_dtypes.int2, 26, None, per_byte=4),
)

STRING: DType = np.dtype(np.object_)

_BY_NAME = {row.dtype.name: row for row in ELEMENT_TYPES}

from_onnx = {row.onnx: row for row in ELEMENT_TYPES}.get
"""Return the element type with this ``onnx.TensorProto.DataType``, or None."""

from_type_str = {row.type_str: row for row in ELEMENT_TYPES}.get
"""Return the element type spelled like ``"tensor(float16)"``, or None."""

from_ort = {row.ort: row for row in ELEMENT_TYPES if row.ort is not None}.get
"""Return the element type with this ``ONNXTensorElementDataType``, or None."""


def element_type(dtype: Any) -> ElementType | None:
    """Return the element type of a NumPy dtype, or None if ONNX has none.

    NumPy's string dtypes and ``numpy.object_`` all map to ONNX's string.
    """
    native = native_dtype(dtype)
    row = _BY_NAME.get(native.name)
    return row if row is not None and row.dtype == native else None


def ort_code(dtype: DType | None) -> int:
    """Return the ``ONNXTensorElementDataType`` of a dtype; 0, which is undefined, if it has none, and for None."""
    row = None if dtype is None else element_type(dtype)
    return (row.ort if row else 0) or 0


def native_dtype(dtype: Any) -> DType:
    """Return the dtype in which kernels receive `dtype`: native byte order, and ``object`` for strings."""
    resolved = np.dtype(dtype)
    return STRING if resolved.kind in "UT" else resolved.newbyteorder("=")


def holds_str(array: np.ndarray[Any, Any]) -> bool:
    """Return whether every element of an object array is a ``str``; True for an array of another dtype."""
    return array.dtype != STRING or all(isinstance(item, str) for item in array.flat)


def is_masked(value: Any) -> bool:
    """Return whether a value is a masked array, without the import of its module, which NumPy leaves to its users."""
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def expand(scalar: type[np.generic]) -> tuple[DType, ...]:
    """Return the dtypes that a NumPy scalar class contains: three for ``numpy.floating``.

    A concrete class has one, and a class that ONNX does not support (``numpy.longdouble``) none.
    """
    if issubclass(scalar, (np.str_, np.object_)):
        return (STRING,)
    concrete = tuple(row.dtype for row in ELEMENT_TYPES if issubclass(row.dtype.type, scalar))
    if concrete:
        return concrete
    try:
        row = element_type(scalar)
    except TypeError:
        return ()
    return (row.dtype,) if row else ()


def dtype_name(dtype: Any) -> str:
    """Return a dtype as messages spell it: ``float32``, ``string``."""
    resolved = np.dtype(dtype)
    return "string" if resolved == STRING else str(resolved)


def format_scalar(dtype: Any) -> str:
    """Return a dtype's scalar type as code spells it: ``np.float32``, ``ml_dtypes.bfloat16``."""
    scalar = np.dtype(dtype).type
    if scalar is np.object_:
        return "np.str_"
    return f"{'np' if scalar.__module__ == 'numpy' else scalar.__module__}.{scalar.__name__}"


def is_viewable(dtype: DType) -> bool:
    """Return whether a NumPy array can view ONNX Runtime's memory of this type: not strings, not packed types."""
    row = element_type(dtype)
    return row is not None and row.dtype is not STRING and row.per_byte == 1


def format_shape(shape: Iterable[Any]) -> str:
    """Return a shape as messages spell it: ``[2, n, ?]``; None stands for an unknown size."""
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def describe(value: Any) -> str:
    """Return a value as messages describe it: ``float32[2, 3]`` for an array, the type of anything else."""
    is_cupy = type(value).__module__ == "cupy" and isinstance(getattr(value, "dtype", None), np.dtype)
    if is_cupy or isinstance(value, (np.ndarray, np.generic)):
        return f"{dtype_name(value.dtype)}{format_shape(value.shape)}{' on the GPU' if is_cupy else ''}"
    return "None" if value is None else f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
