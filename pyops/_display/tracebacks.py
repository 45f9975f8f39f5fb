"""Tracebacks reduced to the user's own frames, and the IPython extension (``%load_ext pyops``) that shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

_SHORTENED = (Exception, KeyboardInterrupt)
# The modules of Python that import or run other modules are not the user's code either.
_OURS = ("pyops", "exporters", "onnxruntime", "importlib", "runpy")
_OF_CAUSES = (*_OURS, "torch", "onnxscript", "onnx_ir", "onnx", "numba", "contextlib")


@contextmanager
def shortened(error: BaseException) -> Iterator[TracebackType | None]:
    """Remove library frames from the tracebacks of an exception and its causes within the block.

    Yields
    ------
    traceback or None
        The traceback of `error`, unchanged where it would have no frames left.
    """
    chain = list(_chain(error))
    whole = [item.__traceback__ for item in chain]
    for item in chain:
        # Of a cause that the user's code never saw, the message is enough.
        item.__traceback__ = shorten(item.__traceback__) if item is error else _shorten(item.__traceback__, _OF_CAUSES)
    try:
        yield error.__traceback__
    finally:
        for item, traceback in zip(chain, whole, strict=True):
            item.__traceback__ = traceback


def shorten(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of pyops, exporters and ONNX Runtime, unless it has no others."""
    return _shorten(traceback) or traceback


def _shorten(traceback: TracebackType | None, left_out: tuple[str, ...] = _OURS) -> TracebackType | None:
    short: TracebackType | None = None
    for step in reversed(_others(traceback, left_out)):
        short = TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return short


def has_others(traceback: TracebackType | None) -> bool:
    """Return whether a traceback has frames outside pyops, exporters and ONNX Runtime."""
    return bool(_others(traceback))


def _others(traceback: TracebackType | None, left_out: tuple[str, ...] = _OURS) -> list[TracebackType]:
    found = []
    while traceback is not None:
        if (traceback.tb_frame.f_globals.get("__name__") or "").partition(".")[0] not in left_out:
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


def load_ipython_extension(shell: Any) -> None:
    """Shorten tracebacks; called by ``%load_ext pyops``.

    If another extension already handles exceptions (``set_custom_exc``), tracebacks are left unchanged.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
        The running shell.
    """
    if not shell.custom_exceptions:
        shell.set_custom_exc(_SHORTENED, _show_shortened)


def unload_ipython_extension(shell: Any) -> None:
    """Undo `load_ipython_extension`; called by ``%unload_ext pyops``."""
    if shell.custom_exceptions == _SHORTENED:
        shell.set_custom_exc((), None)


def _show_shortened(
    shell: Any, kind: type[BaseException], error: BaseException, traceback: Any, tb_offset: Any = None
) -> None:
    with shortened(error) as short:
        shell.showtraceback((kind, error, short), tb_offset=tb_offset)
