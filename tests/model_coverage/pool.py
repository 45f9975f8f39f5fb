"""Execution of exports one after the other, each in its own process, which may crash, hang or use up all memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
from collections.abc import Iterable, Iterator

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from tests.model_coverage.attempt import attempt
from tests.model_coverage.results import Exporter, Result, Status
from tests.operator_coverage.reasons import Kind, one_line


def attempts(
    exports: Iterable[tuple[str, Exporter]], timeout: float, gigabytes: float
) -> Iterator[tuple[tuple[str, Exporter], Result]]:
    """Yield each export, a model's name and an exporter, with its result.

    An export has failed if it takes more than `timeout` seconds or `gigabytes` of address space.
    """
    # Forks of a process that has imported torch, but has no threads yet, start at once.
    context = multiprocessing.get_context("forkserver")
    modules = ("packages", "attempt", "first_export")
    context.set_forkserver_preload([f"tests.model_coverage.{name}" for name in modules])
    pool = ProcessPool(1, 1, _start, (gigabytes,), context)
    try:
        for call in exports:
            future = pool.schedule(attempt, call, timeout=timeout)
            assert isinstance(future, ProcessFuture)
            yield call, _result(future, timeout)
    finally:
        pool.stop()  # type: ignore[no-untyped-call] # pebble has no types for it
        pool.join()


def _result(future: ProcessFuture[Result], timeout: float) -> Result:
    try:
        return future.result()
    except TimeoutError:
        return Result(Status.FAILED, Kind.TIMEOUT, f"took more than {timeout:g} s", seconds=timeout)
    except ProcessExpired as error:
        return Result(Status.FAILED, Kind.CRASH, f"the process ended with exit code {error.exitcode}")
    except Exception as error:  # one export must not end a run of hours
        return Result(Status.FAILED, Kind.CRASH, f"the measurement itself failed: {one_line(error)}")


def _start(gigabytes: float) -> None:
    size = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    # Output of packages, torch's exporter and C++ code would break the progress bar.
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(silence, stream.fileno())
