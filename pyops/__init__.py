"""ONNX Runtime operators written as one Python function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors, shapes
from .op import Op, onnx_op
from .pycustomopdef import PyCustomOpDef

if TYPE_CHECKING:
    from .engines.native import register_custom_ops
    from .session import InferenceSession, last_exception

__all__ = [
    "InferenceSession",
    "Op",
    "PyCustomOpDef",
    "errors",
    "last_exception",
    "onnx_op",
    "register_custom_ops",
    "shapes",
]

__version__ = "0.1.0"

# Declarations work without ONNX Runtime, and cost nothing of its import; these names need it.
_LAZY = {"InferenceSession": "session", "register_custom_ops": "session", "last_exception": "session"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
