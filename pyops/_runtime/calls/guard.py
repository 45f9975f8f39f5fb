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
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from ctypes import PYFUNCTYPE, c_void_p, py_object, pythonapi
from types import FrameType
from typing import Any


class _Deferral:
    """The handler of signals whose own handlers are called later."""

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.received: dict[int, FrameType | None] = {}
        self.is_over = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:  # an exception has kept the handler from being restored
            self.handlers[number](number, frame)
        else:
            self.received[number] = frame

    def deliver(self) -> None:
        """Call the handlers of the signals received; each is called, even if another raises."""
        if self.received:
            number = next(iter(self.received))
            frame = self.received.pop(number)
            try:
                self.handlers[number](number, frame)
            finally:
                self.deliver()


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Call the Python handlers of signals that arrive within the block when it ends.

    The handlers are called, and the signals not raised again: an event loop would count them twice.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferral = _Deferral()
    try:
        for number in map(int, signal.valid_signals()):
            if callable(handler := signal.getsignal(number)):
                deferral.handlers[number] = handler
                signal.signal(number, deferral)
        yield
    finally:
        deferral.is_over = True
        try:
            for number, handler in deferral.handlers.items():
                if signal.getsignal(number) is deferral:
                    signal.signal(number, handler)
        finally:
            deferral.deliver()


class Guard:
    """A callback that returns its target's result, or a reporter's value for an exception.

    Parameters
    ----------
    target : callable
        Gets what C passes, as one object. It may raise anything.
    reporter : object
        Converts exceptions to return values for C (an ``OrtStatus*``). `report` takes an exception and what C passed,
        None if that is unknown; an exception in it is reported in place of the first, unless it is for lack of memory
        or stack. `spare` returns a value prepared for an exception that cannot be reported, with an id, and `slots` is
        the mapping that takes those exceptions by id.

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
                return reporter.report(error, call)

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
        while len(pool) < _SUSPENDED:
            generator = self._serve(pool)
            next(generator)
            generator.send(generator.send)

    def _serve(self, pool: deque[Any]) -> Generator[Any, Any, None]:
        target, reporter = self._target, self._reporter
        spares, slots = self._spares, reporter.slots
        own = yield None
        call: Any = None
        answer: Any = None
        error: BaseException | None = None
        earlier: BaseException | None = None
        failed = 0
        is_taken = True
        # Each level catches exceptions raised while the inner level handles one; even a loop's backward jump is a point
        # where one may be raised. Of two exceptions, the later wins, as everywhere in Python, but a failure to report
        # an exception does not hide it. The handlers call nothing, because the end of a call is such a point, too.
        while True:
            try:
                while True:
                    try:
                        while True:
                            try:
                                while True:
                                    if error is not None:
                                        is_taken = own not in pool
                                        if failed < _ATTEMPTS:
                                            failed += 1
                                            if earlier is not None and error.__context__ is None:
                                                error.__context__ = earlier
                                            answer = reporter.report(error, call)
                                        else:  # too close to the recursion limit to call a function, for example
                                            answer, number = spares.pop()
                                            slots[number] = error
                                        error, earlier, failed = None, None, 0
                                    call = None
                                    if is_taken:
                                        is_taken = False
                                        # At the other end: whoever enters before the yield takes another one.
                                        pool.appendleft(own)
                                    call = yield answer
                                    is_taken = True
                                    answer = None
                                    if len(pool) < _SUSPENDED:
                                        self._fill(pool)
                                    try:
                                        answer = target(call)
                                    except GeneratorExit as caught:  # the kernel's own, not this generator's
                                        error = caught
                            except GeneratorExit:
                                raise
                            except (RecursionError, MemoryError) as caught:
                                error = caught if error is None else error
                            except BaseException as caught:
                                error, earlier = caught, error
                    except GeneratorExit:
                        raise
                    except (RecursionError, MemoryError) as caught:
                        error = caught if error is None else error
                    except BaseException as caught:
                        error, earlier = caught, error
            except GeneratorExit:
                raise
            except (RecursionError, MemoryError) as caught:
                error = caught if error is None else error
            except BaseException as caught:
                error, earlier = caught, error


_ATTEMPTS = 8
# How many generators are left in a thread's pool while one runs: as many handlers may enter within each other's first
# instructions.
_SUSPENDED = 8
_SPARES = 32


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
