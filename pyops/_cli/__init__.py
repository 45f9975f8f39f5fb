"""The command line: ``pyops``, or ``python -m pyops``.

Each module has the commands of one subject; this one gives them their names. `exporters` is imported only
inside functions.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from ..errors import MissingDependencyError
from . import commands, doctor, output, replace_command
from .output import answering


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
app.command("list")(commands.list_ops)
app.command("inspect")(commands.inspect_model)
app.command("run")(commands.run_model)
app.command("compare")(commands.compare_models)
app.command("replace")(replace_command.replace_nodes)
app.command("check")(commands.check_op)
app.command("bench")(commands.bench)
app.command("build")(commands.build_library)
app.command("doctor")(doctor.report)
app.command("demo")(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """ONNX Runtime operators written as one Python function."""
