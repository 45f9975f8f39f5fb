"""ONNX Runtime operators written as one Python function."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors, shapes
from .decorator import onnx_op
from .failures import last_exception
from .op import Op
from .pycustomopdef import PyCustomOpDef

if TYPE_CHECKING:
    from .engines.reference import reference_ops
    from .installing import install
    from .listing import ops
    from .profiling import profile
    from .session import InferenceSession, get_library_path, register_custom_ops
    from .showing import show

__all__ = [
    "InferenceSession",
    "Op",
    "PyCustomOpDef",
    "errors",
    "get_library_path",
    "install",
    "last_exception",
    "onnx_op",
    "ops",
    "profile",
    "reference_ops",
    "register_custom_ops",
    "shapes",
    "show",
]

__version__ = "0.1.0"

# Declarations work without ONNX Runtime, and cost nothing of what these names import.
_LAZY = {
    "InferenceSession": ".session",
    "get_library_path": ".session",
    "install": ".installing",
    "load_ipython_extension": ".notebook",
    "ops": ".listing",
    "profile": ".profiling",
    "reference_ops": ".engines.reference",
    "register_custom_ops": ".session",
    "show": ".showing",
    "unload_ipython_extension": ".notebook",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name], __name__), name)
