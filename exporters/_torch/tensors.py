"""Conversion between torch tensors and arrays of NumPy or CuPy, where possible without a copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from pyops._core import cupy_with_gpu
from pyops._support.element_types import DType, dtype_name
from pyops.errors import InputError, OutputError

# These have the same name in torch and in NumPy or ml_dtypes.
_NAMES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "complex64", "complex128", "bfloat16"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}
"""The torch dtype of each NumPy dtype that torch has as well, by name."""

_NUMPY_DTYPES = {theirs: np.dtype(getattr(ml_dtypes, name, name)) for name, theirs in TORCH_DTYPES.items()}

# Tensor.numpy and some versions of CuPy do not support these dtypes, so they are passed as integers of their size.
_AS_BITS = {1: torch.uint8, 2: torch.int16}
_BIT_VIEWED = {torch.bool, torch.bfloat16} | {dtype for dtype in _NUMPY_DTYPES if "float8" in str(dtype)}


def numpy_dtype(dtype: torch.dtype) -> DType:
    """Return the NumPy dtype of a torch dtype.

    Raises
    ------
    InputError
        ONNX has no such element type (quantized types, complex32).
    """
    if dtype not in _NUMPY_DTYPES:
        known = ", ".join(str(known).removeprefix("torch.") for known in _NUMPY_DTYPES)
        raise InputError(f"an ONNX operator cannot take a tensor of {dtype}; convert it to one of {known}")
    return _NUMPY_DTYPES[dtype]


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return the torch dtype of a NumPy dtype.

    Raises
    ------
    OutputError
        torch has no such dtype (strings, int4).
    """
    if dtype.name not in TORCH_DTYPES:
        raise OutputError(f"torch has no tensors of {dtype_name(dtype)}; let the operator return another type")
    return TORCH_DTYPES[dtype.name]


def as_array(tensor: torch.Tensor) -> Any:
    """Return a NumPy (CPU) or CuPy (CUDA) array on the tensor's memory, with its strides.

    A conjugate or negative view is resolved first, which copies.

    Raises
    ------
    InputError
        NumPy or ONNX has no such dtype.
    MissingDependencyError
        CuPy is not installed.
    """
    dtype = numpy_dtype(tensor.dtype)
    plain = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype in _BIT_VIEWED:
        plain = plain.view(_AS_BITS[dtype.itemsize])
    if tensor.device.type == "cpu":
        return plain.numpy().view(dtype)
    return cupy_with_gpu("a tensor on a GPU").from_dlpack(plain).view(dtype)


def sharing_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a CPU tensor on the memory of a NumPy array.

    torch has no read-only tensors: for a read-only array, the caller must make sure that nothing writes to the tensor.
    """
    dtype = torch_dtype(array.dtype)
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if dtype in _BIT_VIEWED:
        plain = plain.view(np.uint8 if plain.itemsize == 1 else np.int16)
    return torch.from_numpy(np.asarray(_Writable(plain))).view(dtype)


class _Writable:
    """A view of an array's memory without its read-only flag; keeps the array alive."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def as_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as pairs along a new last dimension, and any other unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def as_onnx_array(value: Any) -> np.ndarray[Any, Any]:
    """Convert a tensor or number to a contiguous array; complex tensors become pairs along a new last dimension."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value, np.float32 if isinstance(value, float) else None)
    array: np.ndarray[Any, Any] = as_array(as_pairs(value.detach().cpu()))
    return np.ascontiguousarray(array).reshape(array.shape)


def as_tensor(array: Any, device: torch.device) -> torch.Tensor:
    """Return a contiguous tensor with a copy of a NumPy array, in memory allocated by torch.

    Without the copy, torch code could later write to what a kernel returned, such as its input or a constant.
    """
    tensor = torch.empty(array.shape, dtype=torch_dtype(array.dtype), device=device)
    as_array(tensor)[...] = array
    return tensor
