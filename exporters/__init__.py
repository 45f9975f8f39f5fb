"""PyTorch models to ONNX, with operators of any domain.

Examples
--------
>>> import exporters, torch
>>> model, x = torch.nn.GELU().eval(), torch.ones(2)
>>> @exporters.translate("aten::gelu")
... def gelu(x, *, approximate="none"):
...     return exporters.opset("com.microsoft").Gelu(x)
>>> program = exporters.export(model, (x,), verbose=False)
>>> exporters.verify(model, (x,), program).ok
True
"""

from pyops.errors import MissingDependencyError

try:
    import onnxscript  # noqa: F401
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        f'exporters needs torch and onnxscript; {error.name} is not installed: pip install "onnx-pyops[torch]"',
        name=error.name,
    ) from error

from .adapt import to_onnx_inputs, to_onnx_outputs
from .custom_op import custom_op
from .errors import ExportError
from .explain import explain
from .export import export
from .fallback.kernel import use_fallback
from .fallback.record import Fallback
from .onnx_schemas.registration import SchemaRegistration, register_schemas
from .program import Program
from .support import Explanation, OperatorSupport
from .translating.contrib_ops import use_contrib_ops
from .translating.nodes import opset
from .translating.translations import translate
from .translation_table import is_registered, translation_table
from .verifying.report import OutputReport, Report
from .verifying.verify import verify

__all__ = [
    "Explanation",
    "ExportError",
    "Fallback",
    "OperatorSupport",
    "OutputReport",
    "Program",
    "Report",
    "SchemaRegistration",
    "custom_op",
    "explain",
    "export",
    "is_registered",
    "opset",
    "register_schemas",
    "to_onnx_inputs",
    "to_onnx_outputs",
    "translate",
    "translation_table",
    "use_contrib_ops",
    "use_fallback",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)
