"""Callbacks that no exception can leave, not even an interrupt at their first instruction.

ctypes ignores an exception that leaves a callback and returns an undefined result to C; if that result is a status
pointer, ONNX Runtime crashes. A ``try`` around the body is not enough: an interrupt (SIGINT) that arrived while C code
ran is raised at the callback's first bytecode, before its ``try`` is entered. The callable given to ctypes therefore
runs no bytecode of its own: it resumes a generator that is suspended inside its ``try``.

A generator cannot be resumed while it runs, so each thread has its own, plus one per level of nesting (a kernel that
runs another session). Threads that Python did not create never receive interrupts and use a plain function.
"""

from __future__ import annotations

import contextlib
import operator
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer SIGINT until the block ends, for C code that calls Python and cannot report an exception."""
    foreign = signal.getsignal(signal.SIGINT) is None  # installed by C code, which Python cannot restore
    if foreign or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if received:
            signal.raise_signal(signal.SIGINT)


class Guard:
    """A callback that returns its target's result, or a reporter's value for an exception.

    Parameters
    ----------
    targets : mapping
        The functions to call, by key. They may raise anything.
    reporter : object
        Converts exceptions to return values for C (an ``OrtStatus*``). `report` takes an exception; it may itself be
        interrupted, and is then called again. `spares` returns values prepared for later exceptions, each with its
        id, and `slots` is the mapping that takes the exceptions of spares by id.

    Attributes
    ----------
    callback : object
        The callable to give to ctypes. Its only parameter is an object with the two values that C passes: `first`, the
        key of the target, and `second`, the target's argument.
    """

    def __init__(self, targets: Mapping[int, Callable[[Any], Any]], reporter: Any) -> None:
        def unguarded(call: Any) -> Any:
            try:
                return targets[call.first](call.second)
            except BaseException as error:  # C cannot receive one
                return reporter.report(error)

        class Callback(threading.local):
            resume: Any = staticmethod(unguarded)
            # attrgetter is C code: calling the object looks up this thread's `resume` and calls it without executing a
            # bytecode at which an interrupt could be raised.
            __call__ = property(operator.attrgetter("resume"))

        self.callback = Callback()
        self._targets = targets
        self._reporter = reporter

    def arm(self) -> None:
        """Guard this thread's calls from now on."""
        if "resume" not in self.callback.__dict__:
            self.callback.resume = self._start()

    def _start(self) -> Callable[[Any], Any]:
        generator = self._serve()
        next(generator)
        generator.send(generator.send)
        return generator.send

    def _serve(self) -> Generator[Any, Any, None]:
        targets, reporter = self._targets, self._reporter
        # The callback's attributes in this thread; writing to the dict is faster than setattr.
        attributes = self.callback.__dict__
        own = yield None
        slots = reporter.slots
        spares, used = reporter.spares(), 0
        nested = None
        answer: Any = None
        error: BaseException | None = None
        earlier: BaseException | None = None
        failed = 0
        # Each level catches exceptions raised while the inner level handles one; even a loop's backward jump is a point
        # where an interrupt may be raised. Of two exceptions, an interrupt wins, and otherwise the first: a failure to
        # report an exception does not hide it. The handlers call nothing, because the end of a call is such a point,
        # too.
        while True:
            try:
                while True:
                    try:
                        while True:
                            try:
                                while True:
                                    if error is not None:
                                        if failed < _ATTEMPTS:
                                            failed += 1
                                            if earlier is not None and earlier is not error:
                                                error.__context__ = earlier
                                            # traceback takes an interrupt for a failure of an exception's __str__.
                                            with interrupts_deferred():
                                                answer = reporter.report(error)
                                        else:  # too close to the recursion limit to format text, for example
                                            answer, number = spares[used]
                                            slots[number] = error
                                            used += 1
                                        error, earlier, failed = None, None, 0
                                    call = yield answer
                                    answer = None
                                    if used and used > len(spares) // 2:
                                        with contextlib.suppress(RecursionError):
                                            spares, used = reporter.spares(), 0
                                    if nested is None:
                                        nested = self._start()
                                    attributes["resume"] = nested
                                    try:
                                        answer = targets[call.first](call.second)
                                    except GeneratorExit as caught:  # the kernel's own, not this generator's
                                        error = caught
                                    finally:
                                        attributes["resume"] = own
                            except GeneratorExit:
                                raise
                            except Exception as caught:
                                error = caught if error is None else error
                            except BaseException as caught:
                                error, earlier = caught, error
                    except GeneratorExit:
                        raise
                    except Exception as caught:
                        error = caught if error is None else error
                    except BaseException as caught:
                        error, earlier = caught, error
            except GeneratorExit:
                raise
            except Exception as caught:
                error = caught if error is None else error
            except BaseException as caught:
                error, earlier = caught, error


_ATTEMPTS = 8


def checkpoint(function: Callable[..., Any], interrupted: Callable[[BaseException], None]) -> Callable[..., Any]:
    """Return `function` as a ctypes callback that first takes any pending interrupt.

    A pending interrupt is passed to `interrupted`, and `function` runs nevertheless: a guard returns `function` when
    ctypes looks up what to call, so the interrupt is raised inside the guard.
    """

    class Callback(threading.local):
        ready: Any = SimpleNamespace(function=function)
        __call__ = property(operator.attrgetter("ready.function"))

    def report(error: BaseException) -> Callable[..., Any]:
        interrupted(error)
        return function

    callback = Callback()
    if threading.current_thread() is threading.main_thread():
        reporter = SimpleNamespace(report=report, spares=lambda: [(function, 0)], slots={})
        guard = Guard({0: lambda _: function}, reporter)
        guard.arm()
        ready = {"first": 0, "second": None, "function": property(guard.callback.resume)}
        callback.ready = type("Ready", (), ready)()
    return callback
