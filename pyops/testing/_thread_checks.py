"""The check of a kernel that several threads call at once."""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

from .._core import run_kernel
from .._machine.compiled.compiled_kernel import CompiledKernel
from .._tolerances import Outputs
from . import _variations
from ._case import Case, NotRun, check_after, copies, format_error, quiet

# The time for all lines of a slow kernel.
_MOST_SECONDS = 10.0
# The second call gets this long. If it has not returned by then, it waits for a lock that the stopped call holds.
_PATIENCE = 0.25

_INSTALLED = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
_OWN = [str(path) for path in Path(__file__).parents[1].iterdir() if path.name != "kernels"]
_NOT_TRACED = ("<frozen ", *_OWN, *_INSTALLED)


def interleaved(first: Callable[[], Any], second: Callable[[], Any]) -> Iterator[tuple[str, Any, Any]]:
    """Run `first` repeatedly, stop it at another line each time, and run `second` in another thread meanwhile.

    In a loop, a call is stopped the first time that a line runs.

    Yields
    ------
    (str, object, object)
        The line, and what each of the two calls returned or raised.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    seen: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        while time.monotonic() < deadline:
            others: list[Future[Any]] = []
            stop = functools.partial(_stop_at_new_line, seen, others, functools.partial(pool.submit, second))
            mine = _outcome(pool.submit(_traced, first, stop))
            if not others:
                return
            yield seen[-1], mine, _outcome(others[0])


def _stop_at_new_line(
    seen: list[str], others: list[Future[Any]], start_other: Callable[[], Future[Any]], frame: FrameType
) -> None:
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if not others and place not in seen:
        seen.append(place)
        others.append(start_other())
        wait(others, _PATIENCE)


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


def _plain(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return kernel.plain if isinstance(kernel, CompiledKernel) else kernel


@check_after("repeatable", "outputs_owned")
def thread_safe(case: Case) -> str:
    """Check that a call returns the same when another thread calls the kernel in between, at any line."""

    def call(given: Sequence[Any]) -> Outputs:
        # Copied, because the other call may write to what the kernel returned.
        return Outputs(deepcopy(run_kernel(case.op, given, case.attributes, state=case.states, wrap=_plain)))

    arrays = case.arrays, copies(_variations.mixed(case.arrays))
    with quiet():
        first = call(arrays[0])
        try:
            expected = first, call(arrays[1])
        except Exception:  # a kernel may reject its inputs with any exception
            arrays, expected = (case.arrays, case.arrays), (first, first)

    function = inspect.unwrap(_plain(case.function))
    count, source = 0, getattr(getattr(function, "__code__", None), "co_filename", "")
    with quiet():
        for place, *results in interleaved(lambda: call(arrays[0]), lambda: call(arrays[1])):
            for result, wanted in zip(results, expected, strict=True):
                if isinstance(result, Exception):
                    raise AssertionError(
                        f"the kernel raises {format_error(result)} when another thread's call runs at {place}"
                    ) from result
                case.compare(result, wanted, f"when another thread's call runs at {place}")
            # Python generates the code of NamedTuples and dataclasses in "<string>".
            count += source == "<string>" or not place.startswith("<string>:")
    if not count:
        raise NotRun("no line of the kernel can be stopped at: its code is in an installed package, or not in Python")
    return f"at {count} line{'s' * (count > 1)}"
