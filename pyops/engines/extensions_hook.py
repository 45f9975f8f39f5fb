"""The one function by which onnxruntime-extensions calls Python, made safe.

It calls ``hook(op_id, inputs, attributes)`` and converts the result to a tuple: the id, then a shape
and the flat elements of each output. It has no place for an error, and an exception that leaves the
hook ends the process. So a failing kernel is answered with outputs that have no elements, and the
exception takes another way: into the `Run` of a session that is ours, or else, by the interpreter's
own means of raising in a thread, out of the call of ``session.run``.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

from .. import failures
from ..node import add_note
from . import guard

Answer = Callable[[], Iterator[Any]]
"""What gives an iterator over the result; calling it, and the iterator, run no bytecode."""

# It stands for the outputs of any op, whatever their types: only those that the node has are read.
MOST_OUTPUTS = 256
NOTHING: Answer = (0, *((0,), np.empty(0, np.uint8)) * MOST_OUTPUTS).__iter__


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


def install() -> None:
    """Make onnxruntime-extensions call this hook; functions declared with its own ``onnx_op`` go on to its own."""
    from onnxruntime_extensions import PyCustomOpDef

    PyCustomOpDef.install_hooker(HookCall)
    arm()


def _call_theirs(call: HookCall) -> Answer:
    from onnxruntime_extensions import _ocos

    result: Answer = _ocos._on_pyop_invocation(call.first, call.inputs, call.attributes).__iter__
    return result


class Run:
    """One run of a session that is ours, and what a kernel raised in it first."""

    def __init__(self, stop: Callable[[], None] = lambda: None) -> None:
        self.thread = threading.get_ident()
        self.failure: BaseException | None = None
        self._stop = stop

    def fail(self, error: BaseException) -> None:
        """Keep an exception, and let ONNX Runtime stop before the next node."""
        if self.failure is None:
            self.failure = error
            self._stop()


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.runs: list[Run] = []


this_thread = _ThisThread()


class _Reporter:
    def report(self, error: BaseException) -> Answer:
        if isinstance(error, _CarriedExit):
            error = error.error
        if this_thread.runs:
            failures.remember(error)
            this_thread.runs[-1].fail(error)
            return NOTHING
        return raise_in_caller(error)

    def spares(self) -> list[tuple[Answer, int]]:
        numbers = [next(_spare_numbers) for _ in range(_SPARES)]
        return [(_raising(functools.partial(self.slots.pop, number)), number) for number in numbers]

    slots: dict[int, BaseException] = {}  # noqa: RUF012


_SPARES = 8
_spare_numbers = itertools.count()
_guard = guard.Guard(targets, _Reporter())
HookCall.__iter__ = property(_guard.callback)


def raise_in_caller(error: BaseException, stand_in: Answer = NOTHING) -> Answer:
    """An exception that this thread raises when ONNX Runtime returns to Python, and outputs until then.

    A thread of ONNX Runtime's own (its parallel execution mode) never returns to Python; there the
    exception goes to `threading.excepthook`, and the outputs have no elements.
    """
    known = error is failures.last_exception()
    failures.remember(error)
    if _is_foreign_thread():
        thread = threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))
        return NOTHING
    if sys.version_info < (3, 12) and not known:  # where it is raised without its traceback
        add_note(error, "Traceback of the kernel:\n" + "".join(traceback.format_tb(error.__traceback__)))
    return _raising(lambda: error, stand_in)


def _raising(find: Callable[[], BaseException], stand_in: Answer = NOTHING) -> Answer:
    # A class is all that the interpreter takes; making an instance of this one gives the exception.
    raised = type("Raised", (BaseException,), {"__new__": lambda cls, *args: _carried(find())})
    # The last element is computed, and the exception set, when no bytecode follows that could raise it.
    setting = map(_set_exception, (ctypes.c_ulong(threading.get_ident()),), (ctypes.py_object(raised),))
    return itertools.chain(stand_in(), setting).__iter__


class _CarriedExit(BaseException):
    """A GeneratorExit that reaches a guard, whose generator would end by it."""

    def __init__(self, error: GeneratorExit) -> None:
        self.error = error


def _carried(error: BaseException) -> BaseException:
    in_guard = sys._getframe(2).f_code.co_filename == guard.__file__
    return _CarriedExit(error) if in_guard and isinstance(error, GeneratorExit) else error


_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc


def _is_foreign_thread() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is None or frame.f_code.co_filename == guard.__file__


def arm() -> None:
    """Guard this thread's calls of the hook against interrupts from now on.

    Raises
    ------
    RecursionError
        So near the recursion limit that the hook could not even be entered.
    """
    _descend(_LEVELS)


# As deep as the interpreter goes below `session.run` before the guard catches what is raised.
_LEVELS = 8


def _descend(levels: int) -> None:
    if levels:
        _descend(levels - 1)
    else:
        _guard.arm()
