"""ONNX Runtime operators written as one Python function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors, shapes
from .decorator import onnx_op
from .failures import last_exception
from .op import Op
from .pycustomopdef import PyCustomOpDef

if TYPE_CHECKING:
    from .session import InferenceSession, register_custom_ops

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
_LAZY = {"InferenceSession", "register_custom_ops"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import session

    return getattr(session, name)
