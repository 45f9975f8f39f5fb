"""Translations as TorchScript's symbolic functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir
from onnx_ir.passes.common import InlinePass

from .._lowering.functions import called_as_nodes
from .._lowering.op_translation import check_returned
from .._lowering.opset_check import check_opset
from .._lowering.translations import no_translation_error
from .._torch_private.exporter import recorded_nodes
from .._torch_private.operators import OpOverload, qualified_name, schema_arguments, spell
from .._torch_private.torchscript import installed_symbolics, list_type, tensor_type
from .._torch_private.trees import replace_leaves
from ..errors import ExportError
from .graph_values import Returned, arguments, constant, emitted_arguments, fits, graph_values, ir_value, returned, spec
from .tracing import OPERATOR, TracedCalls

_DOMAIN = "pyops.translated"

# TorchScript traces torch.inverse as torch.linalg.inv, which it calls.
_TRACED_AS = {"aten::inverse": "aten::linalg_inv"}


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
            target = next((item for item in targets if fits(schema_arguments(item), inputs)), None)
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
        args, kwargs = arguments(schema_arguments(target), inputs)
        if outputs[0].type().kind() == "ListType":
            return _packed(g, self._emit(g, target, args, kwargs, None))
        values = self._emit(g, target, args, kwargs, list(map(spec, outputs)))
        return values[0] if isinstance(values, tuple) and len(values) == 1 else values

    def _traced_call(self, g: Any, tensors: Any, number: Any) -> Any:
        call = self._traced.calls[constant(number)]
        args, kwargs = replace_leaves(call.arguments, tensors.node().inputs())
        values = self._emit(g, call.target, args, kwargs, [(item.dtype, item.shape) for item in call.outputs])
        if values is NotImplemented:
            raise no_translation_error(call.target)
        return _packed(g, values)

    def _emit(self, g: Any, target: OpOverload, args: Any, kwargs: Any, traced: Returned | None) -> Any:
        """Emit a node with the types of torch's outputs; return a tuple of values, or NotImplemented."""
        given = graph_values((args, kwargs))
        name = self._add_function(target, args, kwargs, given)
        if name is NotImplemented:
            return NotImplemented
        count = len(self._functions[-1].outputs)
        emitted = g.op(f"{_DOMAIN}::{name}", *given, outputs=count)
        values = emitted if isinstance(emitted, tuple) else (emitted,)
        for value, (dtype, shape) in zip(values, returned(target, args, kwargs, traced), strict=False):
            if dtype is not None:
                value.setType(tensor_type(dtype, shape))
        return values

    def _add_function(self, target: OpOverload, args: Any, kwargs: Any, given: Sequence[Any]) -> Any:
        """Store what the translation emits as a function of `given`, and return its name, or NotImplemented."""
        inputs = [ir_value(f"input_{i}", value) for i, value in enumerate(given)]
        ir_args, ir_kwargs = emitted_arguments((args, kwargs), inputs)
        with recorded_nodes(self._opset_version) as nodes, called_as_nodes():
            result = self._table[qualified_name(target)][1](*ir_args, **ir_kwargs)
        if result is NotImplemented:
            return NotImplemented
        check_returned(target, result)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        name = f"{qualified_name(target).partition('::')[2].replace('.', '_')}_{len(self._functions)}"
        graph = onnx_ir.Graph(inputs, outputs, nodes=nodes, name=name)
        emitted = graph.all_nodes()
        check_opset(f"the translation of {qualified_name(target)}", emitted, None, self._opset_version)
        self._functions.append(onnx_ir.Function(_DOMAIN, name, graph=graph, attributes=[]))
        return name


def _packed(g: Any, values: Any) -> Any:
    if values is NotImplemented:
        return values
    return g.op("prim::ListConstruct", *values).setType(list_type())
