"""PyTorch models to ONNX, with operators of any domain.

Where what is:

- what a user registers: `custom_op` (with `torch_schema`), `translations` (of an Op: `op_translation`; of an
  onnxscript function: `functions`), `contrib_ops`; nodes are emitted in `nodes`
- which op of `pyops.kernels` carries which torch operator: `kernels`; with the registrations, `translation_table`
- the two exporters: `dynamo`, and `torchscript` with `tracing`, `symbolics` and `graph_values`
- what both end in, `program`: `functions`, `opset_imports`, `declared_nodes`, `optimization`
- ONNX's own schemas of the ops: `schema`, `schema_inference`, `schema_registry`
- torch against ONNX Runtime: `verify`, with `report`, `intermediates` and `reference`
- torch's side of things: `torch_ops` by name, `tensors`, whole arguments and results in `adapt`, and all private
  interfaces in `_torch_private` and `_torchscript_private`
- operators without a translation, as nodes that call torch: `fallback`
- what an export would need, before it: `explain`, with `support`
- how many of torch's operators go through an export: `coverage`, by `__main__`
- `explanations` of what torch and onnxscript say

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
