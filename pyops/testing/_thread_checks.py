"""The check of a kernel that several threads call at once."""

from __future__ import annotations

import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from copy import deepcopy
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .._compiled.kernel import CompiledKernel
from . import _variations
from ._case import Case, NotRun, copies, quiet, spell_error, views
from ._outputs import Outputs

# The lines at which a call is stopped, at most. In a loop, the first and the last time a line runs count.
_MOST_POINTS = 60
# The time for all of them; slow kernels are stopped at fewer lines.
_MOST_SECONDS = 10.0
# The second call gets this long. If it has not returned by then, it waits for a lock that the stopped call holds.
_PATIENCE = 0.25

_INSTALLED = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
_NOT_TRACED = ("<frozen ", str(Path(__file__).parent), *_INSTALLED)


def interleaved(first: Callable[[], Any], second: Callable[[], Any]) -> Iterator[tuple[str, Any, Any]]:
    """Run `first` repeatedly, stop it at another line each time, and run `second` in another thread meanwhile.

    Yields
    ------
    (str, object, object)
        The line, and what each of the two calls returned or raised.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    with ThreadPoolExecutor(2) as pool:
        for point in _points(pool, first):
            yield _run_once(pool, first, second, point)
            if time.monotonic() > deadline:
                return


def _points(pool: Executor, function: Callable[[], Any]) -> list[int]:
    """Return when to stop a call, counted in lines run: the first and the last time it runs each line."""
    reached: dict[tuple[CodeType, int], list[int]] = {}
    count = 0

    def line(frame: FrameType) -> None:
        nonlocal count
        reached.setdefault((frame.f_code, frame.f_lineno), []).append(count)
        del reached[frame.f_code, frame.f_lineno][1:-1]
        count += 1

    wait([pool.submit(_traced, function, line)])
    points = sorted({point for both in reached.values() for point in both})
    return points[:: 1 + len(points) // _MOST_POINTS]


def _run_once(pool: Executor, first: Callable[[], Any], second: Callable[[], Any], point: int) -> tuple[str, Any, Any]:
    others: list[Future[Any]] = []
    place, count = "", 0

    def line(frame: FrameType) -> None:
        nonlocal place, count
        if count == point:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            others.append(pool.submit(second))
            wait(others, _PATIENCE)
        count += 1

    mine = _outcome(pool.submit(_traced, first, line))
    if not others:  # this run took another branch and ended before the point
        others.append(pool.submit(second))
    return place, mine, _outcome(others[0])


def _outcome(call: Future[Any]) -> Any:
    return call.exception() or call.result()


def _traced(function: Callable[[], Any], line: Callable[[FrameType], None]) -> Any:
    """Call a function, and call `line` with the frame before each of its lines runs."""

    def trace_call(frame: FrameType, event: str, argument: Any) -> Any:
        return None if frame.f_code.co_filename.startswith(_NOT_TRACED) else trace_line

    def trace_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            line(frame)
        return trace_line

    sys.settrace(trace_call)
    try:
        return function()
    finally:
        sys.settrace(None)


def thread_safe(case: Case) -> str:
    """Check that a call returns the same when another thread calls the kernel in between, at any line."""
    function = case.function
    if isinstance(function, CompiledKernel):
        function = function.plain
    attributes = case.attributes

    def call(given: Sequence[Any]) -> Any:
        own = {name: list(value) if isinstance(value, list) else value for name, value in attributes.items()}
        # Copied, because the other call may write to what the kernel returned.
        return deepcopy(function(*views(given), **own))

    def alone(given: Sequence[Any]) -> Outputs:
        with quiet():
            return case.validated(call(given), given)

    arrays = case.arrays, copies(_variations.mixed(case.arrays))
    first = alone(arrays[0])
    try:
        expected = first, alone(arrays[1])
    except Exception:  # a kernel may reject its inputs with any exception
        arrays, expected = (case.arrays, case.arrays), (first, first)

    count = 0
    with quiet():
        for place, *results in interleaved(lambda: call(arrays[0]), lambda: call(arrays[1])):
            for result, inputs, wanted in zip(results, arrays, expected, strict=True):
                if isinstance(result, Exception):
                    raise AssertionError(
                        f"the kernel raises {spell_error(result)} when another thread's call runs at {place}"
                    ) from result
                case.compare(case.validated(result, inputs), wanted, f"when another thread's call runs at {place}")
            count += 1
    if not count:
        raise NotRun("no line of the kernel can be stopped at: its code is in an installed package, or not in Python")
    return f"at {count} lines"
