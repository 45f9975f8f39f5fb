"""PyTorch models to ONNX, with operators of any domain.

Where what is:

- `export` chooses between the two exporters, `dynamo` and `torchscript`; both end in `finishing` the model of a
  `program`
- an Op in torch: `custom_op`, with `torch_schema` and `cuda_kernel`
- torch operators as nodes: `translating`; with those of `kernels`, the ops of `pyops.kernels`, in `translation_table`
- operators without a translation, as nodes that call torch: `fallback`
- ONNX's own schemas of the ops: `onnx_schemas`
- torch against ONNX Runtime: `verifying`
- torch's side of things: operators by name in `torch_ops`, `tensors`, whole arguments and results in `adapt`, a
  `single_call`, and all private interfaces in `_torch_private`
- what an export would need, before it: `explain`, with `support`; `explanations` of what torch and onnxscript say
- how many of torch's operators go through an export: `coverage`, by `__main__`; the whole loop on real data: `demo`

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
