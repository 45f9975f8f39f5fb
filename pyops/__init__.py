"""ONNX Runtime operators written as one Python function.

Examples
--------
>>> import numpy as np, pyops
>>> from numpy.typing import NDArray
>>> @pyops.onnx_op("mylibrary::Halve")
... def halve(x: NDArray[np.float32]) -> NDArray[np.float32]:
...     return x / np.float32(2)
>>> session = pyops.InferenceSession(pyops.testing.Sample(halve, np.ones(1, np.float32)).model())
>>> session.run(None, {"x": np.array([3], np.float32)})
[array([1.5], dtype=float32)]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors as errors
    from . import shapes as shapes
    from . import testing as testing
    from ._core.ops.decorator import onnx_op as onnx_op
    from ._core.ops.extensions_decorators import PyCustomOpDef as PyCustomOpDef
    from ._core.ops.op import Op as Op
    from ._core.runtime.inference_session import InferenceSession as InferenceSession
    from ._core.runtime.inference_session import get_library_path as get_library_path
    from ._core.runtime.inference_session import register_custom_ops as register_custom_ops
    from ._core.runtime.kernel_exceptions import last_exception as last_exception
    from ._core.runtime.onnxruntime_patch import patch_onnxruntime as patch_onnxruntime
    from ._core.runtime.profiling import profile as profile
    from ._core.runtime.reference_ops import reference_ops as reference_ops
    from ._display.netron import show_model as show_model
    from ._display.op_table import list_ops as list_ops
    from ._machine.libraries.build import build as build
    from ._onnx.op_schemas import register_schemas as register_schemas

__version__ = "0.2.0"

# Imported on first use: declarations must work without ONNX Runtime, and pytest, which loads pyops' plug-in wherever it
# is installed, must not import NumPy for it.
_LAZY = {
    "InferenceSession": "._core.runtime.inference_session",
    "Op": "._core.ops.op",
    "PyCustomOpDef": "._core.ops.extensions_decorators",
    "build": "._machine.libraries.build",
    "get_library_path": "._core.runtime.inference_session",
    "last_exception": "._core.runtime.kernel_exceptions",
    "list_ops": "._display.op_table",
    "onnx_op": "._core.ops.decorator",
    "patch_onnxruntime": "._core.runtime.onnxruntime_patch",
    "profile": "._core.runtime.profiling",
    "reference_ops": "._core.runtime.reference_ops",
    "register_custom_ops": "._core.runtime.inference_session",
    "register_schemas": "._onnx.op_schemas",
    "show_model": "._display.netron",
}
_MODULES = ("errors", "shapes", "testing")
_IPYTHON = ("load_ipython_extension", "unload_ipython_extension")  # which %load_ext looks for here


# Hidden from type checkers, which would otherwise accept any name; they read the imports above.
if not TYPE_CHECKING:
    __all__ = sorted([*_LAZY, *_MODULES])

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f".{name}", __name__)
        module = "._display.tracebacks" if name in _IPYTHON else _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(module, __name__), name)
        return value

    def __dir__() -> list[str]:
        return __all__
