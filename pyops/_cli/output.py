"""Output of commands: tables for people, JSON for programs, and progress on stderr."""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._display.tracebacks import has_others, shortened
from .._models.resolution import IMPORT_IT
from .._tables import Part, printable, text_table, without_empty_tables
from ..errors import InputError, PyopsError


def _made(folder: Path | None) -> Path | None:
    """Create a folder for results before anything is computed, and return it."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"cannot create the folder: {error}") from error
    return folder


class EngineName(StrEnum):
    """The values of `pyops.InferenceSession`'s `engine` parameter."""

    AUTO = "auto"
    NATIVE = "native"
    EXTENSIONS = "extensions"


Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The ONNX model.", exists=True, dir_okay=False, readable=True)
]
OpName = Annotated[str, typer.Argument(metavar="OP", help="module:op, file.py:op or domain::Name.")]
Benched = Annotated[
    str, typer.Argument(metavar="OP|MODEL", help="module:op, file.py:op or domain::Name; or a file model.onnx.")
]
Modules = Annotated[
    list[str],
    typer.Option("--import", "-i", metavar="MODULE", help="Import a module or file that declares ops."),
]
Plugins = Annotated[bool, typer.Option("--plugins", help="Import installed plug-ins rather than only list them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Inputs = Annotated[
    list[str],
    typer.Option("--input", "-x", metavar="NAME=ARRAY", help="A file (x=a.npy), or random values (x=float32[2,3])."),
]
Attributes = Annotated[
    list[str], typer.Option("--attribute", "-a", metavar="NAME=VALUE", help="An attribute of the op.")
]
Checks = Annotated[
    list[str], typer.Option("--only", metavar="CHECK", help="Run only these checks: names, or patterns (engine_*).")
]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="DIR", callback=_made, help="Save each output there as a .npy file.")
]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", callback=_made, help="Keep the exported model in this folder.")
]
Engine = Annotated[EngineName, typer.Option(help="How ONNX Runtime calls the ops.")]
Providers = Annotated[
    list[str], typer.Option("--provider", metavar="NAME", help="An execution provider; several are tried in turn.")
]


P = ParamSpec("P")

FAILED = 1
"""The exit code if something is broken or fails; typer exits with 2 on wrong usage."""


def progress_console() -> Console:
    """Return a console on stderr for progress; it prints nothing if stderr is not a terminal."""
    made = Console(stderr=True)
    made.quiet = not made.is_terminal
    return made


@dataclass(frozen=True)
class Answer:
    """The result of a command.

    Attributes
    ----------
    parts : sequence of Part
        The text and tables to print.
    data : object
        The same for ``--json``.
    ok : bool
        Whether nothing is broken; False makes the exit code 1.
    """

    parts: Sequence[Part]
    data: Any
    ok: bool = True

    def print(self) -> None:
        """Print the parts as text and tables; those on a terminal are folded to its width."""
        console = Console(highlight=False)
        for part in without_empty_tables(self.parts):
            if isinstance(part, str):
                print(printable(in_options(part)))
            elif not console.is_terminal:  # Rich would fill every line
                print(in_options(text_table(part)))
            else:
                table = Table(box=None, pad_edge=False, header_style="bold")
                for cell in part[0]:
                    table.add_column(printable(cell), overflow="fold")
                for row in part[1:]:
                    table.add_row(*(Text(printable(cell)) for cell in row))
                console.print(table)


def in_options(message: str) -> str:
    """Replace what to write in Python with what to type on the command line, in a message."""
    return message.replace(IMPORT_IT, "--import MODULE imports the module that declares it")


def answering(command: Callable[P, Answer | None]) -> Callable[P, None]:
    """Decorate a command so that the answer it returns is printed.

    Errors of pyops are printed as messages, exceptions of kernels with a short traceback. With JSON, stdout is reserved
    for the answer, and what modules and kernels print goes to stderr.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json = bool(kwargs.get("as_json"))
        try:
            with redirect_stdout(sys.stderr) if as_json else nullcontext():
                answer = command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except InputError as error:
            raise typer.BadParameter(str(error)) from error
        except (Exception, SystemExit) as error:  # a module or a kernel may call sys.exit
            message = _spell(error)
        else:
            if answer is not None:
                print(json.dumps(answer.data, indent=2, default=str)) if as_json else answer.print()
                print(end="", flush=True)
                if not answer.ok:
                    raise typer.Exit(FAILED)
            return
        typer.echo(printable(f"error: {message}"), err=True)
        raise typer.Exit(FAILED)

    return run


def _spell(error: BaseException) -> str:
    if isinstance(error, PyopsError):
        return in_options(str(error))
    if not has_others(error.__traceback__):
        return "".join(traceback.format_exception_only(error)).rstrip()
    with shortened(error):
        return "".join(traceback.format_exception(error)).rstrip()
