"""Progress is shown on a terminal, after two seconds, and leaves nothing behind."""

import io
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from pyops._support import progress as _progress
from pyops._support.progress import progress, step, track

pytest.importorskip("rich")


class Terminal(io.StringIO):
    """What stands for stderr."""

    def isatty(self) -> bool:
        return True

    def waits_for(self, text: str) -> None:
        """Wait until the text is written."""
        deadline = time.monotonic() + 30
        while text not in self.getvalue():
            assert time.monotonic() < deadline, self.getvalue()
            time.sleep(0.01)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(_progress, "DELAY", 0.01)
    return Terminal()


@contextmanager
def shown(terminal: Terminal, what: str) -> Iterator[None]:
    """Progress on that terminal; pytest replaces sys.stderr after fixtures."""
    with redirect_stderr(terminal), progress(what):
        yield


def test_it_says_what_is_done_and_how_far_it_is(terminal: Terminal) -> None:
    with shown(terminal, "exporting"):
        terminal.waits_for("exporting (")
        step("translating [calls]", 2, 5)
        terminal.waits_for("translating [calls]: 2 of 5 (")
    assert terminal.getvalue().endswith("\x1b[2K")  # erases the line
    assert terminal.getvalue().count("\n") == terminal.getvalue().count("\x1b[1A")


def test_a_block_within_has_the_same_line(terminal: Terminal) -> None:
    with shown(terminal, "exporting"):
        for _ in track(range(1), "checking"):
            step("capturing")  # is a part of checking
            with progress("verifying"):
                terminal.waits_for("checking: 0 of 1 (")
        step("finishing")
        terminal.waits_for("finishing (")
    assert terminal.getvalue().count("\x1b[?25l") == 1  # the cursor is hidden once
    assert not any(hidden in terminal.getvalue() for hidden in ("capturing", "verifying"))


def test_what_is_done_soon_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "DELAY", 30)
    with shown(terminal, "exporting"):
        step("translating")
    assert list(track([1, 2], "of no block")) == [1, 2]
    assert not terminal.getvalue()


def test_lines_of_text_are_written_where_nobody_watches(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # of another test
    with redirect_stderr(terminal), progress("checking", piped=True):
        terminal.waits_for("checking (")
        for item in track(["this", "that"], "checking it", named=True):
            with redirect_stderr(None), progress("exporting"):
                terminal.waits_for(f"checking it, {item}: ")
    lines = terminal.getvalue().splitlines()
    assert [line.rpartition(" (")[0] for line in lines] == [
        "checking",
        *(f"checking it, {item}: {done} of 2" for done, item in enumerate(["this", "that"])),
    ]


def test_a_stream_that_cannot_be_written_to_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "DELAY", 0.01)
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        with redirect_stderr(stream), progress("checking", piped=True):
            time.sleep(0.1)


def test_an_error_removes_the_line_too(terminal: Terminal) -> None:
    def interrupted() -> None:
        with shown(terminal, "exporting"):
            terminal.waits_for("exporting")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize("missing", ["terminal", "rich", "ipywidgets"])
def test_nothing_is_shown_where_nothing_can_be(
    missing: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rich.console

    if missing == "terminal":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    elif missing == "rich":
        monkeypatch.setitem(sys.modules, "rich.live", None)
    else:  # of a notebook
        monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
        monkeypatch.setattr(_progress.importlib.util, "find_spec", lambda name: None)
    with warnings.catch_warnings(action="error"), shown(terminal, "exporting"):
        time.sleep(0.2)
    assert not terminal.getvalue()
