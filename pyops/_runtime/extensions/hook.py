"""The one function by which onnxruntime-extensions calls Python, made safe.

It calls ``hook(op_id, inputs, attributes)`` and converts the result to a tuple: the id, then a shape
and the flat elements of each output. It has no place for an error, and an exception that leaves the
hook ends the process. So a failing kernel is answered with outputs without elements, and its exception is left
with the run of this thread, which raises it, if that is of a session of ours; else it goes to the log.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import onnxruntime

from ...errors import EngineError, MissingDependencyError
from ..calls import exceptions, guard
from ..calls.guard import interrupts_deferred
from . import registry

R = TypeVar("R")
Answer = Callable[[], Iterator[Any]]
"""What gives an iterator over the result; calling it, and the iterator, run no bytecode."""

# It stands for the outputs of any op, whatever their types: only those that the node has are read.
NOTHING: Answer = (0, *((0,), np.empty(0, np.uint8)) * registry.MOST_OUTPUTS).__iter__


class HookCall(ctypes.Structure):
    """One call of the hook, and at the same time the hook: C code alone makes it of its arguments.

    Converting it to a tuple asks for its iterator, which the guard then gives.
    """

    _fields_ = (("first", ctypes.c_uint64), ("inputs", ctypes.py_object), ("attributes", ctypes.py_object))
    first: int
    inputs: list[Any]
    attributes: dict[str, str]
    __iter__: Any

    @property
    def second(self) -> HookCall:
        """What the target is called with."""
        return self


Target = Callable[[HookCall], Answer]


class _Targets(dict[int, Target]):
    def __missing__(self, op_id: int) -> Target:
        return _call_theirs


targets: dict[int, Target] = _Targets()
"""By the id of an operator in onnxruntime-extensions' registry."""

# Theirs are the addresses of objects, which are even.
_numbers = itertools.count(1, 2)


def add_target(target: Target) -> int:
    """Enter a target under an id of its own."""
    number = next(_numbers)
    targets[number] = target
    return number


def _call_theirs(call: HookCall) -> Answer:
    from onnxruntime_extensions import _ocos

    result: Answer = _ocos._on_pyop_invocation(call.first, call.inputs, call.attributes).__iter__
    return result


class _Run:
    """One call of a session of ours, and what a kernel raised in it first."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.failure: BaseException | None = None


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.runs: list[_Run] = []
        # By number, exceptions that were raised where not even a function could be called.
        self.unreported: dict[int, BaseException] = {}


this_thread = _ThisThread()


def watch(function: Callable[[], R], options: Any = None) -> R:
    """Return what `function`, a call of a session of ours, returns; raise what a kernel raises in it.

    Parameters
    ----------
    options : onnxruntime.RunOptions, optional
        Of this run alone: it then stops where a kernel fails.
    """
    _descend(_LEVELS)
    run = _Run(options)
    this_thread.runs.append(run)
    try:
        result = function()
    except Exception:  # ONNX Runtime's, of whatever type
        if run.failure is None and not this_thread.unreported:
            raise
    finally:
        this_thread.runs.remove(run)
    # Outside the handler, so that ONNX Runtime's error does not become the exception's context.
    failed = [error for error in (run.failure, *this_thread.unreported.values()) if error is not None]
    run.failure = None
    this_thread.unreported.clear()
    if failed:
        raise failed.pop(0)
    return result


def has_failed() -> bool:
    """Return whether a kernel that is called now, in a session of ours, belongs to a run that failed."""
    return any(run.failure for run in this_thread.runs[-1:])


def fail(error: BaseException) -> None:
    """Let the run of ours that a kernel belongs to raise an exception; log it where there is none."""
    if not this_thread.runs:
        return log(error)
    exceptions.remember(error)
    run = this_thread.runs[-1]
    run.failure = run.failure or error
    if run.options is not None:
        run.options.terminate = True
    return None


def log(error: BaseException) -> None:
    """Tell of an exception in a session that has no way to raise it."""
    exceptions.remember(error)
    _logger.error(
        "an op failed in a session that cannot raise its exception; its outputs have no elements", exc_info=error
    )


def log_unreported() -> None:
    """Tell of this thread's exceptions that could not be told of when they were raised."""
    while this_thread.unreported:
        log(this_thread.unreported.popitem()[1])


_logger = logging.getLogger("pyops")


class _Reporter:
    def report(self, error: BaseException) -> Answer:
        fail(error)
        return NOTHING

    def spares(self) -> list[tuple[Answer, int]]:
        return [(NOTHING, next(_spare_numbers)) for _ in range(_SPARES)]

    @property
    def slots(self) -> dict[int, BaseException]:
        return this_thread.unreported


_SPARES = 8
_spare_numbers = itertools.count()
_guard = guard.Guard(targets, _Reporter())
HookCall.__iter__ = property(_guard.callback)


# As deep as the interpreter goes below `session.run` before the guard catches what is raised: so near the recursion
# limit the exception is to come here.
_LEVELS = 8


def _descend(levels: int) -> None:
    """Guard this thread's calls of the hook against interrupts from now on."""
    if levels:
        _descend(levels - 1)
    else:
        _guard.arm()


def library() -> Any:
    """Return onnxruntime-extensions, with the hook in place.

    Functions declared with its own ``onnx_op`` go on to its own hook.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        import onnxruntime_extensions
    except ImportError as error:
        raise MissingDependencyError(
            f"this needs onnxruntime-extensions, which cannot be imported ({error}); pip install onnxruntime-extensions"
        ) from error
    onnxruntime_extensions.PyCustomOpDef.install_hooker(HookCall)
    _guard.arm()
    with registry.lock, interrupts_deferred():
        _run_once(onnxruntime_extensions.get_library_path())
    return onnxruntime_extensions


@functools.cache
def _run_once(path: str) -> None:
    # When its C++ makes an array for the first time, it runs Python code of NumPy's, where an interrupt would end the
    # process.
    import onnx

    domain = registry.place((registry.Types((1,), (1,)),), add_target(lambda call: (0, (1,), call.inputs[0]).__iter__))
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(path)
    model = onnx.parser.parse_model(_FIRST_MODEL.format(domain)).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.zeros(1, np.float32)})


_FIRST_MODEL = """
<ir_version: 8, opset_import: ["" : 17, "{0}" : 1]>
first (float[1] x) => (float[1] y) {{ y = {0}.Kernel <pyops_node = ""> (x) }}
"""


# By session options that hold the library by our doing, how much was in its registry then.
_holding: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def has_library(options: Any) -> bool:
    """Return whether session options hold the library by our doing."""
    return options in _holding


def add_library(options: Any, at_least: int) -> None:
    """Let sessions of `options` see what is in the registry.

    Raises
    ------
    EngineError
        They hold the library from a time when less than `at_least` was in it.
    """
    if options not in _holding:
        options.register_custom_ops_library(library().get_library_path())
        _holding[options] = registry.size()
    elif _holding[options] < at_least:
        raise EngineError(
            "these SessionOptions hold onnxruntime-extensions' library from before some of the ops were declared, and "
            "cannot take it twice; pass new SessionOptions"
        )
