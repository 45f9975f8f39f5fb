"""Translations as a symbolic function of TorchScript, which reads their arguments from values of its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir
import torch
from onnx_ir.passes.common import InlinePass
from torch.onnx import JitScalarType

from .._lowering.op_translation import called_as_nodes, check_returned
from .._lowering.translations import check_opset, no_translation_error
from .._torch.private.onnx_exporter import element_type, recorded_nodes
from .._torch.private.operators import Argument, OpOverload, as_exported, qualified_name, schema_arguments
from .._torch.private.torchscript_values import fake_types, is_graph_value
from .._torch.private.trees import flatten, replace_leaves, unflatten
from .traced_model import OPERATOR, Call

_DOMAIN = "pyops.translated"

# TorchScript traces torch.inverse as an operator that it calls.
_TRACED_AS = {"aten::linalg_inv": "aten::inverse"}


class Symbolics:
    """The symbolic function of one export.

    Each call emits one node with its own op type; what the translation emits is stored as the function of that type.
    """

    def __init__(
        self, table: Mapping[OpOverload, Callable[..., Any]], opset_version: int, calls: Sequence[Call]
    ) -> None:
        self._translations = {qualified_name(target): translation for target, translation in table.items()}
        self._overloads: dict[str, list[OpOverload]] = {}
        for target in table:
            self._overloads.setdefault(qualified_name(target).partition(".")[0], []).append(target)
        self._opset_version = opset_version
        self._calls = calls
        self._functions: list[onnx_ir.Function] = []

    def __call__(self, g: Any, inputs: Sequence[Any]) -> Any:
        """Emit a node for the call that TorchScript converts; return NotImplemented to leave it to torch."""
        kind = g.original_node.kind()
        call = self._traced_call(*inputs) if kind == OPERATOR else self._call(kind, inputs)
        function = self._function(call) if call else None
        if call is None or function is None:
            return NotImplemented
        given = filter(is_graph_value, flatten(call.arguments))
        emitted = g.op(f"{_DOMAIN}::{function.name}", *given, outputs=len(function.outputs))
        values = emitted if isinstance(emitted, tuple) else (emitted,)
        traced = [item.type() for item in g.original_node.outputs()]
        listed = traced[0].kind() == "ListType"
        if listed:
            traced = [torch.TensorType.create_from_tensor(item) for item in call.outputs]
        for value, known in zip(values, _types(call, traced), strict=False):
            value.setType(known)
        if listed:
            return g.op("prim::ListConstruct", *values).setType(torch.ListType(torch.TensorType.get()))
        return values

    def inline_translations(self, model: onnx_ir.Model) -> None:
        """Replace the emitted nodes in the exported model by the nodes of their translations."""
        for function in self._functions:
            for node in function.all_nodes():
                model.opset_imports.setdefault(node.domain, node.version or 1)
            function.opset_imports.update(model.opset_imports)
            model.functions[function.identifier()] = function
        InlinePass(lambda function: function.domain == _DOMAIN)(model)
        model.opset_imports.pop(_DOMAIN, None)

    def _traced_call(self, tensors: Any, number: Any) -> Call:
        call = self._calls[_constant(number)]
        return Call(call.target, replace_leaves(call.arguments, tensors.node().inputs()), call.result)

    def _call(self, kind: str, inputs: Sequence[Any]) -> Call | None:
        """Return the call of an operator with a translation, or None if no overload takes the inputs."""
        names = (kind, kind.removesuffix("_"), _TRACED_AS.get(kind, ""))
        for target in (target for name in names for target in self._overloads.get(name, ())):
            declared = schema_arguments(target)
            # TorchScript does not say which overload is called.
            if len(declared) == len(inputs) and all(map(_takes, declared, inputs)):
                return Call(target, _arguments(declared, inputs))
        return None

    def _function(self, call: Call) -> onnx_ir.Function | None:
        """Return what the translation emits as a function of the graph values in the arguments, or None if nothing."""
        name = qualified_name(call.target)
        leaves = [_in_translation(leaf) for leaf in flatten(call.arguments)]
        args, kwargs = unflatten(call.arguments, leaves)
        with recorded_nodes(self._opset_version) as nodes, called_as_nodes():
            result = self._translations[name](*args, **kwargs)
        if result is NotImplemented and call.outputs:
            raise no_translation_error(call.target)
        if result is NotImplemented:
            return None
        check_returned(call.target, result)
        inputs = [leaf for leaf in leaves if isinstance(leaf, onnx_ir.Value)]
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        check_opset(f"the translation of {name}", nodes, None, self._opset_version)
        unique = f"{name.partition('::')[2].replace('.', '_')}_{len(self._functions)}"
        graph = onnx_ir.Graph(inputs, outputs, nodes=nodes, name=unique)
        self._functions.append(onnx_ir.Function(_DOMAIN, unique, graph=graph, attributes=[]))
        return self._functions[-1]


def _types(call: Call, traced: Sequence[Any]) -> list[torch.JitType]:
    """Return the types of a call's outputs, with the sizes that are the same in every run, or of those traced."""
    try:
        return fake_types(call.target, *call.arguments)
    except Exception:  # the fake needs a size that may change between runs, or the rank of an input is not known
        return [item.with_sizes([None] * item.dim()) for item in traced if item.dim() is not None]


def _in_translation(leaf: Any) -> Any:
    """Return an argument as a translation gets it: an ONNX value for a graph value, an ONNX type for a dtype."""
    if isinstance(leaf, torch.dtype):
        return element_type(leaf)
    if not is_graph_value(leaf):
        return leaf
    if leaf.type().kind() != "TensorType":
        return onnx_ir.Value(name=leaf.debugName())
    dtype, sizes = leaf.type().dtype(), leaf.type().varyingSizes()
    return onnx_ir.Value(
        name=leaf.debugName(),
        type=None if dtype is None else onnx_ir.TensorType(element_type(dtype)),
        shape=None if sizes is None else onnx_ir.Shape(sizes),
    )


def _takes(item: Argument, value: Any) -> bool:
    if _is_none(value):
        return "Optional" in item.type
    if item.is_tensor:
        return bool(item.is_tensor_list == (value.node().kind() == "prim::ListConstruct"))
    return "List" in item.type or bool(value.type().kind() == "TensorType" and value.type().dim() in (0, None))


def _arguments(declared: Sequence[Argument], inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Convert graph values to the positional and keyword arguments of an operator."""
    values = [_argument(item, value) for item, value in zip(declared, inputs, strict=True)]
    numbers = [_number(value) for value in values]
    tensors = [number for item, number in zip(declared, numbers, strict=True) if item.is_tensor]
    # Next to a tensor, a constant scalar is a Python number that the tracer wrapped.
    return as_exported(declared, numbers if any(map(is_graph_value, tensors)) else values)


def _argument(item: Argument, value: Any) -> Any:
    if _is_none(value):
        return None
    if item.is_tensor:
        return list(value.node().inputs()) if item.is_tensor_list else value
    number = _constant(value)
    return JitScalarType(number).dtype() if item.is_dtype and isinstance(number, int) else number


def _number(value: Any) -> Any:
    found = _constant(value) if is_graph_value(value) else value
    return value if isinstance(found, list) else found


def _is_none(value: Any) -> bool:
    return value is None or value.type().kind() == "NoneType"


def _constant(value: Any) -> Any:
    """Return a constant number, string or list of them; a value known only when the model runs is returned itself."""
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        return [_constant(item) for item in node.inputs()]
    if node.kind() != "onnx::Constant":
        return value
    return node.s("value") if node.kindOf("value") == "s" else node.t("value").tolist()
