"""What an export changes in torch for its own thread while it runs."""

from __future__ import annotations

import builtins
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, ParamSpec, TypeVar

from .guard import guarded

T = TypeVar("T")
P = ParamSpec("P")

_exporting = threading.RLock()


def one_at_a_time(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that only one thread at a time runs any function decorated so.

    torch's exporter keeps the state of an export in global modules. A module that another thread calls meanwhile would
    become part of that export, and its training mode is shared.

    Within such a function, torch lists its composite operators once, not for every namespace in every pass over a
    graph, which saves a third of the time of a small export.
    """

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> T:
        with _exporting, _listing_composites_once():
            return function(*args, **kwargs)

    return locked


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Context manager: replace an attribute of a module or class; a function only for calls from this thread."""
    before, thread = vars(owner).get(name), threading.get_ident()
    others = getattr(owner, name, None) or getattr(builtins, name)

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
    thread, (capturing, c_api) = threading.get_ident(), _printing_modules()

    def is_printed(record: logging.LogRecord) -> bool:
        ours = record.thread == thread and record.name.startswith(("torch", "onnx"))
        return not ours or record.levelno < logging.WARNING  # lower levels are printed on demand only

    with ExitStack() as stack:
        for handler in _printing_handlers():
            handler.addFilter(is_printed)
            stack.callback(handler.removeFilter, is_printed)
        # Both print the graph when an error is raised.
        stack.enter_context(replaced(capturing, "print", lambda *_, **__: None))
        stack.enter_context(replaced(c_api, "_jit_onnx_log", lambda *_: None))
        yield


@guarded("torch._logging._internal.handlers")
def _printing_handlers() -> list[logging.Handler]:
    from torch._logging import _internal

    last = [logging.lastResort] if logging.lastResort else []
    return [*(item for item in _internal.handlers if not isinstance(item, logging.FileHandler)), *last]


@guarded("torch._C._jit_onnx_log")
def _printing_modules() -> tuple[Any, Any]:
    from torch import _C
    from torch.export import _trace

    assert callable(_C._jit_onnx_log)
    return _trace, _C


@guarded("torch._export.utils._materialize_cpp_cia_ops")
def _listing_composites_once() -> AbstractContextManager[None]:
    from torch._export import utils

    return replaced(utils, "_materialize_cpp_cia_ops", functools.cache(utils._materialize_cpp_cia_ops))
