"""The one function by which onnxruntime-extensions calls Python, made safe.

It calls ``hook(op_id, inputs, attributes)`` and converts the result to a tuple: the id, then a shape
and the flat elements of each output. It has no place for an error, and an exception that leaves the
hook ends the process: it is left with the run that the call belongs to.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import extensions_runs as runs
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
    """Make onnxruntime-extensions call this hook; functions declared with its own ``onnx_op`` go on to its own.

    From then on what kernels raise comes out of the methods of ``onnxruntime.InferenceSession``.
    """
    from onnxruntime_extensions import PyCustomOpDef

    PyCustomOpDef.install_hooker(HookCall)
    runs.watch_all(arm)
    arm()


def _call_theirs(call: HookCall) -> Answer:
    from onnxruntime_extensions import _ocos

    result: Answer = _ocos._on_pyop_invocation(call.first, call.inputs, call.attributes).__iter__
    return result


class _Reporter:
    def report(self, error: BaseException) -> Answer:
        runs.fail(error)
        return NOTHING

    def spares(self) -> list[tuple[Answer, int]]:
        return [(NOTHING, next(_spare_numbers)) for _ in range(_SPARES)]

    @property
    def slots(self) -> dict[int, BaseException]:
        return runs.this_thread.unreported


_SPARES = 8
_spare_numbers = itertools.count()
_guard = guard.Guard(targets, _Reporter())
HookCall.__iter__ = property(_guard.callback)


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
