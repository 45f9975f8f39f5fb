"""Calls of onnxscript functions in a translation, each exported as one node."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import onnx_ir
from onnx.defs import OpSchema
from onnxscript import OnnxFunction, evaluator
from onnxscript.values import Op, Opset

from pyops._schema.attribute import Attribute, AttributeKind
from pyops._schema.dtypes import ELEMENT_TYPES

from .._onnx_schemas import attribute_proto
from ..errors import ExportError
from . import emission
from .nodes import require_export, symbolic_message


class _Calls:
    """An onnxscript evaluator that emits a call of a function as a node, and delegates the rest to another one."""

    def __init__(self, evaluating: evaluator.Evaluator) -> None:
        self._evaluating = evaluating

    def __getattr__(self, name: str) -> Any:
        return getattr(self._evaluating, name)

    def eval_function(self, function: OnnxFunction[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Emit a node that calls an onnxscript function."""
        return call(function, args, kwargs)


def called_as_nodes() -> AbstractContextManager[Any]:
    """Return a context manager in which a call of an onnxscript function emits one node, recorded by `emission`."""
    if emission.current() is None:
        return nullcontext()
    return evaluator.default_as(cast(evaluator.Evaluator, _Calls(evaluator.default())))


def check_return_annotation(function: OnnxFunction[..., Any]) -> None:
    """Raise ExportError if ``torch.onnx.export``, called by the user, cannot call a function."""
    if emission.current() is None and inspect.signature(function).return_annotation is inspect.Signature.empty:
        raise ExportError(
            f"torch.onnx.export needs a return annotation on the onnxscript function {function.name}, which "
            f"exporters.export does not; write def {function.name}(...) -> onnxscript.FLOAT[...]:"
        )


def call(function: OnnxFunction[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Emit a node that calls an onnxscript function.

    Parameters
    ----------
    args, kwargs
        Arguments of the function: graph values and Python numbers for its inputs, constants for
        its attributes. An omitted argument has the function's default.

    Raises
    ------
    ExportError
        No export is running, or an attribute's value is known only when the model runs.
    InputError
        A value does not have its attribute's type.
    """
    domain, name = function.opset.domain, function.name
    require_export(f"{domain}::{name}")
    recording = emission.current()
    if recording is not None:
        recording.functions.add(function)
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    schema = _schema(function)
    inputs = [given.get(item.name) for item in schema.inputs]
    attributes = {}
    for key, type_ in _attributes(function).items():
        value = given.get(key)
        if isinstance(value, onnx_ir.Value):
            raise ExportError(symbolic_message(f"{domain}::{name}", key))
        if value is not None:
            attribute = Attribute(key, AttributeKind[type_.name])
            attributes[key] = onnx_ir.serde.deserialize_attribute(attribute_proto(attribute, attribute.convert(value)))
    return Op(Opset(domain, function.opset.version), name, schema)(*inputs, **attributes)


def _schema(function: OnnxFunction[..., Any]) -> OpSchema:
    """Return the schema of a call, by which Python numbers get the types of the function's annotations."""
    signature = function.op_signature
    assert signature is not None
    inputs = [item for item in signature.params if isinstance(item, onnx_ir.schemas.Parameter)]
    every = [row.type_str for row in ELEMENT_TYPES]
    types = {item.type_constraint.name: _type_strs(item.type_constraint) or every for item in inputs}
    # The body has the number of outputs even without a return annotation.
    outputs = [f"output_{i}" for i in range(len(function.to_function_proto().output))]
    return OpSchema(
        function.name,
        function.opset.domain,
        function.opset.version,
        inputs=[
            OpSchema.FormalParameter(
                item.name,
                item.type_constraint.name,
                param_option=OpSchema.FormalParameterOption.Single
                if item.required
                else OpSchema.FormalParameterOption.Optional,
            )
            for item in inputs
        ],
        outputs=[OpSchema.FormalParameter(name, f"T_{name}") for name in outputs],
        type_constraints=[(name, strs, "") for name, strs in types.items()]
        + [(f"T_{name}", every, "") for name in outputs],
        attributes=[
            OpSchema.Attribute(name, getattr(OpSchema.AttrType, type_.name), required=False)
            for name, type_ in _attributes(function).items()
        ],
    )


def _attributes(function: OnnxFunction[..., Any]) -> dict[str, onnx_ir.AttributeType]:
    assert function.op_signature is not None
    parameters = function.op_signature.params
    return {item.name: item.type for item in parameters if isinstance(item, onnx_ir.schemas.AttributeParameter)}


def _type_strs(constraint: onnx_ir.schemas.TypeConstraintParam) -> list[str]:
    tensors = [item.dtype for item in constraint.allowed_types if isinstance(item, onnx_ir.TensorType)]
    return [row.type_str for row in ELEMENT_TYPES if row.onnx in {dtype.value for dtype in tensors}]
