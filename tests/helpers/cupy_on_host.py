"""A stand-in for CuPy on the host's memory: as much of its interface as pyops and the kernels of the tests use.

Like CuPy's, its arrays are not NumPy arrays and are not converted implicitly; memory comes from the
thread's current allocator, streams and devices are entered and left, and all of that is written to `log`.
Arrays of bfloat16 (as in CuPy 13) and the float8 types (as in CuPy 14) are only views: it neither creates them nor
computes with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import weakref
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np

log: list[tuple[Any, ...]] = []
state = SimpleNamespace(available=True, capturing=False)


class _ThisThread(threading.local):
    def __init__(self):
        self.devices, self.streams, self.allocators = [0], [], []


_this_thread = _ThisThread()


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__({2: "cudaErrorMemoryAllocation", 900: "cudaErrorStreamCaptureUnsupported"}.get(status, status))
        self.status = status


class OutOfMemoryError(MemoryError):
    pass


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        assert type(ptr) is type(size) is type(device_id) is int
        self.ptr, self.size, self.device_id, self._owner = ptr, size, device_id, owner


class Memory(UnownedMemory):
    """Memory that CuPy allocated."""

    def __init__(self, size):
        self._bytes = ctypes.create_string_buffer(max(size, 1))
        super().__init__(ctypes.addressof(self._bytes), size, None, 0)


class PooledMemory:
    """A block that goes back to its pool, for the stream that it was taken on; it does not keep the pool alive."""

    def __init__(self, pool, block, stream):
        self.ptr, self.size, self.device_id = block.ptr, block.size, block.device_id
        self._pool, self._stream = weakref.ref(pool), stream

    def __del__(self):
        pool = self._pool()
        if pool is not None:
            pool._free[self._stream, self.size].append(pool._in_use.pop(self.ptr))


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class MemoryPool:
    def __init__(self, allocator=None):
        self._allocator = allocator or (lambda size: MemoryPointer(Memory(size), 0))
        self._free = defaultdict(list)
        self._in_use = {}

    def malloc(self, size):
        size = -(-size // 512) * 512
        stream = get_current_stream().ptr
        free = self._free[stream, size]
        block = free.pop() if free else self._allocate(size)
        self._in_use[block.ptr] = block
        return MemoryPointer(PooledMemory(self, block, stream), 0)

    def used_bytes(self):
        return sum(block.size for block in self._in_use.values())

    def _allocate(self, size):
        try:
            return self._allocator(size).mem
        except CUDARuntimeError as error:
            if error.status != 2:
                raise
            self.free_all_blocks()
        try:
            return self._allocator(size).mem
        except CUDARuntimeError as error:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes") from error

    def free_all_blocks(self):
        log.append(("free_all_blocks",))
        self._free.clear()


_default_pool = MemoryPool()


def get_default_memory_pool():
    return _default_pool


def get_allocator():
    return _this_thread.allocators[-1] if _this_thread.allocators else _default_pool.malloc


class Stream:
    null: Stream

    def __init__(self, ptr):
        self.ptr = ptr

    @classmethod
    def from_external(cls, obj):
        version, ptr = obj.__cuda_stream__()
        assert version == 0
        return cls(ptr)

    def is_capturing(self):
        if isinstance(state.capturing, Exception):
            raise state.capturing
        if state.capturing == "no longer":
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return state.capturing

    def synchronize(self):
        if state.capturing:
            state.capturing = "no longer"
            raise CUDARuntimeError(900)

    def __enter__(self):
        log.append(("enter stream", self.ptr))
        _this_thread.streams.append(self)
        return self

    def __exit__(self, *_):
        assert _this_thread.streams.pop() is self
        log.append(("leave stream", self.ptr))


Stream.null = Stream(0)


def get_current_stream():
    return _this_thread.streams[-1] if _this_thread.streams else Stream.null


class Device:
    def __init__(self, id):
        self.id = id

    def __enter__(self):
        log.append(("enter device", self.id))
        _this_thread.devices.append(self.id)
        return self

    def __exit__(self, *_):
        assert _this_thread.devices.pop() == self.id
        log.append(("leave device", self.id))


@contextlib.contextmanager
def using_allocator(allocator):
    _this_thread.allocators.append(allocator)
    try:
        yield
    finally:
        _this_thread.allocators.pop()


def _check_dtype(dtype):
    if dtype.isbuiltin == 2:
        raise ValueError(f"Unsupported dtype {dtype}")


class ndarray:  # noqa: N801
    def __init__(self, shape, dtype=float, memptr=None):
        self.dtype = np.dtype(dtype)
        if memptr is None:
            _check_dtype(self.dtype)
        size = math.prod(shape) * self.dtype.itemsize
        self.data = memptr or get_allocator()(size)
        self.base = None
        self.on_host = np.ndarray(
            shape, self.dtype, (ctypes.c_char * size).from_address(self.data.ptr) if size else bytearray()
        )

    shape = property(lambda self: self.on_host.shape)
    ndim = property(lambda self: self.on_host.ndim)
    size = property(lambda self: self.on_host.size)
    nbytes = property(lambda self: self.on_host.nbytes)
    flags = property(lambda self: self.on_host.flags)
    T = property(lambda self: self._view(self.on_host.T))

    def _view(self, on_host):
        view = object.__new__(ndarray)
        view.dtype, view.data, view.on_host = on_host.dtype, self.data, on_host
        view.base = self if self.base is None else self.base
        return view

    def __getitem__(self, key):
        return self._view(self.on_host[key])

    def __setitem__(self, key, value):
        self.on_host[key] = _unwrap(value)

    def view(self, dtype):
        return self._view(self.on_host.view(dtype))

    def __dlpack__(self, **options):
        # The consumer keeps this array, and thereby its memory.
        return np.asarray(_Exported(self)).__dlpack__()

    def __dlpack_device__(self):
        return self.on_host.__dlpack_device__()

    def reshape(self, *shape):
        return self._view(self.on_host.reshape(*shape))

    def astype(self, dtype):
        return asarray(self.on_host.astype(dtype))

    def copy(self):
        return asarray(self.on_host)

    def get(self):
        if get_current_stream().is_capturing():
            raise RuntimeError("the current stream is capturing, so D2H transfers are disallowed")
        if not self.flags.c_contiguous:
            _check_dtype(self.dtype)
        return self.on_host.copy()

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __add__(self, other):
        return add(self, other)

    def __mul__(self, other):
        return _computed(np.multiply, self, other)


class _Exported:
    def __init__(self, array):
        self._array = array
        self.__array_interface__ = array.on_host.__array_interface__


ndarray.__module__ = "cupy"
CUDARuntimeError.__module__ = "cupy_backends.cuda.api.runtime"
OutOfMemoryError.__module__ = "cupy.cuda.memory"


def _unwrap(value):
    assert not isinstance(value, np.ndarray) or value.ndim == 0, "CuPy refuses NumPy arrays among its own"
    return value.on_host if isinstance(value, ndarray) else value


def _computed(function, *operands, out=None):
    for operand in operands:
        _check_dtype(operand.dtype)
    result = function(*map(_unwrap, operands))
    if out is None:
        return asarray(result)
    out.on_host[...] = result
    return out


def add(x, y, out=None):
    return _computed(np.add, x, y, out=out)


def asarray(array):
    if isinstance(array, ndarray):
        return array
    array = np.asarray(array)
    copied = ndarray(array.shape, array.dtype)
    copied.on_host[...] = array
    return copied


def from_dlpack(tensor):
    on_host = np.from_dlpack(tensor)
    memory = UnownedMemory(on_host.__array_interface__["data"][0], on_host.nbytes, on_host, 0)
    taken = ndarray(on_host.shape, on_host.dtype, MemoryPointer(memory, 0))
    if not on_host.flags.c_contiguous:
        taken.on_host = on_host
    return taken


def asnumpy(array):
    return array.get()


def empty(shape, dtype=float):
    return ndarray(shape, dtype)


def may_share_memory(a, b):
    return np.may_share_memory(a.on_host, b.on_host)


def copyto(dst, src):
    assert dst.shape == src.shape
    assert dst.dtype == src.dtype
    assert not may_share_memory(dst, src), "a GPU copies in no order"
    if not (src.flags.c_contiguous and dst.flags.c_contiguous):
        _check_dtype(src.dtype)
    log.append(("copy", src.nbytes, get_current_stream().ptr))
    dst.on_host[...] = src.on_host


def _device_count():
    if isinstance(state.available, Exception):
        raise state.available
    return int(state.available)


cuda = SimpleNamespace(
    Device=Device,
    MemoryPointer=MemoryPointer,
    MemoryPool=MemoryPool,
    Stream=Stream,
    UnownedMemory=UnownedMemory,
    get_allocator=get_allocator,
    get_current_stream=get_current_stream,
    memory=SimpleNamespace(Memory=Memory, OutOfMemoryError=OutOfMemoryError, PooledMemory=PooledMemory),
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        deviceSynchronize=lambda: log.append(("synchronize device",)),
        getDevice=lambda: _this_thread.devices[-1],
        getDeviceCount=_device_count,
        streamSynchronize=lambda ptr: Stream(ptr).synchronize(),
    ),
    using_allocator=using_allocator,
)
