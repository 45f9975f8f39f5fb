"""The command line: ``pyops``, or ``python -m pyops``.

Each module has the commands of one subject; this one gives them their names. `exporters` is imported only
inside functions.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.core

from .. import __version__
from ..errors import MissingDependencyError
from . import build, commands, doctor, output
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


class _Plain:
    def get_params(self, ctx: Any) -> list[Any]:
        """Keep typer from showing flags as ``--json <bool>``: they take no value."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # this class comes before typer's
        for flag in found:
            flag.metavar = "" if getattr(flag, "is_flag", False) else flag.metavar
        return found


class _Command(_Plain, typer.core.TyperCommand): ...


class _Commands(_Plain, typer.core.TyperGroup): ...


app = typer.Typer(
    name="pyops",
    cls=_Commands,
    help="ONNX Runtime operators written as one Python function.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list", cls=_Command)(commands.list_ops)
app.command("inspect", cls=_Command)(commands.inspect_model)
app.command("run", cls=_Command)(commands.run_model)
app.command("check", cls=_Command)(commands.check_op)
app.command("bench", cls=_Command)(commands.bench)
app.command("build", cls=_Command)(build.build_library)
app.command("doctor", cls=_Command)(doctor.report)
app.command("demo", cls=_Command)(demo)


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
