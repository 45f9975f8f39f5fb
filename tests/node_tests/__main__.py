"""The command ``python -m tests.node_tests``, which runs ONNX's node tests and writes the page with the table."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import onnxruntime
from pebble import ProcessExpired, ProcessPool

from pyops._support.atomic_files import write_text
from tests.node_tests.attempt import Result, attempt, node_tests
from tests.node_tests.page import as_markdown, summary

RUNS = [(bfloat16, fill_missing) for bfloat16 in (False, True) for fill_missing in (False, True)]


def main() -> None:
    """Parse the command line, run the tests, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.node_tests", description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    parser.add_argument("--timeout", type=float, default=60, help="time limit of a test in seconds")
    parser.add_argument("--page", type=Path, help="file for the page, such as docs/node_tests.md")
    arguments = parser.parse_args()
    results = {run: list(_results(*run, arguments.workers, arguments.timeout)) for run in RUNS}
    print(summary(results))
    if arguments.page:
        write_text(arguments.page, as_markdown(results))


def _results(bfloat16: bool, fill_missing: bool, workers: int, timeout: float) -> Iterator[Result]:
    """Yield the results in the order of the tests, each run in a process that may crash or hang."""
    names = list(node_tests())
    print(
        f"{'bfloat16' if bfloat16 else 'as they are'}, fill_missing={fill_missing}: {len(names)} tests", file=sys.stderr
    )
    # ONNX Runtime warns of what is in the tests' models.
    quiet = onnxruntime.set_default_logger_severity, (4,)
    with ProcessPool(workers, 0, *quiet, multiprocessing.get_context("spawn")) as pool:
        futures = {
            pool.schedule(attempt, (name,), {"fill_missing": fill_missing, "bfloat16": bfloat16}, timeout=timeout): name
            for name in names
        }
        found: dict[str, Result | None] = {}
        for future in as_completed(futures):
            name = futures[future]
            try:
                found[name] = future.result()
            except TimeoutError:
                found[name] = Result(name, f"took more than {timeout:g} s")
            except ProcessExpired as error:
                found[name] = Result(name, f"the process ended with exit code {error.exitcode}")
    yield from filter(None, (found[name] for name in names))


if __name__ == "__main__":
    main()
