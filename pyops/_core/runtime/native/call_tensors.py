"""Access to the tensors of one kernel call: NumPy arrays on memory that ONNX Runtime owns.

Out-parameter cells, buffers and shapes are kept from one call to the next.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from ctypes import Array, byref, c_int64, c_void_p
from typing import Any

import numpy as np

from ...._support.element_types import ELEMENT_TYPES, STRING, DType, ElementType, from_ort
from ....errors import InputError
from .c_api import Api

_READ, _WRITE = 0x100, 0x200  # PyBUF_READ and PyBUF_WRITE of Python's C API

_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)

# Calls without argtypes take half the time; the address must then be a c_void_p, never an int.
_bytes_at = ctypes.pythonapi.PyBytes_FromStringAndSize
_bytes_at.restype = ctypes.py_object


# memmove(address, bytes, size), also without argtypes.
_copy_bytes = ctypes.PYFUNCTYPE(None)(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)

WORD = 8
# The whole address space after its first word as int64: the fastest way to read memory from Python.
words = _memory_view(WORD, 2**62, _READ).cast("q")

Get = Callable[[c_void_p, int, Any], int | None]
# The cells of one tensor: its OrtValue*, element type, int64_t* of dimensions, rank and data.
_CELLS = _VALUE, _, _, _, DATA = range(5)
_ndarray = np.ndarray
_STRING = 8  # ONNX_TENSOR_ELEMENTDATA_TYPE_STRING
_PACKED = {row.ort: row for row in ELEMENT_TYPES if row.per_byte > 1 and row.ort is not None}
_PACKED_NUMBERS = {row.dtype.num: row for row in _PACKED.values()}


class Workspace:
    """Reads inputs and allocates outputs, for one kernel call at a time.

    Pointers are exchanged with ONNX Runtime in cells created once, so that a call creates no ctypes objects; a
    memoryview reads them in half the time of `c_void_p.value`. Shapes and memory views are cached by address and
    dimensions. Arrays are created anew each time, since a kernel may modify their shape or dtype.

    Attributes
    ----------
    context : c_void_p
        The cell of the call's ``OrtKernelContext*``.
    """

    __slots__ = ("_api", "_at", "_cells", "_data", "_value", "context")

    def __init__(self, api: Api) -> None:
        self.context = c_void_p()
        self._api = api
        cells = (c_int64 * len(_CELLS))()
        self._cells = memoryview(cells).cast("B").cast("q")
        self._at = tuple(byref(cells, ctypes.sizeof(c_int64) * index) for index in range(len(_CELLS)))
        self._value, self._data = (
            c_void_p.from_buffer(cells, ctypes.sizeof(c_int64) * index) for index in (_VALUE, DATA)
        )

    # These methods run for every tensor of every call: they test statuses before they call `check`, and inline short
    # helpers.
    def read(self, get: Get, source: c_void_p, present: Sequence[bool], into: list[Any]) -> None:
        """Append tensors to `into`: read-only arrays on their memory, copies of strings, None for absent ones.

        Parameters
        ----------
        get : callable
            A function like ``KernelContext_GetInput``: takes `source`, an index and the address of an ``OrtValue*``.
        """
        api, cells, value = self._api, self._cells, self._value
        at_value, at_type, at_dims, at_rank, at_data = self._at
        for index, is_present in enumerate(present):
            if not is_present:
                into.append(None)
                continue
            if status := get(source, index, at_value):
                api.check(status)
            if status := api.GetTensorElementTypeAndShapeDataReference(value, at_type, at_dims, at_rank):
                api.check(status)
            _, code, dims, rank, _ = cells
            dims = dims // WORD - 1
            shape = (words[dims],) if rank == 1 else tuple(words[dims : dims + rank])
            if code == _STRING:
                into.append(read_strings(api, self.value, shape))
                continue
            if status := api.GetTensorMutableData(value, at_data):
                api.check(status)
            if code in _PACKED:
                row = _PACKED[code]
                data = _bytes_at(self._data, row.packed_size(math.prod(shape)))
                into.append(unpack(data, shape, row))
            else:
                into.append(_ndarray(*readable(cells[DATA], shape, code)))

    @property
    def value(self) -> int:
        """Return the ``OrtValue*`` last read or allocated; 0 before."""
        return self._cells[_VALUE]

    def output(self, context: c_void_p, index: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return a writeable array on the output's buffer, or None if the model does not use the output."""
        buffer = self.buffer(context, index, shape, dtype)
        return None if buffer is None else _ndarray(shape, dtype, buffer.base)

    def buffer(self, context: c_void_p, index: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return an array as `output` does, shared between calls: write to it at once, and do not keep it."""
        api, cells = self._api, self._cells
        if status := api.KernelContext_GetOutput(context, index, dims(shape), len(shape), self._at[_VALUE]):
            api.check(status)
        if not cells[_VALUE]:
            return None
        if status := api.GetTensorMutableData(self._value, self._at[DATA]):
            api.check(status)
        return writeable(cells[DATA], shape, dtype)

    def write(self, context: c_void_p, index: int, array: np.ndarray[Any, Any]) -> None:
        """Copy an array into the output at `index`."""
        if array.dtype is STRING:
            if self._allocate(context, index, array.shape):
                write_strings(self._api, self.value, array)
        elif array.dtype.num in _PACKED_NUMBERS:
            if self._allocate(context, index, array.shape) and array.size:
                self._api.check(self._api.GetTensorMutableData(self._value, self._at[DATA]))
                data = pack(array, _PACKED_NUMBERS[array.dtype.num])
                _copy_bytes(self._data, data, len(data))
        else:
            buffer = self.buffer(context, index, array.shape, array.dtype)
            if buffer is not None:
                buffer[...] = array

    def _allocate(self, context: c_void_p, index: int, shape: tuple[int, ...]) -> bool:
        """Allocate the output's tensor; return whether the model uses that output."""
        self._api.check(self._api.KernelContext_GetOutput(context, index, dims(shape), len(shape), self._at[_VALUE]))
        return self.value != 0


# ONNX Runtime's arena returns the same addresses again and again.


@functools.lru_cache(1024)
def dims(shape: tuple[int, ...]) -> Array[c_int64]:
    """Return a shape as C reads it."""
    return (c_int64 * len(shape))(*shape)


@functools.lru_cache(1024)
def readable(address: int, shape: tuple[int, ...], code: int) -> tuple[tuple[int, ...], DType, Any]:
    """Return the arguments that make a read-only array on the memory at an address."""
    dtype = dtype_of(code)
    return shape, dtype, _memory(c_void_p(address), shape, dtype, writeable=False)


@functools.lru_cache(1024)
def writeable(address: int, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Return a writeable array on the memory at an address, which must not reach a kernel."""
    return np.ndarray(shape, dtype, _memory(c_void_p(address), shape, dtype, writeable=True))


def dtype_of(code: int) -> DType:
    """Return the dtype of an ONNX Runtime element type.

    Raises
    ------
    InputError
        This pyops does not know the element type.
    """
    row = from_ort(code)
    if row is None:
        raise InputError(f"a tensor has element type {code} of ONNX Runtime, which is newer than this pyops; cast it")
    return row.dtype


def _memory(address: c_void_p, shape: tuple[int, ...], dtype: DType, *, writeable: bool) -> Any:
    """Return a buffer over the memory at `address`, from which an array can be created.

    Without elements there may be no address, and the buffer is one of Python's own.
    """
    size = math.prod(shape) * dtype.itemsize
    return _memory_view(address, size, _WRITE if writeable else _READ) if size else (bytearray() if writeable else b"")


def unpack(data: bytes, shape: tuple[int, ...], row: ElementType) -> np.ndarray[Any, Any]:
    """Return a read-only array from bytes with several elements each, the lowest bits first."""
    bits = 8 // row.per_byte
    packed = np.frombuffer(data, np.uint8)[:, np.newaxis] >> _shifts(bits)
    values = (packed & (2**bits - 1)).ravel()[: math.prod(shape)].reshape(shape)
    array: np.ndarray[Any, Any] = values.view(row.dtype)
    if row.name.startswith("int"):
        sign = 2 ** (bits - 1)
        array = np.asarray((values.view(np.int8) ^ sign) - sign).astype(row.dtype)
    array.flags.writeable = False
    return array


def pack(array: np.ndarray[Any, Any], row: ElementType) -> bytes:
    """Return the elements of an array in ONNX Runtime's layout, several per byte."""
    bits = 8 // row.per_byte
    values = np.ascontiguousarray(array).ravel().view(np.uint8) & (2**bits - 1)
    values = np.append(values, np.zeros(-len(values) % row.per_byte, np.uint8)).reshape(-1, row.per_byte)
    packed: np.ndarray[Any, Any] = np.bitwise_or.reduce(values << _shifts(bits), axis=1)
    return packed.tobytes()


def _shifts(bits: int) -> np.ndarray[Any, Any]:
    return np.array(range(0, 8, bits), np.uint8)


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
