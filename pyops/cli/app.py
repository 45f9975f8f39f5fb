"""The commands, by their names."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import machine, models, ops

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
app.command("doctor")(machine.doctor)
app.command("demo")(machine.demo)


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
