"""What a session is made from, kept so that it can be pickled, and made again in a forked process."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime

from ...errors import InputError, ModelError
from ..models.model import Model
from ..ops.op import AnyOp

_SMALL = 2**22  # bytes


@dataclass
class Origin:
    """The arguments of a session, and the ops that its model needs.

    Attributes
    ----------
    source : str or bytes
        The absolute path of the model, or the model itself.
    stamp : tuple of int or None
        The time of modification and the size of the file at that path.
    digest : str or None
        The digest of its contents, which show whether it has changed where the stamp differs; None for a large file
        that was not pickled or unpickled, because a session is not to wait for it.
    options : onnxruntime.SessionOptions, callable or None
        As given.
    engine : str
        As given: ``"auto"`` may be another engine in another process.
    threads : int or None
        The number of threads in worker processes, as given.
    """

    source: str | bytes
    stamp: tuple[int, int] | None
    digest: str | None
    options: Any
    providers: Any
    provider_options: Any
    engine: Any
    threads: int | None
    kwargs: dict[str, Any]
    ops: tuple[AnyOp, ...] = field(default=())


def origin_of(
    source: Model, options: Any, providers: Any, provider_options: Any, engine: Any, threads: Any, kwargs: Any
) -> Origin:
    """Return the origin of a session with these arguments.

    Raises
    ------
    InputError
        The number of threads is not a positive int.
    """
    if threads is not None and (not isinstance(threads, int) or isinstance(threads, bool) or threads < 1):
        raise InputError(f"worker_threads is {threads!r}; it must be a number of threads, at least 1")
    place, stamp, digest = source.source, None, None
    if isinstance(place, str):
        place = os.fspath(Path(place).absolute())
        stamp = stamp_of(place)
        digest = file_digest(place, stamp) if stamp[1] <= _SMALL else None
    return Origin(place, stamp, digest, options, providers, provider_options, engine, threads, dict(kwargs))


def stamp_of(path: str) -> tuple[int, int]:
    """Return the time of modification of a file, in nanoseconds, and its size."""
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=256)
def file_digest(path: str, stamp: tuple[int, int] | None) -> str:
    """Return the digest of a file's contents, from a cache if it has been computed for that stamp."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_unchanged(origin: Origin) -> None:
    """Check that the model's file is the one that the session was made from.

    Raises
    ------
    FileNotFoundError, ModelError
        It is not there, or is another one.
    """
    source = origin.source
    if not isinstance(source, str):
        return
    if not Path(source).is_file():
        raise FileNotFoundError(
            f"the session was made from the model file {source!r}, which does not exist; copy it there, or make "
            "the session from the model's bytes, which then travel with it"
        )
    stamp = stamp_of(source)
    if stamp != origin.stamp and (origin.digest is None or file_digest(source, stamp) != origin.digest):
        raise ModelError(
            f"the model file {source!r} differs from the one that the session was made from; copy that one "
            "there, or make the session again"
        )
    origin.stamp = stamp


def session_options(given: Any) -> Any:
    """Return the session options to make a session with: those given, or what the given function returns, or None.

    Raises
    ------
    InputError
        `given` is something else, or a function that returned something else.
    """
    if given is None or isinstance(given, onnxruntime.SessionOptions):
        return given
    if not callable(given):
        raise InputError(
            f"sess_options is {given!r}; it must be an onnxruntime.SessionOptions, or a function that returns one"
        )
    options = given()
    if not isinstance(options, onnxruntime.SessionOptions):
        raise InputError(
            f"sess_options is a function that returned {options!r}; return an onnxruntime.SessionOptions from it"
        )
    return options


def worker_threads(given: int | None, chosen: int) -> int:
    """Return the number of threads of a session in a worker process; 0 lets ONNX Runtime use every core.

    In this order: the session's `worker_threads`; the ``intra_op_num_threads`` of its options; the environment
    variable OMP_NUM_THREADS, which Ray, joblib and Dask set in their workers; 1 in a process that multiprocessing
    started, where others run beside it.
    """
    if given or chosen:
        return given or chosen
    variable = os.environ.get("OMP_NUM_THREADS", "")
    if variable.isdecimal() and int(variable):
        return int(variable)
    return 0 if multiprocessing.parent_process() is None else 1


def has_threads(options: Any) -> bool:
    """Return whether a session with these options may start threads."""
    sequential = options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    return options.intra_op_num_threads != 1 or not (sequential or options.inter_op_num_threads == 1)
