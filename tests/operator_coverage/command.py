"""The command ``python -m tests.operator_coverage``, which runs or resumes the calls and writes the tables."""

from __future__ import annotations

import fnmatch
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from exporters.errors import ExportError
from pyops._support.atomic_files import write_text
from tests.operator_coverage import table
from tests.operator_coverage.plan import Mode, Plan
from tests.operator_coverage.pool import attempts
from tests.operator_coverage.results import ResultFile, Status
from tests.operator_coverage.samples import Database


def coverage(
    mode: Annotated[Mode, typer.Option(help="How to export.")] = Mode.PLAIN,
    dtype: Annotated[
        str, typer.Option(help="Of the samples. (float32, or what an operator has that lacks it unless given)")
    ] = "",
    samples: Annotated[int, typer.Option(min=1, help="How many for each operator.")] = 1,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Export with every dimension dynamic, and run at another size.")
    ] = False,
    ops: Annotated[str, typer.Option(help="Only operators whose names match, as in 'linalg.*'.")] = "*",
    database: Annotated[str, typer.Option(help="module:name of a list of OpInfo objects. (torch's unless given)")] = "",
    results: Annotated[
        Path, typer.Option(help="Folder of the results. A run that was stopped goes on from there.")
    ] = Path("export-coverage"),  # not "coverage", which numba would import
    workers: Annotated[int, typer.Option(min=1, help="How many processes.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one sample.")] = 120,
    markdown: Annotated[Path | None, typer.Option(help="Where the table goes. (coverage.md in that folder)")] = None,
    json: Annotated[Path | None, typer.Option(help="Where the table goes. (coverage.json in that folder)")] = None,
) -> None:
    """Export torch's sample calls, one by one, run them in ONNX Runtime and compare the results with torch's.

    The tables include every complete run in the folder.
    """
    plan = Plan(mode, dtype, samples, dynamic, ops, database)
    names = fnmatch.filter(Database(database).names(dtype), ops)
    if not names:
        which = f" and samples of {dtype}" if dtype else ""
        raise ExportError(f"no operator has a name like {ops!r}{which}; choose some, as by --ops 'linalg.*'")
    calls = [(name, index) for name in names for index in range(samples)]
    file = ResultFile.resume(results / f"{plan.name}.jsonl", plan, len(calls))
    _run(file, calls, workers, timeout)
    files = [ResultFile.read(path) for path in sorted(results.glob("*.jsonl"))]
    complete = [item for item in files if item.complete]
    write_text(json or results / "coverage.json", table.as_json(complete))
    write_text(markdown or results / "coverage.md", table.as_markdown(complete))
    Console().print(table.summary([file]), markup=False, highlight=False, soft_wrap=True)


def _run(file: ResultFile, calls: list[tuple[str, int]], workers: int, timeout: float) -> None:
    left = [call for call in calls if call not in file]
    counts = Counter(result.status for result in file)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(_counted(counts), total=len(calls), completed=len(file))
        for result in attempts(file.plan, left, workers, timeout):
            file.add(result)
            counts[result.status] += 1
            progress.update(task, advance=1, description=_counted(counts))


def _counted(counts: Counter[Status]) -> str:
    return f"{counts[Status.REPRODUCED]} {Status.REPRODUCED}, {counts[Status.FAILED]} {Status.FAILED}"
