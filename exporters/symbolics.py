"""Translations as TorchScript's symbolic functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx_ir
import torch
from onnx_ir.passes.common import InlinePass

from pyops.types import element_type

from ._torch_private import (
    Argument,
    fake_outputs,
    flatten,
    installed_symbolics,
    list_type,
    onnx_dtype,
    qualified_name,
    recorded_nodes,
    schema_arguments,
    spell,
    tensor_type,
    unflatten,
)
from .errors import ExportError
from .functions import check_opset
from .tensors import numpy_dtype
from .tracing import OPERATOR, TracedCalls

if TYPE_CHECKING:
    from torch._ops import OpOverload

_DOMAIN = "pyops.translated"

# TorchScript traces into torch.inverse, which is torch.linalg.inv.
_TRACED_AS = {"aten::inverse": "aten::linalg_inv"}

# In the place of sizes that are not fixed; what comes out the same with both is.
_SIZES = (8191, 16381)

Returned = Sequence[tuple[torch.dtype | None, Sequence[int | None]]]
"""Dtype and shape of what an operator returns."""


class Symbolics:
    """The symbolic functions of one export.

    Each emits one node of an op type of its own, and keeps as a function what the translation emitted.

    Parameters
    ----------
    table : mapping of torch.OpOverload to callable
        The translations.
    opset_version : int
        Of ONNX's own operators.
    traced : TracedCalls
        The calls that TorchScript does not see.
    """

    def __init__(self, table: Mapping[OpOverload, Callable[..., Any]], opset_version: int, traced: TracedCalls) -> None:
        self._table = {qualified_name(target): (target, translation) for target, translation in table.items()}
        self._opset_version = opset_version
        self._traced = traced
        self._own: Mapping[str, Callable[..., Any]] = {}
        self._functions: list[onnx_ir.Function] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside the ``with`` block TorchScript's exporter uses them."""
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

    def put_in_place(self, model: onnx_ir.Model) -> None:
        """Replace the nodes in the exported model by what the translations emitted."""
        for function in self._functions:
            for node in onnx_ir.traversal.RecursiveGraphIterator(function.graph):
                model.opset_imports.setdefault(node.domain, node.version or 1)
        for function in self._functions:
            function.opset_imports.update(model.opset_imports)
            model.functions[function.identifier()] = function
        InlinePass(lambda function: function.domain == _DOMAIN)(model)
        model.opset_imports.pop(_DOMAIN, None)

    def _symbolic(self, name: str, targets: Sequence[OpOverload]) -> Callable[..., Any]:
        def symbolic(g: Any, *inputs: Any, **attributes: Any) -> Any:
            target = next((item for item in targets if _fits(schema_arguments(item), inputs)), None)
            if target is None and name in self._own:
                return self._own[name](g, *inputs, **attributes)
            if target is None:
                raise ExportError(
                    f"the model calls {name} with {len(inputs)} arguments, and what is registered is "
                    f"{'; '.join(map(spell, targets))}"
                )
            args, kwargs = _arguments(schema_arguments(target), inputs)
            types = [output.type() for output in g.original_node.outputs()]
            if types[0].kind() == "ListType":
                return _packed(g, self._emit(g, target, args, kwargs, None))
            values = self._emit(g, target, args, kwargs, [_spec(item) for item in types])
            return values if len(values) > 1 else values[0]

        return symbolic

    def _traced_call(self, g: Any, tensors: Any, number: Any) -> Any:
        call = self._traced.calls[_constant(number)]
        args, kwargs = call.with_tensors(tensors.node().inputs())
        returned = [(item.dtype, item.shape) for item in call.outputs]
        return _packed(g, self._emit(g, call.target, args, kwargs, returned))

    def _emit(self, g: Any, target: OpOverload, args: Any, kwargs: Any, traced: Returned | None) -> tuple[Any, ...]:
        """Emit the node whose function the translation makes, with the types of what torch returns."""
        leaves = flatten((args, kwargs))
        given = [leaf for leaf in leaves if isinstance(leaf, torch._C.Value)]
        inputs = [_ir_value(f"input_{i}", value) for i, value in enumerate(given)]
        values = iter(inputs)
        ir_args, ir_kwargs = unflatten(
            (args, kwargs), [next(values) if isinstance(leaf, torch._C.Value) else leaf for leaf in leaves]
        )
        with recorded_nodes(self._opset_version) as nodes:
            result = self._table[qualified_name(target)][1](*ir_args, **ir_kwargs)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        expected = len(outputs if traced is None else traced)
        if len(outputs) != expected or not all(isinstance(item, onnx_ir.Value) for item in outputs):
            raise ExportError(
                f"the translation of {qualified_name(target)} returns {result!r}, and torch's operator {expected} "
                "tensors; return the value of a node for each"
            )
        check_opset(f"the translation of {qualified_name(target)}", iter(nodes), None, self._opset_version)
        name = f"{qualified_name(target).partition('::')[2].replace('.', '_')}_{len(self._functions)}"
        graph = onnx_ir.Graph(inputs, outputs, nodes=nodes, name=name)
        self._functions.append(onnx_ir.Function(_DOMAIN, name, graph=graph, attributes=[]))
        emitted = g.op(f"{_DOMAIN}::{name}", *given, outputs=expected)
        emitted = emitted if isinstance(emitted, tuple) else (emitted,)
        for value, (dtype, shape) in zip(emitted, _returned(target, args, kwargs, traced), strict=False):
            if dtype is not None:
                value.setType(tensor_type(dtype, shape))
        return emitted


