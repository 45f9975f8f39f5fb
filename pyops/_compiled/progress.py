"""Progress messages about compilation, which takes seconds."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_logger = logging.getLogger("pyops")


class _Step:
    """A step that may have to compile something, and reports when compilation begins and ends."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started: float | None = None

    def begin(self) -> None:
        if self._started is None:
            self._started = time.perf_counter()
            self._show(f"compiling {self._what} ... ")

    def end(self, outcome: str) -> None:
        if self._started is not None:
            outcome = outcome or f"{time.perf_counter() - self._started:.1f} s"
            self._show(f"{outcome}\n")
            _logger.info("compiled %s: %s", self._what, outcome)

    def _show(self, text: str) -> None:
        # Printed in a terminal or notebook only; elsewhere only the log has it.
        if sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            print(text, end="", file=sys.stderr, flush=True)


class _Current(threading.local):
    step: _Step | None = None


_current = _Current()


@contextmanager
def step(what: str) -> Iterator[None]:
    """Context manager: report compilation as `what`; nested steps are part of the outer one."""
    if _current.step is not None:
        yield
        return
    _current.step = started = _Step(what)
    outcome = "failed"
    try:
        yield
        outcome = ""
    finally:
        _current.step = None
        started.end(outcome)


def begin() -> None:
    """Report that the current step begins to compile."""
    if _current.step is not None:
        _current.step.begin()
