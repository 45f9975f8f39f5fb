"""The command ``build``: compiled kernels as a library."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import onnx
import typer

from .._ops.op import Op
from . import output
from .arguments import find_op, import_module
from .output import Answer, answering


@answering
def build_library(
    module: Annotated[str, typer.Argument(metavar="MODULE|FILE", help="A module or file that declares ops.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="LIB", help="The library to write.")],
    names: Annotated[list[str], typer.Option("--op", metavar="OP", help="Only this op, domain::Name.")] = [],  # noqa: B006
    models: Annotated[
        list[Path],
        typer.Option(
            "--for", metavar="MODEL", help="Build the ops of this model, for its types and attributes.", exists=True
        ),
    ] = [],  # noqa: B006
    ranks: Annotated[
        list[str], typer.Option(metavar="N|N,M", help="A rank of all inputs, or one for each; may be given again.")
    ] = [],  # noqa: B006
    target: Annotated[
        str | None, typer.Option(help="linux-x86-64, linux-aarch64, ...; by default this machine.")
    ] = None,
    cpu: Annotated[str | None, typer.Option(help="native, or the least that the library requires: x86-64-v3.")] = None,
    linker: Annotated[str | None, typer.Option(help="cc or zig.")] = None,
    skip_unsupported: Annotated[bool, typer.Option(metavar="", help="Leave out ops that cannot be built.")] = False,
    as_json: output.Json = False,
) -> Answer:
    """Build a custom-op library from ops with compiled kernels; ONNX Runtime loads it without Python."""
    declared = [value for value in import_module(module).values() if isinstance(value, Op)]
    ops = [find_op(name) for name in names] or list(dict.fromkeys(declared))
    from .._build.build import build
    from .._build.examples import of_model

    examples = [example for model in models for example in of_model(onnx.load(model), ops)]
    report = build(
        out,
        list(dict.fromkeys(example.op for example in examples)) if models else ops,
        examples=examples,
        ranks=[_rank(text) for text in ranks] or None,
        target=target,
        cpu=cpu,
        linker=linker,  # type: ignore[arg-type]  # an unknown one is reported there
        skip_unsupported=skip_unsupported,
    )
    return Answer(report.parts(), dataclasses.asdict(report))


def _rank(text: str) -> int | tuple[int, ...]:
    try:
        ranks = tuple(map(int, text.split(",")))
    except ValueError:
        raise typer.BadParameter(f"expected a rank or one for each input (2 or 3,1), got {text!r}") from None
    return ranks if "," in text else ranks[0]
