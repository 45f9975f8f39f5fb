"""Arrays on memory that ONNX Runtime owns, which a kernel or its exception still holds after the call.

Such an array gets memory of its own, in place. What was made of it (a slice, a memoryview) cannot: it stays on memory
of ONNX Runtime's, which is kept from being freed. It refers to the array, so that this is for as long as the array
lives.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from ctypes import addressof, byref, c_int, c_void_p
from inspect import CO_OPTIMIZED
from sys import getrefcount
from traceback import walk_stack, walk_tb
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from .c_api import Api

_DEFAULT_MEMORY = 0  # OrtMemTypeDefault
_ARENA = 1  # OrtArenaAllocator
_SEQUENCE = 2  # ONNX_TYPE_SEQUENCE
_CONTAINERS = (dict, list, tuple)
_FEED_DEPTH = 3  # session.run's argument, its values, their attributes


class CallingThread(threading.local):
    """The thread that a kernel is called in.

    Attributes
    ----------
    lends : bool
        Whether arrays on ONNX Runtime's memory can be kept valid there. Not in threads of ONNX Runtime's own: what
        their runs are fed is not known.
    """

    def __init__(self) -> None:
        self.lends = _running_frame() is not None


def has_arena(api: Api, info: int) -> bool:
    """Return whether a node's memory comes out of an arena, which stays mapped as long as the session lives."""
    allocator = api.get(c_void_p, api.KernelInfoGetAllocator, info, _DEFAULT_MEMORY)
    kind = api.get(c_int, api.MemoryInfoGetType, api.get(c_void_p, api.AllocatorGetInfo, allocator))
    api.ReleaseAllocator(allocator)
    return bool(kind == _ARENA)


def is_borrowed(array: Any) -> bool:
    """Return whether a kernel's array is on memory of ONNX Runtime's; strings, copies and empty ones are not."""
    return isinstance(array, np.ndarray) and isinstance(array.base, memoryview)


def settle(api: Api, context: int, handed: Sequence[Any], inputs: int, traceback: TracebackType | None) -> bool:
    """Make arrays that a kernel was handed fit to outlive its call, which ends now.

    Parameters
    ----------
    context : int
        The ``OrtKernelContext*`` of the call.
    handed : sequence
        The inputs, and output buffers after them. Nothing else in the engine may refer to them.
    inputs : int
        How many of them are inputs.
    traceback : traceback or None
        Of an exception. Slices in its frames get memory of their own too.

    Returns
    -------
    bool
        Whether anything but those frames refers to a borrowed array.
    """
    borrowed = [array for array in handed if is_borrowed(array)]
    in_frames = gc.get_referents(*_frames(traceback))
    containers = {id(item): item for item in in_frames if type(item) in _CONTAINERS and item is not handed}
    in_frames += gc.get_referents(*containers.values())
    _own(item for array in borrowed for item in in_frames if _is_slice(item, array))
    _own(borrowed)
    # References to each: the two lists, the variable, the argument of the count, and two for each in a frame.
    kept = [
        array
        for array in borrowed
        if getrefcount(array) - 2 * sum(item is array for item in in_frames) > 4 or is_borrowed(array)
    ]
    if kept:
        owners = [*_tensors(api, context, handed[:inputs]), *_run_in_progress()]
        for array in kept:
            # What is passed to a finalizer lives until it is called; it need not do anything.
            weakref.finalize(array, id, owners).atexit = False
    return bool(kept)


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    """Yield the frames of functions that a traceback keeps; those that are running refer to nothing."""
    if traceback is not None:
        for frame, _ in (*walk_stack(traceback.tb_frame), *walk_tb(traceback.tb_next)):
            if frame.f_code.co_flags & CO_OPTIMIZED:  # a module's variables are not let go with its frame
                yield frame


def _is_slice(item: Any, array: Any) -> bool:
    # Not what repeats elements without end, as np.broadcast_to does.
    return type(item) is np.ndarray and item.nbytes <= array.nbytes and item.base is array


def _own(arrays: Iterable[Any]) -> None:
    for array in arrays:
        with contextlib.suppress(MemoryError):
            # Restoring a pickled state is the one way NumPy has to give an array other memory in place.
            state: Any = (1, array.shape, array.dtype, False, array.tobytes())
            array.__setstate__(state)


def _tensors(api: Api, context: int, inputs: Sequence[Any]) -> list[_Tensor]:
    return [_Tensor(api, context, index) for index, array in enumerate(inputs) if isinstance(array, np.ndarray)]


class _Tensor:
    """An input of a call, whose own memory lives as long as this does."""

    def __init__(self, api: Api, context: int, index: int) -> None:
        value = c_void_p()
        api.check(api.KernelContext_GetInput(c_void_p(context), index, byref(value)))
        # A sequence refers to its tensors; nothing else in the API shares one.
        sequence = api.get(c_void_p, api.CreateValue, addressof(value), 1, _SEQUENCE)
        weakref.finalize(self, api.ReleaseValue, sequence).atexit = False


def _running_frame() -> FrameType | None:
    """Return the frame that called ONNX Runtime, which calls a kernel in this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("pyops."):
        frame = frame.f_back
    return frame


def _run_in_progress() -> list[Any]:
    """Return the session that runs in this thread and what it was fed."""
    frame = _running_frame()
    found = [] if frame is None else list(frame.f_locals.values())
    # A dictionary may get other feeds after the run, and an object other attributes.
    for _ in range(_FEED_DEPTH):
        found += gc.get_referents(*found)
    return found
