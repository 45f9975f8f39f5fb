"""onnxscript functions in a model: one node that calls each, then kept as functions of the model or inlined."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, cast

import onnx_ir
from onnx.defs import OpSchema
from onnx_ir.passes.common import InlinePass
from onnxscript import OnnxFunction, evaluator
from onnxscript.values import Op, Opset

from pyops import registry
from pyops.attribute import Attribute, AttributeKind
from pyops.types import ELEMENT_TYPES

from ..errors import ExportError
from ..onnx_schemas.op_schema import attribute_proto
from .nodes import Emitted, require_export, symbolic_message
from .opset_check import check_opset

Functions = dict[tuple[str, str], OnnxFunction[..., Any]]
"""By domain and name."""

_called: ContextVar[Functions | None] = ContextVar("called", default=None)


@contextmanager
def collected() -> Iterator[Functions]:
    """Collect the functions that are called inside the ``with`` block."""
    functions: Functions = {}
    token = _called.set(functions)
    try:
        yield functions
    finally:
        _called.reset(token)


class _Calls:
    """An onnxscript evaluator by which functions become nodes that call them; another does the rest."""

    def __init__(self, evaluating: evaluator.Evaluator) -> None:
        self._evaluating = evaluating

    def __getattr__(self, name: str) -> Any:
        return getattr(self._evaluating, name)

    def eval_function(self, function: OnnxFunction[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What calling an onnxscript function does."""
        return call(function, args, kwargs)


def called_as_nodes() -> AbstractContextManager[Any]:
    """Inside this ``with`` block, calling an onnxscript function emits one node, where `collected` collects it."""
    if _called.get() is None:
        return nullcontext()
    return evaluator.default_as(cast(evaluator.Evaluator, _Calls(evaluator.default())))


def check_return_annotation(function: OnnxFunction[..., Any]) -> None:
    """Raise ExportError for a function that ``torch.onnx.export`` by itself cannot call."""
    if _called.get() is None and inspect.signature(function).return_annotation is inspect.Signature.empty:
        raise ExportError(
            f"torch.onnx.export needs a return annotation on the onnxscript function {function.name}, which "
            f"exporters.export does not; write def {function.name}(...) -> onnxscript.FLOAT[...]:"
        )


def call(function: OnnxFunction[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Emit a node that calls an onnxscript function.

    Parameters
    ----------
    args, kwargs
        As the function takes them: graph values and Python numbers for its inputs, constants for
        its attributes. What is left out has the function's default.

    Raises
    ------
    ExportError
        Outside an export, or where an attribute's value is only known when the model runs.
    InputError
        A value is not of its attribute's type.
    """
    domain, name = function.opset.domain, function.name
    require_export(f"{domain}::{name}")
    called = _called.get()
    if called is not None:
        _enter(called, function)
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


def settle(model: onnx_ir.Model, functions: Functions, emitted: Emitted, *, keep: bool) -> bool:
    """Add the functions that the model calls, and inline them unless they are kept.

    Parameters
    ----------
    emitted : dict
        Gets the versions of the operators in their bodies.

    Returns
    -------
    bool
        Whether something was inlined.

    Raises
    ------
    ExportError
        A function was written for another opset version than the model's, in which one of its
        operators is another, or two functions have one name.
    """
    needed = _needed(model, functions)
    bodies = [onnx_ir.serde.deserialize_function(item.to_function_proto()) for item in needed.values()]
    for body in bodies:
        _import_model_opset(model, body)
        model.functions[body.identifier()] = body
        for node in onnx_ir.traversal.RecursiveGraphIterator(body.graph):
            if node.domain and (node.domain, node.op_type) not in needed:
                version = body.opset_imports[node.domain]
                op = registry.find(node.domain, node.op_type, version)
                emitted.setdefault((node.domain, node.op_type), set()).add(op.version if op else version)
        # The passes and ONNX Runtime want every domain that a function uses in the model's imports too.
        for domain, version in body.opset_imports.items():
            model.opset_imports[domain] = max(version, model.opset_imports.get(domain, 1))
    for body in bodies:
        body.opset_imports.update({domain: model.opset_imports[domain] for domain in body.opset_imports})
    if keep or not needed:
        return False
    InlinePass(lambda body: (body.domain, body.name) in needed)(model)
    return True


def _needed(model: onnx_ir.Model, functions: Functions) -> Functions:
    """The functions that the model calls, and those that these call."""
    needed: Functions = {}
    nodes = onnx_ir.traversal.RecursiveGraphIterator(model.graph)
    pending = [functions[key] for key in {(node.domain, node.op_type) for node in nodes} & functions.keys()]
    while pending:
        function = pending.pop()
        if _enter(needed, function):
            pending += function.function_ir.get_called_functions().values()
    return needed


def _enter(functions: Functions, function: OnnxFunction[..., Any]) -> bool:
    """Enter a function, and tell whether it is new."""
    key = function.opset.domain, function.name
    if functions.get(key, function) is not function:
        raise ExportError(
            f"two onnxscript functions are called {key[0]}::{key[1]}; give one another name, or another domain with "
            '@onnxscript.script(onnxscript.values.Opset("domain", 1))'
        )
    new = key not in functions
    functions[key] = function
    return new


def _import_model_opset(model: onnx_ir.Model, body: onnx_ir.Function) -> None:
    written = body.opset_imports.get("")
    if written is None:
        return
    opset_version = model.opset_imports.setdefault("", written)
    nodes = onnx_ir.traversal.RecursiveGraphIterator(body.graph)
    check_opset(f"the function {body.domain}::{body.name}", nodes, written, opset_version)
    body.opset_imports[""] = opset_version


def _schema(function: OnnxFunction[..., Any]) -> OpSchema:
    """The schema of a call, with which Python numbers take the type that the function's annotations ask for."""
    signature = function.op_signature
    assert signature is not None
    inputs = [item for item in signature.params if isinstance(item, onnx_ir.schemas.Parameter)]
    every = [row.type_str for row in ELEMENT_TYPES]
    types = {item.type_constraint.name: _type_strs(item.type_constraint) or every for item in inputs}
    # Whether a function has a return annotation or not, its body tells the number of its outputs.
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
