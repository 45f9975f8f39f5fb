"""NumPy arrays on memory that ONNX Runtime owns."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np

from ..._schema.dtypes import STRING, DType

_READ, _WRITE = 0x100, 0x200  # PyBUF_READ and PyBUF_WRITE of Python's C API

_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)

# Calls without argtypes take half the time; the address must then be a c_void_p, never an int.
bytes_at = ctypes.pythonapi.PyBytes_FromStringAndSize
bytes_at.restype = ctypes.py_object


# memmove(address, bytes, size), also without argtypes.
copy_bytes = ctypes.PYFUNCTYPE(None)(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)

WORD = 8
# The whole address space after its first word as int64: the fastest way to read memory from Python.
words = _memory_view(WORD, 2**62, _READ).cast("q")


def memory(address: ctypes.c_void_p, shape: tuple[int, ...], dtype: DType, *, writeable: bool) -> Any:
    """Return a buffer over the memory at `address`, from which an array can be created.

    Without elements there may be no address, and the buffer is one of Python's own.
    """
    size = math.prod(shape) * dtype.itemsize
    return _memory_view(address, size, _WRITE if writeable else _READ) if size else (bytearray() if writeable else b"")


def unpack(data: bytes, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Return a read-only array of 4-bit elements from bytes with two each, the lower bits first."""
    pairs = np.frombuffer(data, np.uint8)
    nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).ravel()[: math.prod(shape)].reshape(shape)
    array = nibbles.view(dtype)
    if dtype == np.dtype(ml_dtypes.int4):
        array = np.asarray((nibbles.view(np.int8) ^ 8) - 8).astype(dtype)
    array.flags.writeable = False
    return array


def pack(array: np.ndarray[Any, Any]) -> bytes:
    """Return the elements of a 4-bit array in ONNX Runtime's layout, two per byte."""
    nibbles = np.ascontiguousarray(array).ravel().view(np.uint8) & 15
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    return (nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()


# String tensors are std::string objects, not NumPy-compatible memory: they are always copied.


def read_strings(api: Any, value: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the strings of an ``OrtValue*`` as a read-only object array of str."""
    count = math.prod(shape)
    array = np.empty(count, STRING)
    if count:
        length = ctypes.c_size_t()
        api.check(api.GetStringTensorDataLength(value, ctypes.addressof(length)))
        text, offsets = ctypes.create_string_buffer(length.value or 1), (ctypes.c_size_t * count)()
        places = ctypes.addressof(text), length.value, ctypes.addressof(offsets), count
        api.check(api.GetStringTensorContent(value, *places))
        ends = [*offsets[1:], length.value]
        encoded = text.raw  # a copy
        array[:] = [encoded[start:end].decode() for start, end in zip(offsets, ends, strict=True)]
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def write_strings(api: Any, value: int, array: np.ndarray[Any, Any]) -> None:
    """Copy an object array of str into a string ``OrtValue*`` of the same shape."""
    buffer = ctypes.c_void_p()
    for index, item in enumerate(array.flat):
        text = item.encode()
        api.check(api.GetResizedStringTensorElementBuffer(value, index, len(text), ctypes.addressof(buffer)))
        ctypes.memmove(buffer.value or 0, text, len(text))
