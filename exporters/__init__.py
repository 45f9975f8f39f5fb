"""PyTorch models to ONNX, with operators of any domain."""

from .adapt import to_onnx_inputs, to_onnx_outputs
from .contrib_ops import use_contrib_ops
from .custom_op import custom_op
from .errors import ExportError
from .export import export
from .nodes import opset
from .program import Program
from .report import OutputReport, Report
from .schema_registry import SchemaRegistration, register_schemas
from .translations import is_registered, translate, translation_table
from .verify import verify

__all__ = [
    "ExportError",
    "OutputReport",
    "Program",
    "Report",
    "SchemaRegistration",
    "custom_op",
    "export",
    "is_registered",
    "opset",
    "register_schemas",
    "to_onnx_inputs",
    "to_onnx_outputs",
    "translate",
    "translation_table",
    "use_contrib_ops",
    "verify",
]
