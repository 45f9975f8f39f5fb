"""Callbacks that no exception escapes from, an interrupt at their first instruction included.

ctypes ignores an exception that leaves a callback and hands C an undefined result; where that
result is a status pointer, ONNX Runtime then crashes. A ``try`` around the body is not enough: an
interrupt (SIGINT) that came while C code ran is raised at the first bytecode of the callback,
before its ``try`` is entered. So what ctypes calls here runs no bytecode of its own. It resumes a
generator that is suspended inside its ``try``.

A generator cannot be resumed while it runs: each thread has its own, and one more per level of
nesting (a kernel that runs another session). Threads that Python did not create never get
interrupts, and use a plain function.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Generator, Mapping
from types import SimpleNamespace
from typing import Any

from .c_api import Pair

Report = Callable[[BaseException], int]


class Guard:
    """A callback of two pointers that returns a status: None, or what `report` makes of an exception.

    Parameters
    ----------
    targets : mapping
        The first pointer, an int, chooses what is called with the second; it may raise anything.
    report : callable
        Takes the exception and returns an ``OrtStatus*``.

    Attributes
    ----------
    callback : object
        For ctypes, with a `Pair` as its only parameter.
    """

    def __init__(self, targets: Mapping[int, Callable[[int], None]], report: Report) -> None:
        def unguarded(call: Pair) -> int | None:
            try:
                targets[call.first](call.second)
            except BaseException as error:
                return report(error)
            return None

        class Callback(threading.local):
            resume: Any = staticmethod(unguarded)
            # attrgetter is C code: calling the object looks up this thread's `resume` and calls
            # it, without a bytecode at which an interrupt could be raised.
            __call__ = property(operator.attrgetter("resume"))

        self.callback = Callback()
        self._targets = targets
        self._report = report

    def arm(self) -> None:
        """Guard this thread's calls from now on."""
        if "resume" not in self.callback.__dict__:
            self.callback.resume = self._start()

    def _start(self) -> Callable[[Any], Any]:
        generator = self._serve()
        next(generator)
        generator.send(generator.send)
        return generator.send

    def _serve(self) -> Generator[int | None, Any, None]:
        targets, report = self._targets, self._report
        # This thread's attributes of the callback, which is faster to write to than the callback.
        attributes = self.callback.__dict__
        own = yield None
        nested = None
        status: int | None = None
        error: BaseException | None = None
        # Each level catches what is raised while the one inside handles an exception, where a
        # loop's jump is an instant like any other.
        while True:
            try:
                while True:
                    try:
                        while True:
                            try:
                                while True:
                                    if error is not None:
                                        status, error = report(error), None
                                    call = yield status
                                    status = None
                                    if nested is None:
                                        nested = self._start()
                                    attributes["resume"] = nested
                                    try:
                                        targets[call.first](call.second)
                                    except GeneratorExit as caught:  # the kernel's own, not this generator's
                                        error = caught
                                    finally:
                                        attributes["resume"] = own
                            except GeneratorExit:
                                raise
                            except BaseException as caught:
                                error = caught
                    except GeneratorExit:
                        raise
                    except BaseException as caught:
                        error = caught
            except GeneratorExit:
                raise
            except BaseException as caught:
                error = caught


def checkpoint(function: Callable[..., Any], interrupted: Callable[[BaseException], None]) -> Callable[..., Any]:
    """`function` as a callback of any parameters before which pending interrupts are taken.

    `interrupted` is told of them, and `function` runs all the same.
    """

    def take() -> Generator[Callable[..., Any], Any, None]:
        error: BaseException | None = None
        while True:
            try:
                while True:
                    if error is not None:
                        interrupted(error)
                        error = None
                    yield function
            except GeneratorExit:
                raise
            except BaseException as caught:
                error = caught

    class Callback(threading.local):
        ready: Any = SimpleNamespace(function=function)
        __call__ = property(operator.attrgetter("ready.function"))

    callback = Callback()
    if threading.current_thread() is threading.main_thread():
        generator = take()
        next(generator)
        callback.ready = type("Ready", (), {"function": property(generator.send)})()
    return callback
