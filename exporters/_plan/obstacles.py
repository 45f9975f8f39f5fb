"""Reasons why a call of a captured graph cannot be one node of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import CustomObjArgument
from torch.fx import Node

from .._fallback import allowed_operators
from .._torch.operators import find_overload
from .._torch_private.operators import OpOverload, is_mutable, is_random, qualified_name
from .._torch_private.trees import present_leaves, tensor_leaves

_aten = torch.ops.aten

# They only reinterpret a tensor, which takes no node in an ONNX model.
_VIEWS = {
    _aten.view_as_real.default,
    _aten.view_as_complex.default,
    _aten.resolve_conj.default,
    _aten.lift_fresh_copy.default,
}


def obstacle(node: Node) -> str:
    """Return why a call cannot be a single node of a model, whatever computes it, or ``""`` if it can."""
    if node.target in _VIEWS:
        return "it only reinterprets a tensor"
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


def refusal(node: Node, target: OpOverload) -> str:
    """Return why a call cannot become a node that calls torch, or ``""`` if it can."""
    return obstacle(node) or allowed_operators.refusal(target, {target.namespace})


def functional_operator(target: OpOverload) -> OpOverload | None:
    """Return the operator that torch puts in place of one that writes to its argument, or the operator itself."""
    if not is_mutable(target):
        return target
    name, _, overload = qualified_name(target).partition(".")
    return find_overload(f"{name.removesuffix('_')}.{overload}".rstrip("."))


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


def has_complex_input(node: Node) -> bool:
    """Return whether a call takes a complex tensor."""
    return any(tensor.is_complex() for item in node.all_input_nodes for tensor in tensor_leaves(item.meta.get("val")))


def _value_obstacle(value: Any) -> str:
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return "it takes or returns a float or a bool that is known only at run time"
    if isinstance(value, CustomObjArgument):
        return f"it takes a {value.class_fqn}, which ONNX does not have"
    return tensor_obstacle(value)


def tensor_obstacle(value: Any) -> str:
    """Return why a value of a graph, or a tensor in it, cannot be in an ONNX model, or ``""`` if it can."""
    for tensor in tensor_leaves(value):
        if tensor.layout is not torch.strided:
            return f"it takes or returns a sparse tensor ({tensor.layout}), which ONNX does not support"
        if tensor.is_quantized or "bits" in str(tensor.dtype):
            return f"it takes or returns a tensor of {tensor.dtype}, which neither ONNX nor NumPy supports"
    return ""
