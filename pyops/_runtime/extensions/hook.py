"""The one function through which onnxruntime-extensions calls Python, made safe.

onnxruntime-extensions calls ``hook(op_id, inputs, attributes)`` and converts the result to a tuple: the id, then a
shape and the flat elements of each output. The result cannot express an error, and an exception that leaves the hook
ends the process. So a kernel that fails returns outputs without elements, and its exception is raised by the
`pyops.InferenceSession` that runs in this thread, or logged if there is none.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from ...errors import EngineError, MissingDependencyError
from ..calls import exceptions, guard
from . import registry

R = TypeVar("R")
Answer = Callable[[], Iterator[Any]]
"""A function that returns an iterator over the result; neither it nor the iterator runs bytecode."""

# Valid as the outputs of any op: onnxruntime-extensions reads only as many outputs as the node has.
NOTHING: Answer = (0, *((0,), np.empty(0, np.uint8)) * registry.MOST_OUTPUTS).__iter__


class HookCall(ctypes.Structure):
    """One call of the hook, and the hook itself: constructing it from the arguments runs only C code.

    onnxruntime-extensions converts it to a tuple, which calls its ``__iter__``, the guarded callback.
    """

    _fields_ = (("first", ctypes.c_uint64), ("inputs", ctypes.py_object), ("attributes", ctypes.py_object))
    first: int
    inputs: list[Any]
    attributes: dict[str, str]
    __iter__: Any


Target = Callable[[HookCall], Answer]


class _Targets(dict[int, Target]):
    def __missing__(self, op_id: int) -> Target:
        return _call_foreign


targets: dict[int, Target] = _Targets()
"""What computes an operator, by the operator's id in onnxruntime-extensions' registry."""

# onnxruntime-extensions' own ids are addresses of objects, hence even.
_numbers = itertools.count(1, 2)


def add_target(target: Target) -> int:
    """Register a target; return its new id."""
    number = next(_numbers)
    targets[number] = target
    return number


def _call_foreign(call: HookCall) -> Answer:
    from onnxruntime_extensions import _ocos

    result: Answer = _ocos._on_pyop_invocation(call.first, call.inputs, call.attributes).__iter__
    return result


class _Run:
    """One run of a pyops session, and the first exception that a kernel raised in it, or an interrupt."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.failure: BaseException | None = None


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.runs: list[_Run] = []
        # Exceptions raised where not even a function could be called, by id.
        self.unreported: dict[int, BaseException] = {}


this_thread = _ThisThread()


def watch(function: Callable[[], R], options: Any = None) -> R:
    """Call `function`, which creates or runs a pyops session; raise the first exception of a kernel in it.

    Parameters
    ----------
    options : onnxruntime.RunOptions, optional
        Options used for this run alone; a kernel that fails terminates the run through them.
    """
    _descend(_LEVELS)
    run = _Run(options)
    this_thread.runs.append(run)
    try:
        # The first call sets up pybind11's use of NumPy; a handler that ran a session meanwhile would wait for that.
        with contextlib.nullcontext() if _was_called else guard.signals_deferred():
            result = function()
    except BaseException as error:
        has_failed = run.failure is not None or this_thread.unreported
        if not (has_failed and isinstance(error, Exception) and exceptions.is_of_onnxruntime(error)):
            if run.failure is not None:  # rather than ONNX Runtime's error
                error.__context__ = run.failure
            raise
    finally:
        this_thread.runs.remove(run)
    # Raised outside the handler, so that ONNX Runtime's error does not become the exception's context.
    failed = [error for error in (run.failure, *this_thread.unreported.values()) if error is not None]
    run.failure = None
    this_thread.unreported.clear()
    if failed:
        raise failed.pop(0)
    return result


def has_failed() -> bool:
    """Return whether the pyops session that runs in this thread has already failed."""
    return any(run.failure for run in this_thread.runs[-1:])


def fail(error: BaseException) -> None:
    """Make the current run of a pyops session raise `error`; log it if there is none."""
    if not this_thread.runs:
        return log(error)
    exceptions.remember(error)
    run = this_thread.runs[-1]
    if run.failure is not None and error.__context__ is None:  # an interrupt, as no kernel runs after a failure
        error.__context__ = run.failure
    run.failure = error
    if run.options is not None:
        run.options.terminate = True
    return None


def log(error: BaseException) -> None:
    """Log an exception raised in a session that cannot raise it."""
    exceptions.remember(error)
    _logger.error(
        "an op failed in a session that cannot raise its exception; its outputs have no elements", exc_info=error
    )


def log_unreported() -> None:
    """Log this thread's exceptions that could not be logged when they were raised."""
    while this_thread.unreported:
        log(this_thread.unreported.popitem()[1])


_logger = logging.getLogger("pyops")


class _Reporter:
    @property
    def slots(self) -> dict[int, BaseException]:
        return this_thread.unreported

    def report(self, error: BaseException, call: HookCall | None) -> Answer:
        fail(error)
        return NOTHING

    def spare(self) -> tuple[Answer, int]:
        return NOTHING, next(_spare_numbers)


def _call(call: HookCall) -> Answer:
    global _was_called
    _was_called = True
    return targets[call.first](call)


_spare_numbers = itertools.count()
_was_called = False
_guard = guard.Guard(_call, _Reporter())
HookCall.__iter__ = property(_guard.callback)


# The depth of the call stack between `session.run` and the point where the guard catches exceptions. Descending as far
# beforehand raises a RecursionError here, where it is harmless.
_LEVELS = 8


def _descend(levels: int) -> None:
    """Guard this thread's hook calls against interrupts from now on."""
    if levels:
        _descend(levels - 1)
    else:
        _guard.arm()


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
        has_wheels = sys.version_info < (3, 14)
        raise MissingDependencyError(
            f"the extensions engine needs onnxruntime-extensions, which cannot be imported ({error}); "
            f"{'pip install onnxruntime-extensions' if has_wheels else 'it has no wheels for Python 3.14'}"
        ) from error
    onnxruntime_extensions.PyCustomOpDef.install_hooker(HookCall)
    _guard.arm()
    return onnxruntime_extensions


# The registry's size at the time the library was registered in each session options object.
_registry_sizes: dict[weakref.ref[Any], int] = {}


def has_library(options: Any) -> bool:
    """Return whether pyops registered the library in these session options."""
    return weakref.ref(options) in _registry_sizes


def add_library(options: Any, at_least: int) -> None:
    """Register the library in `options`, so that their sessions see the current registry.

    Raises
    ------
    EngineError
        The library was registered in `options` when fewer than `at_least` operators were in the registry.
    """
    if not has_library(options):
        options.register_custom_ops_library(library().get_library_path())
        _registry_sizes[weakref.ref(options, _registry_sizes.pop)] = registry.size()
    elif _registry_sizes[weakref.ref(options)] < at_least:
        raise EngineError(
            "onnxruntime-extensions' library was registered in these SessionOptions before some of the ops were "
            "declared, and cannot be registered twice; pass new SessionOptions"
        )
