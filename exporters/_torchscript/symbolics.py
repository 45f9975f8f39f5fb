"""Translations as symbolic functions of TorchScript, which read their arguments from values of its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir
import torch
from onnx_ir.passes.common import InlinePass
from torch.onnx import JitScalarType

from .._lowering.op_translation import called_as_nodes, check_returned
from .._lowering.opset_check import check_opset
from .._lowering.translations import no_translation_error
from .._torch.operators import as_exported
from .._torch_private.exporter import element_type, recorded_nodes
from .._torch_private.operators import Argument, OpOverload, qualified_name, schema_arguments, spell
from .._torch_private.torchscript import fake_outputs, installed_symbolics, is_graph_value
from .._torch_private.trees import flatten, replace_leaves
from ..errors import ExportError
from .tracing import OPERATOR, TracedCalls

_DOMAIN = "pyops.translated"

# TorchScript traces torch.inverse as torch.linalg.inv, which it calls, and cuts off a last underscore.
_TRACED_AS = {
    "aten::inverse": "aten::linalg_inv",
    "aten::__lshift__": "aten::__lshift_",
    "aten::__rshift__": "aten::__rshift_",
}


class Symbolics:
    """The symbolic functions of one export.

    Each call emits one node with its own op type; what the translation emits is stored as the function of that type.
    """

    def __init__(self, table: Mapping[OpOverload, Callable[..., Any]], opset_version: int, traced: TracedCalls) -> None:
        self._table = {qualified_name(target): (target, translation) for target, translation in table.items()}
        self._opset_version = opset_version
        self._traced = traced
        self._own: Mapping[str, Callable[..., Any]] = {}
        self._functions: list[onnx_ir.Function] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Context manager: make TorchScript's exporter use the symbolic functions."""
        names: dict[str, list[OpOverload]] = {}
        for target, _ in self._table.values():
            names.setdefault(qualified_name(target).partition(".")[0], []).append(target)
        for alias, traced_as in _TRACED_AS.items():
            if alias in names:
                names.setdefault(traced_as, names[alias])
        functions = {name: self._symbolic(name, targets) for name, targets in names.items()}
        with installed_symbolics({**functions, OPERATOR: self._traced_call}, self._opset_version) as own:
            self._own = own
            yield

    def inline_translations(self, model: onnx_ir.Model) -> None:
        """Replace the emitted nodes in the exported model by the nodes of their translations."""
        for function in self._functions:
            for node in function.all_nodes():
                model.opset_imports.setdefault(node.domain, node.version or 1)
        for function in self._functions:
            function.opset_imports.update(model.opset_imports)
            model.functions[function.identifier()] = function
        InlinePass(lambda function: function.domain == _DOMAIN)(model)
        model.opset_imports.pop(_DOMAIN, None)

    def _symbolic(self, name: str, targets: Sequence[OpOverload]) -> Callable[..., Any]:
        def symbolic(g: Any, *inputs: Any, **attributes: Any) -> Any:
            target = next((item for item in targets if _fits(schema_arguments(item), inputs)), None)
            result = NotImplemented if target is None else self._translated(g, target, inputs)
            if result is not NotImplemented:
                return result
            if name in self._own:
                return self._own[name](g, *inputs, **attributes)
            raise ExportError(
                f"no registration for {name} takes a call with these {len(inputs)} arguments, and torch's TorchScript "
                f"exporter has no translation of its own; registered: {', '.join(map(spell, targets))}"
            )

        return symbolic

    def _translated(self, g: Any, target: OpOverload, inputs: Sequence[Any]) -> Any:
        outputs = list(g.original_node.outputs())
        args, kwargs = _arguments(schema_arguments(target), inputs)
        if outputs[0].type().kind() == "ListType":
            return _packed(g, self._emit(g, target, args, kwargs, []))
        values = self._emit(g, target, args, kwargs, [(item.type().dtype(), item.type().dim()) for item in outputs])
        return values[0] if isinstance(values, tuple) and len(values) == 1 else values

    def _traced_call(self, g: Any, tensors: Any, number: Any) -> Any:
        call = self._traced.calls[_constant(number)]
        args, kwargs = replace_leaves(call.arguments, tensors.node().inputs())
        values = self._emit(g, call.target, args, kwargs, [(item.dtype, item.dim()) for item in call.outputs])
        if values is NotImplemented:
            raise no_translation_error(call.target)
        return _packed(g, values)

    def _emit(
        self, g: Any, target: OpOverload, args: Any, kwargs: Any, traced: Sequence[tuple[torch.dtype, int | None]]
    ) -> Any:
        """Emit a node; return a tuple of values, or NotImplemented.

        Parameters
        ----------
        traced
            Dtype and rank of each output, as far as TorchScript knows them.
        """
        given = [leaf for leaf in flatten((args, kwargs)) if is_graph_value(leaf)]
        name = self._add_function(target, args, kwargs, given)
        if name is NotImplemented:
            return NotImplemented
        emitted = g.op(f"{_DOMAIN}::{name}", *given, outputs=len(self._functions[-1].outputs))
        values = emitted if isinstance(emitted, tuple) else (emitted,)
        try:
            types = fake_outputs(target, args, kwargs)
        except Exception:  # the fake needs a size that may change between runs, or the rank of an input is not known
            types = [(dtype, (None,) * rank) for dtype, rank in traced if dtype is not None and rank is not None]
        for value, (dtype, shape) in zip(values, types, strict=False):
            value.setType(torch.TensorType.get().with_dtype(dtype).with_sizes(list(shape)))
        return values

    def _add_function(self, target: OpOverload, args: Any, kwargs: Any, given: Sequence[Any]) -> Any:
        """Store what the translation emits as a function of `given`, and return its name, or NotImplemented."""
        inputs = [_ir_value(f"input_{i}", value) for i, value in enumerate(given)]
        emitted_args = replace_leaves((args, kwargs), inputs, is_graph_value)
        dtypes = [element_type(leaf) for leaf in flatten(emitted_args) if _is_dtype(leaf)]
        ir_args, ir_kwargs = replace_leaves(emitted_args, dtypes, _is_dtype)
        with recorded_nodes(self._opset_version) as nodes, called_as_nodes():
            result = self._table[qualified_name(target)][1](*ir_args, **ir_kwargs)
        if result is NotImplemented:
            return NotImplemented
        check_returned(target, result)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        name = f"{qualified_name(target).partition('::')[2].replace('.', '_')}_{len(self._functions)}"
        graph = onnx_ir.Graph(inputs, outputs, nodes=nodes, name=name)
        check_opset(f"the translation of {qualified_name(target)}", graph.all_nodes(), None, self._opset_version)
        self._functions.append(onnx_ir.Function(_DOMAIN, name, graph=graph, attributes=[]))
        return name


