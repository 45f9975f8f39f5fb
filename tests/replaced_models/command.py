"""The command ``python -m tests.replaced_models``, which exports, searches and writes the table."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from exporters.errors import ExportError
from pyops._support.atomic_files import write_text
from tests.model_coverage.inputs import SIZES
from tests.operator_coverage import reasons
from tests.replaced_models import table
from tests.replaced_models.attempt import Exporter, Result, attempt, split
from tests.replaced_models.expected import expected
from tests.replaced_models.models import models

_DOCS = Path(__file__).parents[2] / "docs"


def replaced(
    names: Annotated[list[str] | None, typer.Option(help="Only models whose names match, as in 'gemma*'.")] = None,
    exporter: Annotated[list[Exporter] | None, typer.Option(help="Only these exporters.")] = None,
    opset: Annotated[list[int] | None, typer.Option(help="Only these opsets.")] = None,
    verify: Annotated[bool, typer.Option(help="Compare numbers at the places.")] = True,
    markdown: Annotated[Path, typer.Option(help="Where the table goes.")] = _DOCS / "replaced_models.md",
) -> None:
    """Export transformers, and search for the layers that their modules have.

    Numbers are compared in what `exporters.export` makes.
    """
    patterns = names or ["*"]
    chosen = {
        name: make for name, make in models().items() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }
    if not chosen:
        raise ExportError(f"no model has a name like {patterns}; choose some, as by --names 'gemma*'")
    results: dict[tuple[str, Exporter, int], Result] = {}
    failed: dict[str, str] = {}
    console = Console()
    for name, make in chosen.items():
        torch.manual_seed(0)
        try:
            model, inputs = make()
            samples = [inputs(size) for size in SIZES]
            layers = expected(model.eval().requires_grad_(False), *split(samples[0]))
        except Exception as error:  # torch or the model's own code may raise anything
            failed[name] = reasons.one_line(error)
            continue
        for own in exporter or Exporter:
            for version in opset or (18, 20, 23):
                result = attempt(model, samples, layers, own, version, verify and own is Exporter.OURS)
                results[name, own, version] = result
                console.print(name, own, version, table.line(result), markup=False, highlight=False, soft_wrap=True)
        write_text(markdown, table.as_markdown(results, failed))
