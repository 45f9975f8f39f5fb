"""The command ``python -m tests.model_coverage``, which runs or resumes the exports and writes the table."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from exporters.errors import ExportError
from pyops._support.atomic_files import write_text
from tests.model_coverage import table
from tests.model_coverage.model import load
from tests.model_coverage.pool import attempts
from tests.model_coverage.results import Exporter, Results

_DOCS = Path(__file__).parents[2] / "docs"


def models(
    names: Annotated[str, typer.Option(help="Only models whose names match, as in 'bert*'.")] = "*",
    family: Annotated[str, typer.Option(help="Only families whose names match.")] = "*",
    again: Annotated[bool, typer.Option("--again", help="Export those too that have a result.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one export, with its run.")] = 240,
    memory: Annotated[float, typer.Option(min=0.1, help="GB of address space for one export.")] = 12,
    json: Annotated[Path, typer.Option(help="Where the results are, and go.")] = _DOCS / "models.json",
    markdown: Annotated[Path, typer.Option(help="Where the table goes.")] = _DOCS / "models.md",
) -> None:
    """Export models of PyPI packages, run them in ONNX Runtime and compare the results with torch's.

    Models that have results are left out, so that an interrupted run continues. The table includes every result in
    the file.
    """
    known = load()
    chosen = [
        item for item in known.values() if fnmatch.filter([item.name], names) and fnmatch.filter([item.family], family)
    ]
    if not chosen:
        raise ExportError(
            f"no model has a name like {names!r} in a family like {family!r}; choose some, as by --names 'bert*'"
        )
    results = Results.resume(json)
    left = [
        (item.name, exporter)
        for item in chosen
        for exporter in Exporter
        if again or not results.get(item.name, exporter)
    ]
    console = Console(stderr=True)
    for (name, exporter), result in track(
        attempts(left, timeout, memory), "exporting", len(left), console=console, disable=not console.is_terminal
    ):
        results.add(known[name], exporter, result)
        Console().print(name, exporter, result.status, result.reason, markup=False, highlight=False, soft_wrap=True)
    write_text(markdown, table.as_markdown(known, results))
    Console().print(table.summary(known, results), markup=False, highlight=False, soft_wrap=True)
