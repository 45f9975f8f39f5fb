"""Callbacks that no exception can leave, whatever raises it and wherever it comes.

ctypes ignores an exception that leaves a callback and returns an undefined result to C; if that result is a status
pointer, ONNX Runtime crashes. A ``try`` around the body is not enough: a signal's handler that is due, or an exception
that another thread has set, is raised at the callback's first bytecode, before its ``try`` is entered. The callable
given to ctypes therefore runs no bytecode of its own: it resumes a generator that is suspended inside its ``try``.

A generator cannot be resumed while it runs, and a handler may run a session at any instant. So each thread has a pool
of suspended generators, from which C code takes one: what is taken cannot be taken twice. Threads that Python did not
create receive no such exceptions and use a plain function.
"""

from __future__ import annotations

import functools
import itertools
import operator
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ctypes import PYFUNCTYPE, c_void_p, py_object, pythonapi
from textwrap import indent
from types import FrameType
from typing import Any

from ...errors import chain_errors


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Call the Python handlers of signals that arrive within the block when it ends.

    The handlers are called, and the signals not raised again: an event loop would count them twice.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    received: dict[int, FrameType | None] = {}
    is_over = False

    def defer(number: int, frame: FrameType | None) -> None:
        if is_over:  # an exception has kept the handler from being restored
            handlers[number](number, frame)
        else:
            received[number] = frame

    with ExitStack() as after:  # whose functions are called in reverse order, even if another raises
        try:
            for number in map(int, signal.valid_signals()):
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    signal.signal(number, defer)
            yield
        finally:
            is_over = True
            for number, frame in received.items():
                after.callback(handlers[number], number, frame)
            for number, handler in handlers.items():
                if signal.getsignal(number) is defer:
                    after.callback(signal.signal, number, handler)


# How many generators are left in a thread's pool while one runs: as many handlers may enter within each other's first
# instructions.
_SUSPENDED = 8
_SPARES = 32
# As many exceptions may come one right after the other. Each level catches those that are raised while the inner level
# handles one: even a loop's backward jump is a point where one may be raised. The handlers call nothing, because the
# end of a call is such a point, too.
_LEVELS = 8
_LEVEL = """
while True:
    try:
{inner}
    except GeneratorExit:
        raise
    except (RecursionError, MemoryError) as caught:
        errors, attempts = errors or (caught,), attempts and {most}
    except BaseException as caught:
        errors += (caught,)
"""
_CALL = f"""
while True:
    if errors:
        answer = None
        if attempts < {_LEVELS}:  # one attempt is enough where there is no room for calls
            attempts += 1
            # And the spares. An exception at the first instruction leaves is_taken False: this generator then serves no
            # other call, and is replaced here.
            fill(pool)
            answer = report(errors, call)
        if answer is None:
            answer, number = spares[-1]
            del spares[-1]  # no call, because at the recursion limit C code cannot be called either
            slots[number] = errors[-1]
        errors, attempts = (), 0
    call = None
    if is_taken:
        is_taken = False
        pool.appendleft(own)  # at the other end: whoever enters before the yield takes another one
    call = yield answer
    is_taken, answer = True, None
    # A handler that enters before the yield, and calls often, gets near the one that has not yielded.
    if len(pool) < {_SUSPENDED} or len(spares) < {_SPARES // 2} or pool[-4].__self__.gi_running:
        fill(pool)
    try:
        answer = target(call)
    except GeneratorExit as caught:  # the kernel's own, not this generator's
        errors += (caught,)
"""
_SERVE = """
def _serve(target, reporter, spares, pool, fill):
    report, slots = functools.partial(_report, reporter), reporter.slots
    errors, attempts, is_taken, answer, call = (), 0, False, None, None
    own = yield
{levels}
"""


def _report(reporter: Any, errors: Sequence[BaseException], call: Any) -> Any:
    return reporter.report(chain_errors(errors), call)


def _nested(levels: int) -> str:
    return _LEVEL.format(inner=indent(_nested(levels - 1), " " * 8), most=_LEVELS) if levels else _CALL


_names: dict[str, Any] = {"__name__": __name__, "functools": functools, "_report": _report}
exec(_SERVE.format(levels=indent(_nested(_LEVELS), " " * 4)), _names)
_serve: Callable[..., Generator[Any, Any, None]] = _names["_serve"]


class CallbackGuard:
    """A callback that returns its target's result, or a value for an exception.

    Parameters
    ----------
    target : callable
        Gets what C passes, as one object. It may raise anything.
    reporter : object
        Makes return values for C (an ``OrtStatus*``) of exceptions. `report` takes an exception and what C passed, None
        if that is unknown. It is called again if an exception comes meanwhile. If it returns None, or fails each time,
        the value is one that `spare` has prepared, with an id, and the exception is in the mapping `slots` under that
        id.

    Attributes
    ----------
    callback : object
        The callable to give to ctypes.
    """

    def __init__(self, target: Callable[[Any], Any], reporter: Any) -> None:
        def unguarded(call: Any) -> Any:
            try:
                if sys._getframe().f_back is not None:  # a thread of Python's
                    self.arm()
                return target(call)
            except BaseException as error:  # C cannot receive one
                answer = reporter.report(error, call)
                if answer is None:
                    answer, number = reporter.spare()
                    reporter.slots[number] = error
                return answer

        class Callback(threading.local):
            take: Any = itertools.repeat(unguarded).__next__
            # methodcaller is C code: calling the object takes one of this thread's generators and resumes it without
            # executing a bytecode at which an exception could be raised.
            __call__ = __rmatmul__ = property(operator.methodcaller("take"))

        self.callback = Callback()
        self._target = target
        self._reporter = reporter
        self._spares: deque[tuple[Any, int]] = deque()

    def arm(self) -> None:
        """Guard this thread's calls from now on."""
        if "take" not in self.callback.__dict__:
            pool: deque[Any] = deque()
            self._fill(pool)
            self.callback.take = pool.pop

    def _fill(self, pool: deque[Any]) -> None:
        while len(self._spares) < _SPARES:
            self._spares.append(self._reporter.spare())
        while len(pool) < _SUSPENDED or any(send.__self__.gi_running for send in list(pool)[-4:]):
            generator = _serve(self._target, self._reporter, self._spares, pool, self._fill)
            next(generator)
            generator.send(generator.send)
            # Here, and not by itself: near the recursion limit, it would try for ever.
            pool.append(generator.send)


def packing(callback: Any, count: int) -> Callable[..., Any]:
    """Return a callable that calls a guard's `callback` with the tuple of its arguments, in C code alone.

    Parameters
    ----------
    count : int
        The number of arguments, each a word. The tuple has one item more, before them.
    """
    prototype: Any = PYFUNCTYPE(py_object, py_object, *[c_void_p] * count)
    prototype.__iter__ = (callback,).__iter__
    # Py_NewRef returns its first argument, matmul. Then ctypes calls errcheck(matmul, function, arguments), and reduce,
    # for the only item of function, matmul(arguments, callback), which is callback.__rmatmul__(arguments).
    function = prototype(("Py_NewRef", pythonapi))
    function.errcheck = functools.reduce
    return functools.partial(function, operator.matmul)
