"""The one function through which onnxruntime-extensions calls Python, made safe.

onnxruntime-extensions calls ``hook(op_id, inputs, attributes)`` and converts the result to a tuple: the id, then a
shape and the flat elements of each output. The result cannot express an error, and an exception that leaves the hook
ends the process. So a kernel that fails returns outputs without elements, and its exception is raised by the
`pyops.InferenceSession` that runs in this thread, or logged if there is none.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy as np

from .._core import CallbackGuard, is_of_onnxruntime, remember_exception, signals_deferred
from ..errors import EngineError, MissingDependencyError, chain_errors
from . import operator_registry

R = TypeVar("R")
Answer = Callable[[], Iterator[Any]]
"""A function that returns an iterator over the result; neither it nor the iterator runs bytecode."""

# Valid as the outputs of any op: onnxruntime-extensions reads only as many outputs as the node has.
NOTHING: Answer = (0, *((0,), np.empty(0, np.uint8)) * operator_registry.MOST_OUTPUTS).__iter__


class HookCall(ctypes.Structure):
    """One call of the hook, and the hook itself: constructing it from the arguments runs only C code.

    onnxruntime-extensions converts it to a tuple, which calls its ``__iter__``, the guarded callback.
    """

    _fields_ = (("first", ctypes.c_uint64), ("inputs", ctypes.py_object), ("attributes", ctypes.py_object))
    first: int
    inputs: list[Any]
    attributes: dict[str, str]
    __iter__: Any


targets: dict[int, Callable[[HookCall], Answer]] = {}
"""What computes a published op, by its target."""

Nodes = dict[str, Callable[[HookCall], Answer]]
"""What computes the nodes of one pyops session, by their keys."""

_sessions: dict[str, tuple[Nodes, weakref.ref[Any]]] = {}


class _ThisThread(threading.local):
    """The state of a thread, and the guard's reporter.

    Attributes
    ----------
    slots : dict
        The exceptions that pyops sessions have yet to raise.
    before : int or None
        The length of `slots` before the run of a pyops session that is the innermost one; None outside.
    options : onnxruntime.RunOptions or None
        The options that are used for that run alone.
    """

    before: int | None = None
    options: Any = None

    def __init__(self) -> None:
        self.slots: dict[int, BaseException] = {}

    def has_failed(self) -> bool:
        return self.before is not None and len(self.slots) > self.before

    def report(self, error: BaseException, call: HookCall | None) -> Answer:
        remember_exception(error)
        if self.before is None or (call is not None and call.first != operator_registry.HOSTED):
            _log(error)
        else:
            self.slots[next(_numbers)] = error
            if self.options is not None:
                self.options.terminate = True
        return NOTHING

    def spare(self) -> tuple[Answer, int]:
        return NOTHING, next(_numbers)


_numbers = itertools.count()
_thread = _ThisThread()


def add_session(owner: Any, nodes: Nodes) -> str:
    """Make the nodes of a session known for as long as `owner` exists; return the session's key."""
    key = str(next(_numbers))
    # The callback is C code alone: the handler of a signal cannot raise in it, which would leave the nodes here.
    _sessions[key] = nodes, weakref.ref(owner, functools.partial(_sessions.pop, key))
    return key


def _log(error: BaseException) -> None:
    message = "an op failed in a session that cannot raise its exception; its outputs have no elements"
    logging.getLogger("pyops").error(message, exc_info=error)


def watch(function: Callable[[], R], options: Any = None) -> R:
    """Call `function`, which creates or runs a pyops session; raise the exception of a kernel in it.

    Parameters
    ----------
    options : onnxruntime.RunOptions, optional
        Options used for this run alone; a kernel that fails terminates the run through them.
    """
    _descend(_LEVELS)
    outer, before = (_thread.before, _thread.options), len(_thread.slots)
    try:
        _thread.before, _thread.options = before, options
        # The first call sets up pybind11's use of NumPy; a handler that ran a session meanwhile would wait for that.
        with contextlib.nullcontext() if _was_called else signals_deferred():
            result = function()
    except BaseException as error:
        if not _thread.has_failed():
            raise
        if not (isinstance(error, Exception) and is_of_onnxruntime(error)):
            error.__context__ = None  # ONNX Runtime's error
            _thread.slots[next(_numbers)] = error
    finally:
        _thread.before, _thread.options = outer
    # Raised outside the handler, so that ONNX Runtime's error does not become the exception's context.
    if len(_thread.slots) > before:
        raise chain_errors([_thread.slots.pop(key) for key in list(_thread.slots)[before:]])
    return result


def _call(call: HookCall) -> Answer:
    global _was_called
    _was_called = True
    while _thread.before is None and _thread.slots:  # of earlier calls, which could not log them
        _log(_thread.slots.popitem()[1])
    if call.first == operator_registry.HOSTED:
        if _thread.has_failed():
            return NOTHING
        nodes, _ = _sessions[call.attributes[operator_registry.SESSION]]
        return nodes[call.attributes[operator_registry.NODE]](call)
    return targets.get(call.first, _call_foreign)(call)


def _call_foreign(call: HookCall) -> Answer:
    from onnxruntime_extensions import _ocos

    return cast(Answer, _ocos._on_pyop_invocation(call.first, call.inputs, call.attributes).__iter__)


_was_called = False
_guard = CallbackGuard(_call, _thread)
HookCall.__iter__ = property(_guard.callback)


# The depth of the call stack between `session.run` and the point where the guard catches exceptions. Descending as far
# beforehand raises a RecursionError here, where it is harmless.
_LEVELS = 8


def _descend(levels: int) -> None:
    """Guard this thread's hook calls against interrupts from now on."""
    return _descend(levels - 1) if levels else _guard.arm()


def library() -> Any:
    """Return the onnxruntime-extensions module, with the hook installed.

    Calls of functions declared with its own ``onnx_op`` are forwarded to its own hook.

    Raises
    ------
    MissingDependencyError
        onnxruntime-extensions cannot be imported.
    """
    try:
        import onnxruntime_extensions
    except ImportError as error:
        fix = "pip install onnxruntime-extensions" if sys.version_info < (3, 14) else "it has no wheels for Python 3.14"
        raise MissingDependencyError(
            f"the extensions engine needs onnxruntime-extensions, which cannot be imported ({error}); {fix}"
        ) from error
    onnxruntime_extensions.PyCustomOpDef.install_hooker(HookCall)
    _guard.arm()
    return onnxruntime_extensions


# The sizes of the registry's domains when the library was registered in a session options object.
_known: dict[weakref.ref[Any], Mapping[str, int]] = {}


def has_library(options: Any) -> bool:
    """Return whether pyops registered the library in these session options."""
    return weakref.ref(options) in _known


def add_library(options: Any, domains: Iterable[str]) -> None:
    """Register the library in `options`, unless pyops has, so that their sessions see the operators of `domains`.

    Raises
    ------
    EngineError
        Some of these operators were added to the registry after the library was registered in `options`.
    """
    if not has_library(options):
        options.register_custom_ops_library(library().get_library_path())
        _known[weakref.ref(options, _known.pop)] = operator_registry.sizes.copy()
    known = _known[weakref.ref(options)]
    if any(operator_registry.sizes[domain] > known.get(domain, 0) for domain in domains):
        raise EngineError(
            "onnxruntime-extensions' library was registered in these SessionOptions before some of the ops were "
            "declared, and cannot be registered twice; pass new SessionOptions"
        )