def _packed(g: Any, values: Any) -> Any:
    if values is NotImplemented:
        return values
    return g.op("prim::ListConstruct", *values).setType(torch.ListType(torch.TensorType.get()))


def _ir_value(name: str, value: Any) -> onnx_ir.Value:
    """Return the ONNX value that stands for a graph value in a translation."""
    if value.type().kind() != "TensorType":
        return onnx_ir.Value(name=name)
    dtype, sizes = value.type().dtype(), value.type().varyingSizes()
    return onnx_ir.Value(
        name=name,
        type=None if dtype is None else onnx_ir.TensorType(element_type(dtype)),
        shape=None if sizes is None else onnx_ir.Shape(sizes),
    )


def _is_dtype(leaf: Any) -> bool:
    return isinstance(leaf, torch.dtype)


def _fits(declared: Sequence[Argument], inputs: Sequence[Any]) -> bool:
    """Return whether values are arguments of an overload; TorchScript does not say which overload is called."""
    if len(declared) != len(inputs):
        return False
    for item, value in zip(declared, inputs, strict=True):
        if _is_none(value):
            fitting = "Optional" in item.type
        elif item.is_tensor:
            fitting = item.is_tensor_list == (value.node().kind() == "prim::ListConstruct")
        else:
            number = _constant(value)
            scalar = not isinstance(number, list) if number is not value else value.type().dim() in (0, None)
            fitting = "List" in item.type or scalar
        if not fitting:
            return False
    return True


def _arguments(declared: Sequence[Argument], inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Convert graph values to the positional and keyword arguments of an operator."""
    values = [_argument(item, value) for item, value in zip(declared, inputs, strict=True)]
    tensors = [value for item, value in zip(declared, values, strict=True) if item.is_tensor and is_graph_value(value)]
    if any(is_graph_value(_number(value)) for value in tensors):
        # Next to a tensor, a constant scalar is a Python number that the tracer wrapped.
        values = [_number(value) if is_graph_value(value) else value for value in values]
    return as_exported(declared, values)


def _argument(item: Argument, value: Any) -> Any:
    if _is_none(value):
        return None
    if item.is_tensor:
        return list(value.node().inputs()) if item.is_tensor_list else value
    number = _constant(value)
    if item.is_dtype and isinstance(number, int):
        return JitScalarType(number).dtype()
    return bool(number) if "bool" in item.type and isinstance(number, int) else number


def _number(value: Any) -> Any:
    found = _constant(value)
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
