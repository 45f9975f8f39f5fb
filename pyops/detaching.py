"""Gives arrays on ONNX Runtime's memory, which a kernel still holds, memory of their own.

The arrays that a kernel was handed are known. Those that it derived from them (slices, reshapes) are
searched: in the frames of its exception, if there is one, and where references are left that those do
not explain, from the kernel outwards, where it can have put them.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import getrefcount
from traceback import walk_tb
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

import numpy as np
import onnxruntime

Array = np.ndarray[Any, Any]

_CONTAINERS = (dict, list, set, tuple)
_UNSEARCHED = {str, bytes, int, float, bool, CodeType, ModuleType}
_MOST_SEARCHED = 10_000
_MOST_REPEATED = 2**28  # bytes, of what np.broadcast_to and sliding windows spread out of little memory
_searching = threading.Lock()


def detach(arrays: Sequence[Array | None], kernel: Callable[..., Any], traceback: TracebackType | None = None) -> bool:
    """Give arrays, and those derived from them, copies of their elements, in place.

    What repeats its elements without end (`numpy.broadcast_to`), or is too large to copy, becomes empty.

    Parameters
    ----------
    arrays : sequence of numpy.ndarray or None
        What a kernel was handed; still on valid memory. Nothing but this sequence, the kernel and
        its exception may refer to them.
    kernel : callable
        The function that was called.
    traceback : traceback, optional
        Of the exception that the kernel raised.

    Returns
    -------
    bool
        Whether anything but the exception's frames refers to them.
    """
    held: dict[int, Any] = {id(array): array for array in arrays if _is_view(array)}
    local = [item for frame, _ in walk_tb(traceback) for item in gc.get_referents(frame)]
    _own(_derived(local, held))
    # One at a time: a search refers to what it finds, and another would take that for the kernel's doing.
    with _searching:
        # References: the sequence, `held`, this variable and the argument of the count.
        kept = any(getrefcount(array) - _count(array, local, arrays) > 4 for array in held.values())
        local.clear()
        if kept:
            frames = [names for _, names in _running()]
            for roots in ([kernel], frames, _own_modules()):
                _own(_derived(_reachable(roots), held))
    _own(held.values())
    # What the search cannot reach (in C, say) still looks at memory that is there for as long as the
    # running sessions and what they were fed are.
    runs = _runs_in_progress() if kept else []
    for array in held.values():
        # What is passed to a finalizer lives until it is called; it need not do anything.
        weakref.finalize(array, id, runs).atexit = False
    return kept


def _is_view(array: Any) -> bool:
    # Strings are no memory of ONNX Runtime's, nor are the buffers of outputs that no one uses.
    return isinstance(array, np.ndarray) and isinstance(array.base, memoryview)


def _count(array: Array, local: list[Any], arrays: Sequence[Array | None]) -> int:
    """The references to an array from frames, from containers in them, and from the list of what frames refer to."""
    direct = sum(item is array for item in local)
    containers = (item for item in local if type(item) in _CONTAINERS and item is not arrays)
    return 2 * direct + sum(inner is array for item in containers for inner in gc.get_referents(item))


def _own(arrays: Iterable[Array]) -> None:
    for array in list(arrays):
        # Restoring a pickled state is the one way NumPy has to give an array other memory in place.
        # Subclasses have states of their own.
        shape, data = _copied(array)
        state: Any = (1, shape, array.dtype, False, data)
        np.ndarray.__setstate__(array, state)


def _copied(array: Array) -> tuple[tuple[int, ...], bytes]:
    """The shape and elements of a copy; none where that would take memory that there is not."""
    first, last = np.lib.array_utils.byte_bounds(array)
    if array.nbytes <= max(last - first, _MOST_REPEATED):
        with contextlib.suppress(MemoryError):
            return array.shape, np.asarray(array).tobytes()
    return (0,), b""


def _derived(items: Iterable[Any], held: dict[int, Array]) -> Iterator[Array]:
    """The arrays that rest on held ones, among items and in the containers that these are."""
    seen: set[int] = set()
    pending = [iter(items)]
    while pending:
        try:
            item = next(pending[-1])
        except StopIteration:
            pending.pop()
            continue
        kind = type(item)  # unlike isinstance, this runs no code of the object's
        if issubclass(kind, np.ndarray):
            if id(item) not in held and _rests_on(item.base, held):
                yield item
            elif item.dtype == object and id(item) not in seen:
                seen.add(id(item))
                pending.append(iter(item.ravel().tolist()))
        elif kind is memoryview:
            if _rests_on(item, held):
                _release(item)
        elif kind in _CONTAINERS and id(item) not in seen:
            seen.add(id(item))
            pending.append(iter(gc.get_referents(item)))


def _rests_on(base: Any, held: dict[int, Array]) -> bool:
    while base is not None and id(base) not in held:
        if isinstance(base, memoryview):
            base = _exporter(base)
        elif isinstance(base, np.ndarray):
            base = base.base
        else:  # what np.lib.stride_tricks puts between
            base = getattr(base, "__dict__", {}).get("base")
    return base is not None


def _exporter(view: memoryview) -> Any:
    try:
        return view.obj
    except ValueError:  # it is released
        return None


def _release(view: memoryview) -> None:
    # Its memory cannot be exchanged; a released one raises instead of showing other values.
    with contextlib.suppress(BufferError):  # an array was made of it, and gets memory of its own
        view.release()


def _reachable(roots: Iterable[Any]) -> Iterator[Any]:
    """What objects refer to, the nearest first, and what the modules of functions hold last."""
    # Not all that the garbage collector knows: CPython resizes a tuple that another thread is just
    # making only while nobody else refers to it.
    seen = {id(vars(builtins))}
    pending, modules = deque(roots), deque[Any]()
    while (pending or modules) and len(seen) < _MOST_SEARCHED:
        for item in gc.get_referents((pending or modules).popleft()):
            yield item
            if id(item) not in seen and type(item) not in _UNSEARCHED:
                seen.add(id(item))
                (modules if type(item) is dict and "__builtins__" in item else pending).append(item)


def _own_modules() -> list[dict[str, Any]]:
    """What the modules hold that are not installed: they may be where a kernel puts things."""
    installed = (sys.prefix, sys.base_prefix)
    modules = [item for item in list(sys.modules.values()) if isinstance(item, ModuleType)]
    return [vars(item) for item in modules if not str(getattr(item, "__file__", None)).startswith(installed)]


def _running() -> list[tuple[FrameType, dict[str, Any]]]:
    """The frames that run in all threads, and their local variables, which the collector does not look into."""
    found = []
    collects = gc.isenabled()
    try:
        # CPython 3.11 may collect garbage while it makes an object of a frame. Finalizers then let the
        # frame's own thread go on, and what is made is an object of a frame that is gone.
        gc.disable()
        for frame in sys._current_frames().values():
            step: FrameType | None = frame
            while step is not None:
                # From CPython 3.13 on, what `f_locals` gives refers to the frame, and by it to everything.
                found.append((step, dict(step.f_locals)))
                step = step.f_back
    finally:
        if collects:
            gc.enable()
    return found


def _runs_in_progress() -> list[Any]:
    """The sessions that are running, and their feeds."""
    found = []
    for frame, names in _running():
        if "input_feed" in frame.f_code.co_varnames and isinstance(names.get("self"), onnxruntime.InferenceSession):
            found += [names["self"], names["input_feed"]]
    return found
