"""ONNX Runtime's device memory for CuPy: arrays on its tensors, and CuPy allocations from its arena.

A CuPy memory pool lies between the two, one per arena, shared by the session's nodes. It reuses memory in the order of
the current stream, so memory that a kernel frees while its work is still queued is reused only after that work. Nothing
else allocates from it, so a replayed CUDA graph writes only to memory that nothing else uses.
"""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from ctypes import c_int, c_void_p
from typing import Any, NamedTuple

from ..._support.element_types import DType
from ..._support.locks import RLock
from ...errors import EngineError
from ..runtime.native.c_api import Api
from ..runtime.native.call_tensors import DATA, WORD, Get, Workspace, dtype_of, words
from . import devices

_DEFAULT_MEMORY = 0  # OrtMemTypeDefault


class Arena:
    """The device memory of a session.

    Its pages stay mapped as long as any array uses them, even after the end of the session.

    Attributes
    ----------
    cupy : module
        CuPy.
    device : int
        The CUDA device ordinal.
    malloc : callable
        The allocator to pass to ``cupy.cuda.using_allocator``.
    """

    def __init__(self, cupy: Any, api: Api, allocator: int) -> None:
        self.cupy = cupy
        self._owner = _Owner(api, allocator)
        self.device = self._owner.device
        # The pool must not refer to this object: the cycle would keep it from being freed.
        pool = cupy.cuda.MemoryPool(functools.partial(_allocate, cupy, self._owner))
        self.malloc = pool.malloc
        _release_pools()
        weakref.finalize(self, _retire, _Retired(cupy, pool, self.device)).atexit = False

    def view(self, address: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return a CuPy array on ONNX Runtime's memory."""
        cuda = self.cupy.cuda
        memory = cuda.UnownedMemory(address, math.prod(shape) * dtype.itemsize, self._owner, self.device)
        return self.cupy.ndarray(shape, dtype, memptr=cuda.MemoryPointer(memory, 0))


class _Retired(NamedTuple):
    """The pool of a freed arena, kept while a kernel keeps arrays allocated from it."""

    cupy: Any
    pool: Any
    device: int

    def is_used(self) -> bool:
        """Free the pool's unused blocks; return whether any are still in use."""
        with self.cupy.cuda.Device(self.device):
            self.pool.free_all_blocks()
            return bool(self.pool.used_bytes())


# A CuPy pool that is destroyed frees memory that is still in use, too.
_retired: list[_Retired] = []


def _retire(retired: _Retired) -> None:
    _retired.append(retired)
    _release_pools()


def _release_pools() -> None:
    # One by one: the garbage collector or another thread may retire another pool meanwhile.
    for retired in list(_retired):
        if not retired.is_used():
            with contextlib.suppress(ValueError):
                _retired.remove(retired)


class _Owner:
    """An ``OrtAllocator*``, released when no memory from it is in use."""

    def __init__(self, api: Api, allocator: int) -> None:
        self.api, self.allocator = api, allocator
        self.device: int = api.get(c_int, api.MemoryInfoGetId, api.get(c_void_p, api.AllocatorGetInfo, allocator))
        # Not at interpreter exit, when CUDA may already be shut down.
        weakref.finalize(self, api.ReleaseAllocator, allocator).atexit = False

    def free(self, address: int) -> None:
        self.api.check(self.api.AllocatorFree(self.allocator, address))


class _Block:
    """A piece of an arena, freed with the last array on it."""

    def __init__(self, owner: _Owner, address: int) -> None:
        weakref.finalize(self, owner.free, address).atexit = False


def _allocate(cupy: Any, owner: _Owner, size: int) -> Any:
    """Allocate from ONNX Runtime's arena, when CuPy's pool has no free block that fits."""
    cuda = cupy.cuda
    if cuda.runtime.getDevice() != owner.device:  # the kernel switched to another device
        return cupy.get_default_memory_pool().malloc(size)
    try:
        address = owner.api.get(c_void_p, owner.api.AllocatorAlloc, owner.allocator, size) or 0
    except (EngineError, MemoryError) as error:  # arenas report a lack of memory in several ways
        # On the error below the pool frees its unused blocks and retries. Queued work may still use them, and the arena
        # may hand them to any stream, so wait for the device first.
        cuda.runtime.deviceSynchronize()
        raise cuda.runtime.CUDARuntimeError(devices.OUT_OF_MEMORY) from error
    return cuda.MemoryPointer(cuda.UnownedMemory(address, size, _Block(owner, address), owner.device), 0)


_lock = RLock()
_arenas: weakref.WeakValueDictionary[int, Arena] = weakref.WeakValueDictionary()


def arena_of(cupy: Any, api: Api, info: int) -> Arena:
    """Return the arena of a node's session, given the node's ``OrtKernelInfo*``."""
    allocator = api.get(c_void_p, api.KernelInfoGetAllocator, info, _DEFAULT_MEMORY)
    # Each node gets its own OrtAllocator, but they share the arena's OrtMemoryInfo.
    memory_info = api.get(c_void_p, api.AllocatorGetInfo, allocator)
    with _lock:
        arena = _arenas.get(memory_info)
        if arena is None:
            arena = _arenas[memory_info] = Arena(cupy, api, allocator)
        else:
            api.ReleaseAllocator(allocator)
    return arena


class CudaWorkspace(Workspace):
    """A `Workspace` whose outputs and views are CuPy arrays; `read` still reads tensors on the host.

    Parameters
    ----------
    arena : Arena
        The session's arena.
    """

    __slots__ = ("_arena",)

    def __init__(self, api: Api, arena: Arena) -> None:
        super().__init__(api)
        self._arena = arena

    def view(self, get: Get, source: c_void_p, index: int) -> Any:
        """Return a tensor on the device as a CuPy array on its memory."""
        api, cells = self._api, self._cells
        at_value, at_type, at_dims, at_rank, at_data = self._at
        api.check(get(source, index, at_value))
        api.check(api.GetTensorElementTypeAndShapeDataReference(self._value, at_type, at_dims, at_rank))
        api.check(api.GetTensorMutableData(self._value, at_data))
        _, code, dims, rank, address = cells
        dims = dims // WORD - 1
        return self._arena.view(address, tuple(words[dims : dims + rank]), dtype_of(code))

    def output(self, context: c_void_p, index: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return the output's buffer as a CuPy array, or None if the model does not use the output."""
        if not self._allocate(context, index, shape):
            return None
        self._api.check(self._api.GetTensorMutableData(self._value, self._at[DATA]))
        return self._arena.view(self._cells[DATA], shape, dtype)

    def write(self, context: c_void_p, index: int, array: Any) -> None:
        """Copy a CuPy array into the output at `index` on the device, ordered by the current stream."""
        output = self.output(context, index, array.shape, array.dtype)
        if output is not None:
            devices.copy_to_cupy(self._arena.cupy, output, array)
