"""Borrowed arrays (on memory that ONNX Runtime owns) that something still refers to after the kernel call.

An array that a kernel keeps stays on ONNX Runtime's memory, which is not freed while the array lives; slices and
memoryviews refer to the array. An array to which only the variables of an exception's traceback refer gets its own
memory instead, so that a debugger shows its values and the exception does not keep the session alive.
"""

from __future__ import annotations

import contextlib
import functools
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

from ....errors import BorrowedArrayWarning, warn
from ...ops.op import AnyOp
from ...satellites import satellite
from .c_api import Api

_DEFAULT_MEMORY = 0  # OrtMemTypeDefault
_ARENA = 1  # OrtArenaAllocator
_SEQUENCE = 2  # ONNX_TYPE_SEQUENCE
_CONTAINERS = (dict, list, tuple)
_CALLER = "pyops._core.runtime.inference_session"
_FEED_DEPTH = 3  # the feed given to session.run, its values, and their attributes


class CallingThread(threading.local):
    """Properties of the thread that a kernel is called in.

    Attributes
    ----------
    lends : bool
        Whether kernels in this thread may get borrowed arrays. False in ONNX Runtime's own threads, where the feeds
        of the run, whose memory would have to be kept, are unknown.
    """

    def __init__(self) -> None:
        self.lends = _running_frame() is not None


def extra_references(objects: Sequence[Any]) -> list[int]:
    """Return the number of references to each object besides that of the list or tuple that they are in."""
    # Called by C, getrefcount counts the list's reference and map's. Whether the variables and arguments of Python code
    # count depends on its version.
    return [count - 2 for count in map(getrefcount, objects)]


@functools.cache
def counts_references() -> bool:
    """Return whether this Python counts references as `extra_references` expects."""
    kept = object()
    return extra_references([object(), kept]) == [0, 1]


def has_arena(api: Api, info: int) -> bool:
    """Return whether a node's memory comes from an arena, which stays mapped while the session lives."""
    allocator = api.get(c_void_p, api.KernelInfoGetAllocator, info, _DEFAULT_MEMORY)
    kind = api.get(c_int, api.MemoryInfoGetType, api.get(c_void_p, api.AllocatorGetInfo, allocator))
    api.ReleaseAllocator(allocator)
    return bool(kind == _ARENA)


def is_borrowed(array: Any) -> bool:
    """Return whether an array uses ONNX Runtime's memory; strings, copies and empty arrays do not."""
    return isinstance(array, np.ndarray) and isinstance(array.base, memoryview)


def detach(api: Api, context: int, passed: Sequence[Any], inputs: int, traceback: TracebackType | None) -> bool:
    """Make the arrays passed to a kernel safe to outlive its call, which ends now.

    Parameters
    ----------
    context : int
        The ``OrtKernelContext*`` of the call.
    passed : sequence
        The inputs, followed by the output buffers. Nothing else in the engine may refer to them.
    inputs : int
        The number of inputs in `passed`.
    traceback : traceback or None
        The traceback of the kernel's exception. The arrays in its frames, and slices of them, get memory of their own.

    Returns
    -------
    bool
        Whether anything except those frames still refers to a borrowed array.
    """
    borrowed = [array for array in passed if is_borrowed(array)]
    in_frames = gc.get_referents(*_frames(traceback))
    containers = {id(item): item for item in in_frames if type(item) in _CONTAINERS and item is not passed}
    in_frames += gc.get_referents(*containers.values())
    # An array has two references for each occurrence in a frame, one of them of `in_frames`.
    _own(
        item
        for item, extra in zip(in_frames, extra_references(in_frames), strict=True)
        if any(_is_slice(item, array) for array in borrowed) and extra == 2 * _count(item, in_frames) - 1
    )
    held = [_count(array, in_frames) for array in borrowed]
    of_passed = 1  # `passed` refers to each array besides `borrowed`
    _own(
        array
        for array, times, extra in zip(borrowed, held, extra_references(borrowed), strict=True)
        if times and extra == 2 * times + of_passed
    )
    kept = [
        array
        for array, times, extra in zip(borrowed, held, extra_references(borrowed), strict=True)
        if is_borrowed(array) and (times or extra > of_passed)
    ]
    if kept:
        satellite("machine").pin(kept)
        owners = [*_tensors(api, context, passed[:inputs]), *_run_in_progress()]
        for array in kept:
            array.flags.writeable = False  # writing to a kept output buffer would change other results
            # A finalizer's arguments live until it is called; `id` stands for a function that does nothing.
            weakref.finalize(array, id, owners).atexit = False
    return bool(kept)


def warn_kept(op: AnyOp, what: str, consequence: str = "") -> None:
    """Warn that an op's kernel kept an array, with the fix."""
    warn(
        f"{op.signature.qualified_name} kept {what} that it was given, or a view of one, which is valid only during "
        f"its call{consequence}. Keep a copy instead: x.copy() ({op.location})",
        BorrowedArrayWarning,
    )


def _count(array: Any, items: Sequence[Any]) -> int:
    return sum(item is array for item in items)


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    """Yield the frames of functions that a traceback keeps alive, and of their callers.

    Frames that are still running are included, though the garbage collector sees no references in them.
    """
    if traceback is not None:
        for frame, _ in (*walk_stack(traceback.tb_frame), *walk_tb(traceback.tb_next)):
            if frame.f_code.co_flags & CO_OPTIMIZED:  # a module's variables outlive its frame
                yield frame


def _is_slice(item: Any, array: Any) -> bool:
    # Excludes arrays larger than their base, such as those of np.broadcast_to, whose copy could be huge.
    return type(item) is np.ndarray and item.nbytes <= array.nbytes and item.base is array


def _own(arrays: Iterable[Any]) -> None:
    """Give arrays memory of their own, if it can be allocated.

    There must be no memoryviews of the arrays: their formats would be freed.
    """
    for array in arrays:
        with contextlib.suppress(MemoryError):
            # Restoring a pickled state is NumPy's only way to give an existing array other memory.
            array.__setstate__((1, array.shape, array.dtype, False, array.tobytes()))


def _tensors(api: Api, context: int, inputs: Sequence[Any]) -> list[_Tensor]:
    return [_Tensor(api, context, index) for index, array in enumerate(inputs) if isinstance(array, np.ndarray)]


class _Tensor:
    """An input of a call, whose memory stays allocated while this object lives."""

    def __init__(self, api: Api, context: int, index: int) -> None:
        value = c_void_p()
        api.check(api.KernelContext_GetInput(c_void_p(context), index, byref(value)))
        # A sequence shares ownership of its tensors; nothing else in the API does.
        sequence = api.get(c_void_p, api.CreateValue, addressof(value), 1, _SEQUENCE)
        weakref.finalize(self, api.ReleaseValue, sequence).atexit = False


def _running_frame() -> FrameType | None:
    """Return the innermost frame in this thread that is not the engine's: the caller of ONNX Runtime, or None."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and (name := str(frame.f_globals.get("__name__"))).startswith("pyops.") and name != _CALLER:
        frame = frame.f_back
    return frame


def _run_in_progress() -> list[Any]:
    """Return the session that runs in this thread and its feeds."""
    frame = _running_frame()
    found = [] if frame is None else list(frame.f_locals.values())
    # The contents too, because the dictionary of feeds may change after the run.
    for _ in range(_FEED_DEPTH):
        found += gc.get_referents(*found)
    return found
