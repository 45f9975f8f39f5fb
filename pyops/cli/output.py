"""How commands print: tables for people, JSON for programs, and progress on stderr."""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from typing import Any, NoReturn, ParamSpec, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import InputError, PyopsError
from ..tables import printable
from ..tracebacks import has_others, shortened

P = ParamSpec("P")

FAILED = 1
"""The exit code where something is broken or fails; wrong usage is typer's 2."""

_WIDE = 10_000

_json_to: ContextVar[TextIO] = ContextVar("_json_to")


def console() -> Console:
    """What goes to stdout; where that is no terminal, lines are as long as they need to be."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=_WIDE)


def progress_console() -> Console:
    """What shows progress, and nothing where stderr is no terminal."""
    made = Console(stderr=True)
    made.quiet = not made.is_terminal
    return made


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Rows in columns; the first one is the header."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for cell in rows[0]:
        table.add_column(printable(cell), overflow="fold")
    for row in rows[1:]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def print_lines(lines: Sequence[str]) -> None:
    """One line each."""
    for line in lines:
        console().print(Text(printable(line)), soft_wrap=True)


def print_json(data: Any) -> None:
    """Data for programs."""
    print(json.dumps(data, indent=2, default=str), file=_json_to.get(sys.stdout))


@contextmanager
def _json_alone() -> Iterator[None]:
    """Within it, stdout is for `print_json`; what modules and kernels print goes to stderr."""
    token = _json_to.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _json_to.reset(token)


def fail(message: str) -> NoReturn:
    """End the command with a message on stderr.

    Raises
    ------
    typer.Exit
        Always.
    """
    typer.echo(printable(f"error: {message}"), err=True)
    raise typer.Exit(FAILED)


def reporting_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A command in which what pyops says is wrong is a message, and what a kernel raises a short traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _json_alone() if kwargs.get("as_json") else nullcontext():
                command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except InputError as error:
            raise typer.BadParameter(str(error)) from error
        except (Exception, SystemExit) as error:  # a module or a kernel may want to end the process
            message = _spell(error)
        else:
            return
        fail(message)

    return run


def _spell(error: BaseException) -> str:
    if isinstance(error, PyopsError):
        return str(error)
    if not has_others(error.__traceback__):
        return "".join(traceback.format_exception_only(error)).rstrip()
    with shortened(error):
        return "".join(traceback.format_exception(error)).rstrip()
