"""PyTorch models to ONNX, with operators of any domain."""

from .custom_op import custom_op
from .dynamo import export
from .errors import ExportError
from .nodes import opset
from .program import Program
from .report import OutputReport, Report
from .schema_registry import SchemaRegistration, register_schemas
from .translations import translate, translation_table
from .verify import verify

__all__ = [
    "ExportError",
    "OutputReport",
    "Program",
    "Report",
    "SchemaRegistration",
    "custom_op",
    "export",
    "opset",
    "register_schemas",
    "translate",
    "translation_table",
    "verify",
]
