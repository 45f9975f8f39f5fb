"""Execution of many calls in processes that may crash or hang."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import as_completed

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from tests.operator_coverage.attempt import attempt
from tests.operator_coverage.plan import Plan
from tests.operator_coverage.reasons import Kind, one_line
from tests.operator_coverage.results import Result, Status
from tests.operator_coverage.samples import Database

# A process is replaced after this many calls, because every export leaks memory in torch.
_CALLS_PER_PROCESS = 150

_database: Database


def attempts(plan: Plan, calls: list[tuple[str, int]], workers: int, timeout: float) -> Iterator[Result]:
    """Yield the result of every call, given by operator and sample index, in the order of completion.

    A call that takes more than `timeout` seconds has failed.
    """
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPool(workers, _CALLS_PER_PROCESS, _start, (plan.database,), spawn)
    try:
        futures = {pool.schedule(_attempt, (plan, *call), timeout=timeout): call for call in calls}
        for future in as_completed(futures):
            assert isinstance(future, ProcessFuture)
            yield _result(future, *futures[future], timeout)
    finally:
        pool.stop()  # type: ignore[no-untyped-call] # pebble has no types for it
        pool.join()


def _result(future: ProcessFuture[Result], op: str, index: int, timeout: float) -> Result:
    try:
        return future.result()
    except TimeoutError:
        return Result(op, index, Status.FAILED, Kind.TIMEOUT, f"took more than {timeout:g} s", seconds=timeout)
    except ProcessExpired as error:
        return Result(op, index, Status.FAILED, Kind.CRASH, f"the process ended with exit code {error.exitcode}")
    except Exception as error:  # one call must not end a run of hours
        return Result(op, index, Status.FAILED, Kind.CRASH, f"coverage itself failed: {one_line(error)}")


def _start(database: str) -> None:
    global _database
    # Output of torch's exporter and C++ code would break the progress bar.
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(silence, stream.fileno())
    _database = Database(database)


def _attempt(plan: Plan, op: str, index: int) -> Result:
    return attempt(_database, plan, op, index)
