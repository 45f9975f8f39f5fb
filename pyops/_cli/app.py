"""The application, with all commands by name, and the commands ``doctor`` and ``demo``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from .. import __version__
from ..errors import MissingDependencyError
from . import models, ops, output
from .doctor import State, diagnose, examine
from .output import Answer, answering, progress_console


@answering
def doctor(as_json: output.Json = False) -> Answer:
    """Report what is installed, which engines work or why not, and how to fix what is broken.

    Each component is tried in a process of its own, including exporters and installed plug-ins. The exit code is 1 if
    something is broken.
    """
    with progress_console().status("trying what is installed"):
        findings = diagnose(examine())
    broken = sum(item.state is State.BROKEN for item in findings)
    rows = [(item.what, item.state, item.found) for item in findings]
    fixes = [f"{item.what}: {item.fix}" for item in findings if item.fix and item.state is not State.OK]
    verdict = f"{broken} broken" if broken else "nothing is broken"
    parts = [[("", "state", "found"), *rows], "", *fixes, verdict]
    return Answer(parts, {"ok": not broken, "findings": list(map(asdict, findings))}, ok=not broken)


@answering
def demo(out: output.Out = None) -> None:
    """Declare an op, train, export and run a model, and compare the results on real data."""
    try:
        from exporters import _demo
    except ImportError as error:
        raise MissingDependencyError(
            f'the demo needs {error.name}, which is not installed: pip install "onnx-pyops[demo]"'
        ) from error
    _demo.run(out)


app = typer.Typer(
    name="pyops",
    help="ONNX Runtime operators written as one Python function.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(ops.list_ops)
app.command("inspect")(models.inspect_model)
app.command("run")(models.run_model)
app.command("check")(ops.check_op)
app.command("bench")(ops.bench)
app.command("doctor")(doctor)
app.command("demo")(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """ONNX Runtime operators written as one Python function."""
