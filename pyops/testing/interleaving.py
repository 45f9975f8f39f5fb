"""Two calls of a function in two threads, one within the other: every order in which a race can show.

A race that depends on time is seen now and then. Here one call is stopped at a line, another one runs from
start to end in a thread of its own, and the first goes on; for line after line, the same each time.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# Enough for a function and what it calls; a loop's lines count when they are first and last reached.
_MOST_POINTS = 60
# Where calls take long, not all points are tried.
_MOST_SECONDS = 10.0
# A call that has not returned by then waits for the stopped one: it takes a lock.
_PATIENCE = 0.25

_INSTALLED = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
_NOT_TRACED = ("<frozen ", str(Path(__file__).parent), *_INSTALLED)


def interleaved(first: Callable[[], Any], second: Callable[[], Any]) -> Iterator[tuple[str, Any, Any]]:
    """Run `first`, stopped at one line after the other while `second` runs in another thread.

    Yields
    ------
    (str, object, object)
        The line, and what the two calls returned, or raised.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    for point in _points(first):
        place, mine, theirs = _run_once(first, second, point)
        yield place, mine, theirs
        if time.monotonic() > deadline:
            return


def _points(function: Callable[[], Any]) -> list[int]:
    """Which of the lines that a call runs are worth stopping at: each the first and the last time."""
    reached: dict[tuple[CodeType, int], list[int]] = {}
    count = 0

    def line(frame: FrameType) -> None:
        nonlocal count
        reached.setdefault((frame.f_code, frame.f_lineno), []).append(count)
        del reached[frame.f_code, frame.f_lineno][1:-1]
        count += 1

    _in_thread(function, line).join()
    points = sorted({point for both in reached.values() for point in both})
    return points[:: 1 + len(points) // _MOST_POINTS]


def _run_once(first: Callable[[], Any], second: Callable[[], Any], point: int) -> tuple[str, Any, Any]:
    others: list[_Call] = []
    place, count = "", 0

    def line(frame: FrameType) -> None:
        nonlocal place, count
        if count == point:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            others.append(_in_thread(second, None))
            others[0].join(_PATIENCE)
        count += 1

    call = _in_thread(first, line)
    call.join()
    if not others:  # it took another way this time
        others.append(_in_thread(second, None))
    others[0].join()
    return place, call.result, others[0].result


class _Call(threading.Thread):
    """A call of a function, with another that is told of each line it runs."""

    def __init__(self, function: Callable[[], Any], line: Callable[[FrameType], None] | None) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._line = line
        self.result: Any = None

    def run(self) -> None:
        if self._line is not None:
            sys.settrace(self._trace_call)
        try:
            self.result = self._function()
        except Exception as error:
            self.result = error
        finally:
            sys.settrace(None)

    def _trace_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        return None if path.startswith(_NOT_TRACED) else self._trace_line

    def _trace_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self._line is not None:
            self._line(frame)
        return self._trace_line


def _in_thread(function: Callable[[], Any], line: Callable[[FrameType], None] | None) -> _Call:
    call = _Call(function, line)
    call.start()
    return call
