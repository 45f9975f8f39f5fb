"""The opt-in patch that lets sessions created by other libraries run the declared ops."""

from __future__ import annotations

import functools
import inspect
from contextlib import AbstractContextManager
from typing import Any

from ..._support.locks import RLock
from ..models import model, op_resolution
from ..models.model import Model
from ..ops import extensions_decorators, op_registry
from .inference_session import KEYWORDS, InferenceSession, register_custom_ops

import onnxruntime  # isort: skip  # after session, which says what to install where it is absent
from .native.session_options import library_ops  # isort: skip  # imports onnxruntime


def patch_onnxruntime() -> Installation:
    """Make every ``onnxruntime.InferenceSession`` created from now on run the declared ops.

    Meant for sessions that other libraries create (torch's ``ONNXProgram``, optimum). A plain call stays in force; as a
    context manager it ends with the block. Calls may be repeated and nested.

    Only ``onnxruntime.InferenceSession.__init__`` is replaced. A session whose model has declared ops becomes a
    `pyops.InferenceSession`; an instance of another subclass gets the ops through `pyops.register_custom_ops`. Sessions
    of other models are unaffected.

    Returns
    -------
    Installation
        A context manager; its `uninstall` reverts this call.

    Examples
    --------
    >>> import onnxruntime, pyops
    >>> before = onnxruntime.InferenceSession.__init__
    >>> with pyops.patch_onnxruntime():
    ...     pass  # call code that creates sessions
    >>> onnxruntime.InferenceSession.__init__ is before
    True
    """
    installation = Installation()
    with _lock:
        if not _installations:
            _replace_init()
        _installations.append(installation)
    return installation


class Installation(AbstractContextManager["Installation"]):
    """The effect of one `patch_onnxruntime` call."""

    def uninstall(self) -> None:
        """Revert this call; the last one to be reverted restores ``onnxruntime.InferenceSession``."""
        with _lock:
            if self in _installations:
                _installations.remove(self)
                if not _installations:
                    _restore()

    def __exit__(self, *exception: object) -> None:
        self.uninstall()


_lock = RLock()
_installations: list[Installation] = []
_replaced: list[tuple[Any, Any]] = []


def _replace_init() -> None:
    original = onnxruntime.InferenceSession.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Another library may have wrapped this function and still call it after the last uninstall.
        if not _installations or isinstance(self, InferenceSession):
            return original(self, *args, **kwargs)
        given = inspect.signature(original).bind(self, *args, **kwargs).arguments
        source = _model_with_ops(given.get("path_or_bytes"), given.get("sess_options"))
        if source is None:
            return original(self, *args, **kwargs)
        arguments = {name: given[name] for name in given if name not in ("self", "path_or_bytes", "kwargs")}
        # ONNX Runtime ignores what it does not know.
        arguments |= {name: value for name, value in given.get("kwargs", {}).items() if name in KEYWORDS}
        if type(self) is onnxruntime.InferenceSession:
            self.__class__ = InferenceSession
            self.__init__(source, **arguments)
            return None
        options = arguments.pop("sess_options", None) or onnxruntime.SessionOptions()
        return original(self, given["path_or_bytes"], register_custom_ops(options), **arguments)

    _replaced.append((init, original))
    onnxruntime.InferenceSession.__init__ = init


def _restore() -> None:
    init, original = _replaced.pop()
    if onnxruntime.InferenceSession.__init__ is init:
        onnxruntime.InferenceSession.__init__ = original


def _model_with_ops(source: Any, options: Any) -> Model | None:
    """Return the model if it has, or may have, nodes of declared ops; otherwise None."""
    try:
        loaded = model.load_model(source)
    except Exception:  # ONNX Runtime reports what is wrong with it
        return None
    domains = op_registry.op_domains() | {domain for domain, _ in loaded.imports()}
    op_resolution.import_plugins_of(loaded, library_ops(options, domains))
    adopted = extensions_decorators.adopted_ops()
    if loaded.proto is None:
        return loaded if op_registry.latest() else None
    return loaded if any(op_registry.op_versions(*key) or key in adopted for key, _ in loaded.uses) else None
