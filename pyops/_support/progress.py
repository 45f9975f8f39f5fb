"""Progress of long operations: in a terminal or in a notebook, if rich is installed, and otherwise as lines of text."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

DELAY = 2.0
"""Seconds before anything is shown."""


@contextmanager
def progress(what: str, piped: bool = False) -> Iterator[None]:
    """Show on stderr what the block does, after two seconds and until it ends.

    Blocks within it share its line.

    Parameters
    ----------
    piped : bool
        Whether to write lines of text where stderr is neither a terminal nor a notebook's.
    """
    if _line.get() is not None or not (is_watched() or piped):
        step(what)
        yield
        return
    line = _Line(what)
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)
        line.remove()


def step(what: str, done: int = 0, total: int = 0) -> None:
    """Show in the current `progress` what is done now, and how much of it is done already."""
    line = _line.get()
    if line is not None and not line.tracking:
        line.doing = f"{what}: {done} of {total}" if total else what


def track(items: Sequence[T], what: str, named: bool = False) -> Iterator[T]:
    """Yield the items, and show in the current `progress` how many are done, but not the steps within one.

    Parameters
    ----------
    named : bool
        Whether to show which item is next, too.
    """
    line = _line.get()
    for done, item in enumerate(items):
        step(f"{what}, {item}" if named else what, done, len(items))
        if line is not None:
            line.tracking = True
        yield item
        if line is not None:
            line.tracking = False


def is_watched() -> bool:
    """Return whether stderr is a terminal or a notebook's."""
    try:
        return sys.stderr.isatty() or "ipykernel" in sys.modules
    except (AttributeError, ValueError):  # None, an object that only writes, or closed
        return False


class _Line:
    """A line on stderr that another thread draws, because a long operation may not return for minutes."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.tracking = False
        self._began = time.monotonic()
        self._live: Any = None
        self._stream = sys.stderr  # which the block may replace
        # In a notebook the context says to which cell the line belongs.
        self._timer = threading.Timer(DELAY, copy_context().run, [self._draw])
        self._timer.daemon = True
        self._timer.start()

    def _draw(self) -> None:
        if not is_watched():
            self._write()
            return
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError:
            return
        console = Console(stderr=True)
        # In a notebook without ipywidgets, rich would warn in place of the line.
        if console.is_interactive or (console.is_jupyter and importlib.util.find_spec("ipywidgets")):
            # sys.stdout and sys.stderr stay: the block may replace them meanwhile, and restore what it found.
            self._live = Live(self, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._live.start()

    def _write(self) -> None:
        written = ""
        while not self._timer.finished.is_set():
            if self.doing != written:
                written = self.doing
                with suppress(AttributeError, OSError, ValueError):  # as in `is_watched`, or nobody reads it any more
                    self._stream.write(f"{self}\n")
                    self._stream.flush()
            self._timer.finished.wait(DELAY)

    def __str__(self) -> str:
        return f"{self.doing} ({time.monotonic() - self._began:.0f} s)"

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(str(self), no_wrap=True, overflow="ellipsis")

    def remove(self) -> None:
        """Remove the line."""
        self._timer.cancel()
        self._timer.join()
        if self._live is not None:
            self._live.stop()


_line: ContextVar[_Line | None] = ContextVar("_line", default=None)
