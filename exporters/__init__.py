"""Export of PyTorch models to ONNX, with operators of any domain.

Examples
--------
>>> import exporters, torch
>>> model, x = torch.nn.GELU().eval(), torch.ones(2)
>>> @exporters.register_translation("aten::gelu")
... def gelu(x, *, approximate="none"):
...     return exporters.opset("com.microsoft").Gelu(x)
>>> program = exporters.export(model, (x,))
>>> exporters.verify(model, (x,), program).ok
True
"""

from pyops.errors import MissingDependencyError

try:
    import torch  # noqa: F401, I001 - what lacks both names torch first
    import onnxscript
except ModuleNotFoundError as error:
    _missing = f"{error.name} is"
    if error.name == "torch":
        try:
            import onnxscript  # noqa: F401
        except ModuleNotFoundError as other:
            _missing = f"{error.name} and {other.name} are"
    raise MissingDependencyError(
        f'exporters needs torch and onnxscript; {_missing} not installed: pip install "onnx-pyops[torch]"',
        name=error.name,
    ) from error

from ._capture.decisions import CaptureDecision
from ._capture.model_arguments import to_onnx_inputs, to_onnx_outputs
from ._custom_op import custom_op
from ._explain import explain
from ._export import export, verify
from ._fallback.fallback_node import register_fallback
from ._library.translation_order import registered_by, translation_table
from ._lowering.contrib_ops import register_contrib_ops
from ._lowering.node_emission import opset
from ._lowering.translations import register_translation
from ._program import Program
from ._report import Fallback, OperatorSupport, OutputComparison, SupportReport, VerificationReport
from .errors import CaptureWarning, ExportError

__all__ = [
    "CaptureDecision",
    "CaptureWarning",
    "ExportError",
    "Fallback",
    "OperatorSupport",
    "OutputComparison",
    "Program",
    "SupportReport",
    "VerificationReport",
    "custom_op",
    "explain",
    "export",
    "opset",
    "register_contrib_ops",
    "register_fallback",
    "register_translation",
    "registered_by",
    "to_onnx_inputs",
    "to_onnx_outputs",
    "translation_table",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)
