"""Tracebacks cut down to the user's own frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

_OURS = ("pyops", "exporters", "onnxruntime")


@contextmanager
def shortened(error: BaseException) -> Iterator[TracebackType | None]:
    """Within it, the tracebacks of an exception, and of those behind it, are without the frames of libraries.

    Yields
    ------
    traceback or None
        That of `error`. One that would have no frames left is as it was.
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
    """A traceback without the frames of pyops, exporters and ONNX Runtime, unless it has no others."""
    kept: list[TracebackType] = []
    step = traceback
    while step is not None:
        if not _is_ours(step.tb_frame.f_globals.get("__name__") or ""):
            kept.append(step)
        step = step.tb_next
    short: TracebackType | None = None
    for step in reversed(kept):
        short = TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return short or traceback


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        item = pending.pop()
        if item is not None and id(item) not in seen:
            seen.add(id(item))
            yield item
            pending += [item.__cause__, item.__context__]
