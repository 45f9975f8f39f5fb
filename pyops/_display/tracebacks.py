"""Tracebacks reduced to the user's own frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

# The modules of Python that import or run other modules are not the user's code either.
_OURS = ("pyops", "exporters", "onnxruntime", "importlib", "runpy")


@contextmanager
def shortened(error: BaseException) -> Iterator[TracebackType | None]:
    """Context manager: remove library frames from the tracebacks of an exception and of its causes.

    Yields
    ------
    traceback or None
        The traceback of `error`. One that consists of library frames only is left unchanged.
    """
    chain = list(_chain(error))
    whole = [item.__traceback__ for item in chain]
    for item in chain:
        item.__traceback__ = shorten(item.__traceback__)
    try:
        yield error.__traceback__
    finally:
        for item, traceback in zip(chain, whole, strict=True):
            item.__traceback__ = traceback


def shorten(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of pyops, exporters and ONNX Runtime, unless it has no others."""
    short: TracebackType | None = None
    for step in reversed(_others(traceback)):
        short = TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return short or traceback


def has_others(traceback: TracebackType | None) -> bool:
    """Return whether a traceback has frames outside pyops, exporters and ONNX Runtime."""
    return bool(_others(traceback))


def _others(traceback: TracebackType | None) -> list[TracebackType]:
    found = []
    while traceback is not None:
        if (traceback.tb_frame.f_globals.get("__name__") or "").partition(".")[0] not in _OURS:
            found.append(traceback)
        traceback = traceback.tb_next
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        item = pending.pop()
        if item is not None and id(item) not in seen:
            seen.add(id(item))
            yield item
            pending += [item.__cause__, item.__context__]
