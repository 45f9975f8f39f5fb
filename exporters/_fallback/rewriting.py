"""Rewriting of calls in an exported graph as fallback calls, in place."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.export.graph_signature import CustomObjArgument
from torch.fx import Graph, Node

from .._torch_private.operators import OpOverload, is_mutable, is_random, qualified_name, schema_arguments
from .._torch_private.trees import present_leaves, tensor_leaves
from . import calls, opaque, rule
from .kernel import allowed_namespaces
from .named_calls import target_of

_aten = torch.ops.aten

# These become no node of an ONNX model.
_KEPT = {
    _aten.view_as_real.default,
    _aten.view_as_complex.default,
    _aten.resolve_conj.default,
    _aten.lift_fresh_copy.default,
}


def refusal(node: Node, namespaces: set[str] | None = None) -> str:
    """Return why a call cannot become a node that calls torch, or ``""`` if it can.

    Parameters
    ----------
    namespaces : set of str, optional
        The namespaces that may be called; by default those that this process registered.
    """
    problem = obstacle(node)
    if problem or is_constant(node):
        return problem
    return rule.refusal(target_of(node), allowed_namespaces() if namespaces is None else namespaces)


def obstacle(node: Node) -> str:
    """Return why a call cannot be a single node of a model, whatever computes it, or ``""`` if it can."""
    if node.target in _KEPT or opaque.is_fallback(node.target):
        return "it needs no kernel"
    if is_constant(node):
        return ""
    outputs = present_leaves(node.meta.get("val"))
    if not outputs:
        return "it returns nothing"
    for value in [item.meta.get("val") for item in node.all_input_nodes] + outputs:
        problem = _value_obstacle(value)
        if problem:
            return problem
    if not any(tensor_leaves(item.meta.get("val")) for item in node.all_input_nodes):
        return "this call takes no tensor"
    return ""


def is_constant(node: Node) -> bool:
    """Return whether a call returns the same tensor in every run, because it has no inputs and is not random."""
    target = node.target
    return (
        isinstance(target, OpOverload)
        and not node.all_input_nodes
        and not is_mutable(target)
        and not is_random(target)
        and isinstance(node.meta.get("val"), torch.Tensor)
        and not _value_obstacle(node.meta["val"])
    )


def _value_obstacle(value: Any) -> str:
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return "it takes a number other than an integer that is known only at run time"
    if isinstance(value, CustomObjArgument):
        return f"it takes a {value.class_fqn}, which ONNX does not have"
    for tensor in tensor_leaves(value):
        if tensor.layout is not torch.strided:
            return f"it has a sparse tensor ({tensor.layout}), which ONNX does not support"
        if tensor.is_quantized or "bits" in str(tensor.dtype):
            return f"it has a tensor of {tensor.dtype}, which neither ONNX nor NumPy supports"
    return ""


def rewrite(node: Node, number: int, *, by_torch: bool = False) -> str:
    """Replace a call, for which `obstacle` must return ``""``, by a fallback call.

    The node keeps its name and its metadata. Both the exporter and the fallback represent a complex tensor as pairs
    along a last dimension; ``view_as_real`` and ``view_as_complex`` are inserted around the call, and become no node
    of the model.

    Parameters
    ----------
    number : int
        Distinguishes equal calls of a random operator.
    by_torch : bool
        As in `opaque.Call`.

    Returns
    -------
    str
        The call as text, from `opaque.spell`.
    """
    target = target_of(node)
    values = present_leaves(node.meta["val"])
    text, tensors, sizes = _encoded(node)
    random = number if is_random(target) else None
    call = opaque.Call(qualified_name(target), text, len(values), random, by_torch)
    graph = node.graph
    with graph.inserting_before(node):
        pairs = [_as_pairs(graph, item) for item in tensors]
    spelled = opaque.spell(call)
    arguments = (spelled, pairs, sizes)
    if isinstance(node.meta["val"], torch.Tensor):
        if node.meta["val"].is_complex():
            with graph.inserting_before(node):
                real = graph.call_function(opaque.one_output(call.name), arguments)
            real.meta = {key: value for key, value in node.meta.items() if key != "val"}
            # The inserted node now defines the sizes known only at run time.
            node.meta.pop("unbacked_bindings", None)
            _retarget(node, _aten.view_as_complex.default, (real,))
        else:
            _retarget(node, opaque.one_output(call.name), arguments)
        return spelled
    _retarget(node, opaque.several_outputs(call.name), arguments)
    for item, index in list(_items(node, node.meta["val"], 0)):
        if values[index].is_complex():
            with graph.inserting_before(item):
                real = graph.call_function(operator.getitem, (node, index))
            _retarget(item, _aten.view_as_complex.default, (real,))
        else:
            item.args = (node, index)
    return spelled


def _retarget(node: Node, target: Any, arguments: tuple[Any, ...]) -> None:
    node.target = target
    node.args = arguments
    node.kwargs = {}


def _as_pairs(graph: Graph, node: Node) -> Node:
    if not node.meta["val"].is_complex():
        return node
    resolved = graph.call_function(_aten.resolve_conj.default, (node,))
    return graph.call_function(_aten.view_as_real.default, (resolved,))


def _items(node: Node, value: Any, first: int) -> Iterator[tuple[Node, int]]:
    """Yield the nodes that extract one tensor each from nested lists, with its index in the flattened result."""
    for user in list(node.users):
        index = user.args[1]
        assert isinstance(index, int)
        place = first + len(present_leaves(value[:index]))
        if isinstance(value[index], torch.Tensor):
            yield user, place
        elif value[index] is not None:
            yield from _items(user, value[index], place)


def _encoded(node: Node) -> tuple[str, list[Node], list[Node]]:
    """Return the arguments of a call in JSON, and the nodes that compute its tensors and its sizes."""
    inputs = [item for item in node.all_input_nodes if item.meta.get("val") is not None]
    tensors = [item for item in inputs if isinstance(item.meta["val"], torch.Tensor)]
    sizes = [item for item in inputs if not isinstance(item.meta["val"], torch.Tensor)]
    declared = schema_arguments(target_of(node))
    optional = {item.name for item in declared if item.has_default and item.default is None}
    arguments = {item.name: value for item, value in zip(declared, node.args, strict=False)} | dict(node.kwargs)
    given = {name: value for name, value in arguments.items() if value is not None or name not in optional}
    inputs = [*tensors, *sizes]
    return calls.encode(given, inputs, [calls.tag(item.meta["val"]) for item in inputs]), tensors, sizes
