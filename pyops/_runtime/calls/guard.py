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

import contextlib
import operator
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Generic, Protocol, TypeVar


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Hold back SIGINT while C code calls Python and has no way to report an exception."""
    taken = signal.getsignal(signal.SIGINT) is None  # by C code, which Python cannot put back
    if taken or threading.current_thread() is not threading.main_thread():
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


Given = TypeVar("Given", covariant=True)
Answer = TypeVar("Answer", covariant=True)


class Call(Protocol[Given]):
    """The two values that a call brings."""

    @property
    def first(self) -> int:
        """Which target is meant."""

    @property
    def second(self) -> Given:
        """What it is called with."""


class Reporter(Protocol[Answer]):
    """Makes answers of exceptions."""

    def report(self, error: BaseException) -> Answer:
        """An answer (an ``OrtStatus*``) that stands for an exception; may raise, and is then called again."""

    def spares(self) -> Sequence[tuple[Answer, int]]:
        """Each an answer for later, and its number."""

    @property
    def slots(self) -> MutableMapping[int, BaseException]:
        """By number, the exceptions that spare answers have come to stand for."""


class Guard(Generic[Given, Answer]):
    """A callback that answers what its target does, or what a reporter makes of an exception.

    Parameters
    ----------
    targets : mapping
        The first of the two values of a call, an int, chooses what is called with the second; it may
        raise anything.

    Attributes
    ----------
    callback : object
        For C, with a `Call` as its only parameter.
    """

    def __init__(self, targets: Mapping[int, Callable[[Given], Answer]], reporter: Reporter[Answer]) -> None:
        def unguarded(call: Call[Given]) -> Answer:
            try:
                return targets[call.first](call.second)
            except BaseException as error:  # C takes none
                return reporter.report(error)

        class Callback(threading.local):
            resume: Any = staticmethod(unguarded)
            # attrgetter is C code: calling the object looks up this thread's `resume` and calls
            # it, without a bytecode at which an interrupt could be raised.
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

    def _serve(self) -> Generator[Answer | None, Any, None]:
        targets, reporter = self._targets, self._reporter
        # This thread's attributes of the callback, which is faster to write to than the callback.
        attributes = self.callback.__dict__
        own = yield None
        slots = reporter.slots
        spares, used = reporter.spares(), 0
        nested = None
        answer: Answer | None = None
        error: BaseException | None = None
        failed = 0
        # Each level catches what is raised while the one inside handles an exception, where a
        # loop's jump is an instant like any other. The first exception is the one that counts.
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
                                            answer = reporter.report(error)
                                        else:  # so near the recursion limit, say, that no text can be made
                                            answer, number = spares[used]
                                            slots[number] = error
                                            used += 1
                                        error, failed = None, 0
                                    call = yield answer
                                    answer = None
                                    if used > len(spares) // 2:
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
                            except BaseException as caught:
                                error = error or caught
                    except GeneratorExit:
                        raise
                    except BaseException as caught:
                        error = error or caught
            except GeneratorExit:
                raise
            except BaseException as caught:
                error = error or caught


_ATTEMPTS = 8


class _Interrupts:
    """A reporter that tells of exceptions elsewhere, and whose answer is always the same."""

    def __init__(self, answer: Any, interrupted: Callable[[BaseException], None]) -> None:
        self.slots: dict[int, BaseException] = {}
        self._answer = answer
        self._interrupted = interrupted

    def report(self, error: BaseException) -> Any:
        self._interrupted(error)
        return self._answer

    def spares(self) -> Sequence[tuple[Any, int]]:
        return [(self._answer, 0)]


def checkpoint(function: Callable[..., Any], interrupted: Callable[[BaseException], None]) -> Callable[..., Any]:
    """`function` as a callback of any parameters before which pending interrupts are taken.

    `interrupted` is told of them, and `function` runs all the same: it is what a guard answers when
    the callback is looked up, before ctypes has a function to call.
    """

    class Callback(threading.local):
        ready: Any = SimpleNamespace(function=function)
        __call__ = property(operator.attrgetter("ready.function"))

    callback = Callback()
    if threading.current_thread() is threading.main_thread():
        guard = Guard({0: lambda _: function}, _Interrupts(function, interrupted))
        guard.arm()
        ready = {"first": 0, "second": None, "function": property(guard.callback.resume)}
        callback.ready = type("Ready", (), ready)()
    return callback