def _packed(g: Any, values: tuple[Any, ...]) -> Any:
    return g.op("prim::ListConstruct", *values).setType(list_type())


def _fits(arguments: Sequence[Argument], inputs: Sequence[Any]) -> bool:
    """Whether these are an overload's arguments; TorchScript does not tell the overload."""
    if len(arguments) != len(inputs):
        return False
    for item, value in zip(arguments, inputs, strict=True):
        if _is_none(value):
            fits = "Optional" in item.type
        elif item.is_tensor:
            fits = item.is_tensor_list == (value.node().kind() == "prim::ListConstruct")
        else:
            fits = "List" in item.type or not isinstance(_constant(value), list)
        if not fits:
            return False
    return True


def _arguments(arguments: Sequence[Argument], inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as the other exporter passes them: those left out that equal their defaults."""
    values = [_argument(item, value) for item, value in zip(arguments, inputs, strict=True)]
    default = [
        item.has_default and not isinstance(value, torch._C.Value) and value == item.default
        for item, value in zip(arguments, values, strict=True)
    ]
    positional = [index for index, item in enumerate(arguments) if not item.keyword_only]
    while positional and default[positional[-1]]:
        positional.pop()
    keywords = [index for index, item in enumerate(arguments) if item.keyword_only and not default[index]]
    return [values[index] for index in positional], {arguments[index].name: values[index] for index in keywords}


def _argument(item: Argument, value: Any) -> Any:
    if _is_none(value):
        return None
    if item.is_tensor:
        return list(value.node().inputs()) if item.is_tensor_list else value
    constant = _constant(value)
    if item.is_dtype and isinstance(constant, int):
        return onnx_ir.DataType(onnx_dtype(constant))
    return bool(constant) if "bool" in item.type and isinstance(constant, int) else constant


def _is_none(value: Any) -> bool:
    return value is None or value.type().kind() == "NoneType"


def _constant(value: Any) -> Any:
    """A number, a string or a list of them; the value itself where it is only known when the model runs."""
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        return [_constant(item) for item in node.inputs()]
    if node.kind() != "onnx::Constant":
        return value
    return node.s("value") if node.kindOf("value") == "s" else node.t("value").tolist()


def _spec(type_: Any) -> tuple[torch.dtype | None, Sequence[int | None]]:
    return type_.dtype(), type_.varyingSizes() or []


def _ir_value(name: str, value: Any) -> onnx_ir.Value:
    made = onnx_ir.Value(name=name)
    if value.type().kind() == "TensorType":
        row = element_type(numpy_dtype(value.type().dtype())) if value.type().dtype() is not None else None
        made.dtype = onnx_ir.DataType(row.onnx) if row is not None else None
        made.shape = onnx_ir.Shape(value.type().varyingSizes()) if value.type().dim() is not None else None
    return made


def _returned(target: OpOverload, args: Any, kwargs: Any, traced: Returned | None) -> Returned:
    """What an operator returns, with None for sizes that another run may change.

    Those are found by its fake, which gets other sizes wherever an argument's is not fixed.
    """
    unknown = [(dtype, [None] * len(shape)) for dtype, shape in traced or ()]
    leaves = flatten((args, kwargs))
    given = [leaf for leaf in leaves if isinstance(leaf, torch._C.Value)]
    if any(value.type().kind() != "TensorType" or value.type().varyingSizes() is None for value in given):
        return unknown
    runs = []
    for size in _SIZES:
        metas = iter([_meta(value.type(), size) for value in given])
        filled = [next(metas) if isinstance(leaf, torch._C.Value) else leaf for leaf in leaves]
        try:
            runs.append(fake_outputs(target, *unflatten((args, kwargs), filled)))
        except Exception:  # whatever a fake says to sizes that do not go together
            return unknown
    return [
        (first[0], [size if size == other else None for size, other in zip(first[1], second[1], strict=True)])
        for first, second in zip(*runs, strict=True)
    ]


def _meta(type_: Any, size: int) -> torch.Tensor:
    return torch.empty(
        [size if fixed is None else fixed for fixed in type_.varyingSizes()], dtype=type_.dtype(), device="meta"
    )
