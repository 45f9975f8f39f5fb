"""What one call of a kernel needs to reach its tensors: places for results, and memory seen before."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import Array, byref, c_int64, c_void_p
from typing import Any

import numpy as np

from .. import arrays
from ..arrays import WORD, words
from ..errors import InputError
from ..types import ELEMENT_TYPES, STRING, DType, from_ort
from .c_api import Api

_MAX_KEPT = 64
# What ONNX Runtime writes for one tensor: its OrtValue*, element type, int64_t* of dimensions, rank and data.
_CELLS = _VALUE, _TYPE, _DIMS, _RANK, _DATA = range(5)
_ndarray = np.ndarray
_STRING = 8  # ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING
_PACKED = {row.ort for row in ELEMENT_TYPES if row.packed}
_PACKED_NUMBERS = {row.dtype.num for row in ELEMENT_TYPES if row.packed}


class Workspace:
    """Reads inputs and allocates outputs of one call at a time.

    Pointers go from ONNX Runtime and back to it in cells that are made once, so that a call makes no
    ctypes object; a memoryview reads them in half the time of `c_void_p.value`. ONNX Runtime's arena
    gives the same addresses again and again: shapes and memory views are kept by address and
    dimensions. Arrays are made anew each time, since a kernel may change theirs.
    """

    __slots__ = ("_api", "_at", "_buffers", "_cells", "_data", "_memories", "_shapes", "_value")

    def __init__(self, api: Api) -> None:
        self._api = api
        cells = (c_int64 * len(_CELLS))()
        self._cells = memoryview(cells).cast("B").cast("q")
        self._at = tuple(byref(cells, ctypes.sizeof(c_int64) * index) for index in range(len(_CELLS)))
        self._value, self._data = (
            c_void_p.from_buffer(cells, ctypes.sizeof(c_int64) * index) for index in (_VALUE, _DATA)
        )
        self._memories: dict[Any, tuple[Any, ...]] = {}
        self._buffers: dict[Any, np.ndarray[Any, Any]] = {}
        self._shapes: dict[tuple[int, ...], Array[c_int64]] = {}

    # Statuses are looked at before `check` is called: these run for every tensor of every call.
    def inputs(self, context: c_void_p, present: Sequence[bool], into: list[Any]) -> None:
        """Add the inputs of an ``OrtKernelContext*`` to a list, as `read` gives them; None for those not present."""
        api, at_value, value, read = self._api, self._at[_VALUE], self._value, self.read
        for index, is_present in enumerate(present):
            if is_present:
                if status := api.KernelContext_GetInput(context, index, at_value):
                    api.check(status)
                into.append(read(value))
            else:
                into.append(None)

    def read(self, value: c_void_p) -> Any:
        """A tensor's ``OrtValue*`` as a read-only array on its memory; strings as a copy."""
        api = self._api
        _, at_type, at_dims, at_rank, at_data = self._at
        if status := api.GetTensorElementTypeAndShapeDataReference(value, at_type, at_dims, at_rank):
            api.check(status)
        cells = self._cells
        rank, code = cells[_RANK], cells[_TYPE]
        dims = cells[_DIMS] // WORD - 1
        shape = (words[dims],) if rank == 1 else tuple(words[dims : dims + rank])
        if code == _STRING:
            return arrays.StringTensors(api).read(value.value or 0, shape)
        if status := api.GetTensorMutableData(value, at_data):
            api.check(status)
        if code in _PACKED:
            return arrays.unpack(arrays.bytes_at(self._data, (math.prod(shape) + 1) // 2), shape, _dtype(code))
        key = (cells[_DATA], shape, code)
        known = self._memories.get(key)
        if known is None:
            dtype = _dtype(code)
            known = self._remember(key, shape, dtype, arrays.memory(self._data, shape, dtype, writeable=False))
        return _ndarray(*known)

    def output(self, context: c_void_p, index: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """ONNX Runtime's buffer for the output at `index` as an array to write to; None where it is not used."""
        buffer = self._buffer(context, index, shape, dtype)
        return None if buffer is None else _ndarray(shape, dtype, buffer.base)

    def _buffer(self, context: c_void_p, index: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """As `output`, for use here alone."""
        if not self._allocate(context, index, shape):
            return None
        key = (self._cells[_DATA], shape, dtype)
        known = self._buffers.get(key)
        if known is None:
            if len(self._buffers) >= _MAX_KEPT:
                self._buffers.clear()
            memory = arrays.memory(self._data, shape, dtype, writeable=True)
            known = self._buffers[key] = np.ndarray(shape, dtype, memory)
        return known

    def write(self, context: c_void_p, index: int, array: np.ndarray[Any, Any]) -> None:
        """Copy an array into the output at `index`."""
        if array.dtype is STRING:
            if self._allocate(context, index, array.shape, data=False):
                arrays.StringTensors(self._api).write(self._value.value or 0, array)
        elif array.dtype.num in _PACKED_NUMBERS:
            if self._allocate(context, index, array.shape) and array.size:
                data = arrays.pack(array)
                arrays.copy_bytes(self._data, data, len(data))
        else:
            self.write_viewable(context, index, array)

    def write_viewable(self, context: c_void_p, index: int, array: np.ndarray[Any, Any]) -> None:
        """As `write`, for an array of a type that ONNX Runtime has in memory as NumPy has it."""
        buffer = self._buffer(context, index, array.shape, array.dtype)
        if buffer is not None:
            buffer[...] = array

    def _allocate(self, context: c_void_p, index: int, shape: tuple[int, ...], data: bool = True) -> bool:
        """Find the output's memory; whether the model uses that output."""
        api = self._api
        dims = self._shapes.get(shape)
        if dims is None:
            if len(self._shapes) >= _MAX_KEPT:
                self._shapes.clear()
            dims = self._shapes[shape] = (c_int64 * len(shape))(*shape)
        if status := api.KernelContext_GetOutput(context, index, dims, len(shape), self._at[_VALUE]):
            api.check(status)
        if not self._cells[_VALUE]:
            return False
        if data and (status := api.GetTensorMutableData(self._value, self._at[_DATA])):
            api.check(status)
        return True

    def _remember(self, key: Any, shape: tuple[int, ...], dtype: DType, memory: Any) -> tuple[Any, ...]:
        if len(self._memories) >= _MAX_KEPT:
            self._memories.clear()
        known = self._memories[key] = (shape, dtype, memory)
        return known


def _dtype(code: int) -> DType:
    row = from_ort(code)
    if row is None:
        raise InputError(f"a tensor has element type {code} of ONNX Runtime, which NumPy lacks")
    return row.dtype
