"""onnxruntime-extensions itself: imported, made ready, and added to session options."""

from __future__ import annotations

import _thread
import functools
import threading
import weakref
from collections.abc import Set
from typing import Any

import numpy as np
import onnxruntime

from ..errors import EngineError, MissingDependencyError
from . import extensions_hook as hook
from . import extensions_registry as registry


def library() -> Any:
    """onnxruntime-extensions, with the hook in place.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        import onnxruntime_extensions
    except ImportError as error:
        raise MissingDependencyError(
            f"this needs onnxruntime-extensions, which cannot be imported ({error}); pip install onnxruntime-extensions"
        ) from error
    hook.install()
    with registry.lock:
        _run_once()
    return onnxruntime_extensions


@functools.cache
def _run_once() -> None:
    # When its C++ makes an array for the first time, it runs Python code of NumPy's, and what is raised there (by a
    # signal's handler) ends the process. Handlers run in the main thread alone.
    import onnx
    from onnxruntime_extensions import get_library_path

    types = (registry.Types((1,), (1,)),)
    domain = registry.place(types, hook.add_target(lambda call: (0, (1,), call.inputs[0]).__iter__))
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    model = onnx.parser.parse_model(_FIRST_MODEL.format(domain)).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    running = threading.Lock()

    def run() -> None:
        try:
            session.run(None, {"x": np.zeros(1, np.float32)})
        finally:
            running.release()

    # A bare lock: an interrupt leaves the condition variables of threading.Thread in disorder.
    running.acquire()
    _thread.start_new_thread(run, ())
    running.acquire()


_FIRST_MODEL = """
<ir_version: 8, opset_import: ["" : 17, "{0}" : 1]>
first (float[1] x) => (float[1] y) {{ y = {0}.Kernel <pyops_node = ""> (x) }}
"""


# By session options that hold the library by our doing: what was in its registry then.
_seen: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()


def has_library(options: Any) -> bool:
    """Whether session options hold the library by our doing."""
    return options in _seen


def add_library(options: Any, needed: Set[Any]) -> None:
    """Let sessions made of `options` see what is in the registry.

    Raises
    ------
    EngineError
        `options` are none, or hold the library from a time when what is needed was not in it.
    """
    if options not in _seen:
        options.register_custom_ops_library(library().get_library_path())
        _seen[options] = registry.contents()
    elif not needed <= _seen[options]:
        raise EngineError(
            "these SessionOptions hold onnxruntime-extensions' library from before some of the ops were declared, and "
            "cannot take it twice; pass new SessionOptions"
        )
