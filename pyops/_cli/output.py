"""How commands print: tables for people, JSON for programs, and progress on stderr."""

from __future__ import annotations

import errno
import functools
import json
import os
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
from .._tables import Part, filled, printable, text_table
from ..errors import InputError, PyopsError


def _made(folder: Path | None) -> Path | None:
    """A folder for results, made before anything is computed."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"the folder cannot be made: {error}") from error
    return folder


class EngineName(StrEnum):
    """What `pyops.InferenceSession` takes as `engine`."""

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
Plugins = Annotated[bool, typer.Option("--plugins", help="Import installed plug-ins, and not only list them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Inputs = Annotated[
    list[str],
    typer.Option("--input", "-x", metavar="NAME=ARRAY", help="A file (x=a.npy), or random values (x=float32[2,3])."),
]
Attributes = Annotated[
    list[str], typer.Option("--attribute", "-a", metavar="NAME=VALUE", help="An attribute of the op.")
]
Checks = Annotated[
    list[str], typer.Option("--only", metavar="CHECK", help="Run these checks alone: names, or patterns (engine_*).")
]
Generate = Annotated[int, typer.Option(min=0, metavar="N", help="Check N more calls that hypothesis makes up.")]
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
"""The exit code where something is broken or fails; wrong usage is typer's 2."""

_WIDE = 10_000


def console() -> Console:
    """What goes to stdout; where that is no terminal, lines are as long as they need to be."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=_WIDE)


def progress_console() -> Console:
    """What shows progress, and nothing where stderr is no terminal."""
    made = Console(stderr=True)
    made.quiet = not made.is_terminal
    return made


@dataclass(frozen=True)
class Answer:
    """What a command found.

    Attributes
    ----------
    parts : sequence of Part
        For people.
    data : object
        For programs, as JSON.
    ok : bool
        Whether nothing is broken; it decides the exit code.
    """

    parts: Sequence[Part]
    data: Any
    ok: bool = True

    def print(self) -> None:
        """For people: what is longer than a line of the terminal is folded."""
        for part in filled(self.parts):
            if isinstance(part, str):
                console().print(Text(printable(in_options(part))), soft_wrap=True)
                continue
            if not console().is_terminal:  # Rich would fill every line
                print(in_options(text_table(part)))
                continue
            table = Table(box=None, pad_edge=False, header_style="bold")
            for cell in part[0]:
                table.add_column(printable(cell), overflow="fold")
            for row in part[1:]:
                table.add_row(*(Text(printable(cell)) for cell in row))
            console().print(table)


def in_options(message: str) -> str:
    """A message with what to type at a command line in the place of what to write in Python."""
    return message.replace(IMPORT_IT, "--import MODULE imports the module that declares it")


def answering(command: Callable[P, Answer | None]) -> Callable[P, None]:
    """A command that prints its answer; what pyops says is wrong is a message, what a kernel raises a short traceback.

    Where JSON is asked for, stdout is for the answer alone, and what modules and kernels print goes to stderr.
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
        except (Exception, SystemExit) as error:  # a module or a kernel may want to end the process
            message = _spell(error)
        else:
            if answer is None:
                return
            try:
                print(json.dumps(answer.data, indent=2, default=str)) if as_json else answer.print()
                print(end="", flush=True)
            except OSError as error:
                if error.errno == errno.EPIPE:  # who read has gone, and typer ends the command
                    raise
                message = f"the answer cannot be written to stdout: {error}"
                # What is left of it would be written at exit, and fail.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            else:
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
