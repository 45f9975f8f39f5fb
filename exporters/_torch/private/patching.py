"""Access to torch's private interfaces: the error for one that is missing, and what an export replaces meanwhile."""

from __future__ import annotations

import builtins
import functools
import logging
import pkgutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ParamSpec, TypeVar

import torch

from pyops._support.locks import RLock
from pyops._support.tested_releases import tested

from ...errors import ExportError

T = TypeVar("T")
P = ParamSpec("P")

USE = f"use {tested('torch')}, with which this version of exporters is tested"


def private(name: str) -> Any:
    """Return what torch has under a full name; raise ExportError if it no longer has it."""
    try:
        return pkgutil.resolve_name(name)
    except (AttributeError, ImportError) as error:
        raise _missing(name) from error


def _missing(name: str) -> ExportError:
    return ExportError(f"torch {torch.__version__} no longer has the private interface {name}; {USE}")


def guarded(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function to raise ExportError naming the private interface that it uses if torch no longer has it."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def read(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except (AttributeError, ImportError) as error:
                raise _missing(name) from error

        return read

    return decorate


_exporting = RLock()
_LISTING = "torch._export.utils._materialize_cpp_cia_ops"


def one_at_a_time(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that only one thread at a time runs any function decorated so.

    torch's exporter keeps the state of an export in global modules. A module that another thread calls meanwhile would
    become part of that export, and its training mode is shared.

    Within such a function, torch lists its composite operators once, not for every namespace in every pass over a
    graph, which saves a third of the time of a small export.
    """

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> T:
        with _exporting, replaced(_LISTING, functools.cache(private(_LISTING))):
            return function(*args, **kwargs)

    return locked


@contextmanager
def replaced(name: str, value: Any) -> Iterator[None]:
    """Context manager: replace an attribute of a module or class of torch; a function only for calls from this thread.

    Parameters
    ----------
    name : str
        The full name of the attribute.
    """
    place, _, name = name.rpartition(".")
    owner, thread = private(place), threading.get_ident()
    before, others = vars(owner).get(name), getattr(builtins, name, None) or private(f"{place}.{name}")

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (value if threading.get_ident() == thread else others)(*args, **kwargs)

    if callable(value):
        setattr(owner, name, staticmethod(chosen) if isinstance(before, classmethod) else chosen)
    else:
        setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def quiet() -> Iterator[None]:
    """Context manager: keep torch, onnxscript and onnx from printing graphs and logged warnings in this thread.

    Handlers that users add to loggers still get the records, and what ``TORCH_LOGS`` asks for is printed.
    """
    thread, last = threading.get_ident(), [logging.lastResort] if logging.lastResort else []

    def is_printed(record: logging.LogRecord) -> bool:
        ours = record.thread == thread and record.name.startswith(("torch", "onnx"))
        return not ours or record.levelno < logging.WARNING  # lower levels are printed on demand only

    with ExitStack() as stack:
        for handler in [*private("torch._logging._internal.handlers"), *last]:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(is_printed)
                stack.callback(handler.removeFilter, is_printed)
        # Both print the graph when an error is raised.
        stack.enter_context(replaced("torch.export._trace.print", lambda *_, **__: None))
        stack.enter_context(replaced("torch._C._jit_onnx_log", lambda *_: None))
        yield
