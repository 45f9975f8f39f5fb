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

from . import _wiring

TYPE_CHECKING = False  # typing takes longer to import than the rest
if TYPE_CHECKING:
    from . import errors as errors
    from . import shapes as shapes
    from . import testing as testing
    from ._core.ops.decorator import onnx_op as onnx_op
    from ._core.ops.extensions_decorators import PyCustomOpDef as PyCustomOpDef
    from ._core.ops.op import Op as Op
    from ._core.runtime.inference_session import InferenceSession as InferenceSession
    from ._core.runtime.inference_session import register_custom_ops as register_custom_ops
    from ._core.runtime.kernel_exceptions import last_exception as last_exception
    from ._core.runtime.onnxruntime_patch import patch_onnxruntime as patch_onnxruntime
    from ._core.runtime.profiling import profile as profile
    from ._core.runtime.reference_ops import reference_ops as reference_ops
    from ._core.unpickling import unpickle as unpickle
    from ._display.netron import show_model as show_model
    from ._display.op_table import list_ops as list_ops
    from ._extensions import get_library_path as get_library_path
    from ._machine.libraries.build import build as build
    from ._onnx.schema_registration import register_schemas as register_schemas
    from ._patterns.replacement import replace as replace
    from .testing._model_comparison import compare_models as compare_models

__version__ = "0.3.0"

# Hidden from type checkers, which would otherwise accept any name; they read the imports above.
if not TYPE_CHECKING:
    __all__ = sorted(_wiring.PUBLIC)

    def __getattr__(name):
        if name not in _wiring.PUBLIC and name not in _wiring.UNLISTED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = _wiring.public(name)
        return value

    def __dir__():
        return __all__
