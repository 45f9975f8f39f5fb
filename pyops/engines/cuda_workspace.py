"""A workspace whose tensors lie on a GPU: CuPy arrays on ONNX Runtime's memory."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any

from ..arrays import WORD, words
from ..cupy_arrays import copyto
from ..types import DType
from .c_api import Api
from .cuda_memory import Arena
from .workspace import DATA, Get, Workspace, dtype_of


class CudaWorkspace(Workspace):
    """As `Workspace`; what it reads itself are tensors on the host.

    Parameters
    ----------
    arena : Arena
        Of the session.
    """

    __slots__ = ("_arena",)

    def __init__(self, api: Api, arena: Arena) -> None:
        super().__init__(api)
        self._arena = arena

    def view(self, get: Get, source: c_void_p, index: int) -> Any:
        """A tensor on the device, as a CuPy array on its memory."""
        api, cells = self._api, self._cells
        at_value, at_type, at_dims, at_rank, at_data = self._at
        api.check(get(source, index, at_value))
        api.check(api.GetTensorElementTypeAndShapeDataReference(self._value, at_type, at_dims, at_rank))
        api.check(api.GetTensorMutableData(self._value, at_data))
        _, code, dims, rank, address = cells
        dims = dims // WORD - 1
        return self._arena.view(address, tuple(words[dims : dims + rank]), dtype_of(code))

    def output(self, context: c_void_p, index: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """As of `Workspace`, a CuPy array."""
        if not self._allocate(context, index, shape):
            return None
        self._api.check(self._api.GetTensorMutableData(self._value, self._at[DATA]))
        return self._arena.view(self._cells[DATA], shape, dtype)

    def write(self, context: c_void_p, index: int, array: Any) -> None:
        """Copy a CuPy array into the output at `index`, from device to device, behind what computes it."""
        output = self.output(context, index, array.shape, array.dtype)
        if output is not None:
            copyto(self._arena.cupy, output, array)
