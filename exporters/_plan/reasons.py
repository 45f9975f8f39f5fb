"""What exports each call, and the reasons why nothing else does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import CustomObjArgument
from torch.fx import Node

from .._fallback import allowed_operators
from .._report import By, Fallback, OutputComparison, describe_differences
from .._torch.private.operators import OpOverload, find_overload, is_mutable, is_random, qualified_name
from .._torch.private.trees import present_leaves, tensor_leaves

_aten = torch.ops.aten

# They only reinterpret a tensor, which takes no node in an ONNX model.
_VIEWS = {
    _aten.view_as_real.default,
    _aten.view_as_complex.default,
    _aten.resolve_conj.default,
    _aten.lift_fresh_copy.default,
}


@dataclass(frozen=True)
class Finding:
    """What is wrong with torch's translation of a call: differences in its outputs, or an error."""

    differences: tuple[OutputComparison, ...] = ()
    error: str = ""

    @property
    def reason(self) -> str:
        """Return the finding in one line."""
        if self.error:
            return f"its translation fails: {self.error}"
        return f"its translation is wrong: {describe_differences(self.differences)}"


@dataclass(frozen=True)
class Decision:
    """What exports one call of the lowered graph, and why.

    Attributes
    ----------
    call : str
        The name of the captured call that it is, or that it is decomposed from.
    operator : str
        The operator of the lowered call.
    source : str
        The line of the model's code that calls it.
    finding : Finding, optional
        What was wrong with an earlier translation of the call.
    """

    call: str
    operator: str
    by: By
    reason: str
    source: str
    finding: Finding | None = None


def fallbacks(decisions: Iterable[Decision]) -> tuple[Fallback, ...]:
    """Return one Fallback for each operator with a call that falls back, in the order of the first calls."""
    calls: dict[str, list[Decision]] = {}
    for call in decisions:
        if call.by == "fallback":
            calls.setdefault(call.operator, []).append(call)
    return tuple(_fallback(operator, found) for operator, found in calls.items())


def _fallback(operator: str, calls: list[Decision]) -> Fallback:
    findings = list(dict.fromkeys(call.finding for call in calls if call.finding is not None))
    return Fallback(
        operator,
        len(calls),
        tuple(dict.fromkeys(call.source for call in calls if call.source)),
        "; ".join(dict.fromkeys(call.reason for call in calls)),
        f'exporters.register_translation("{operator}", op), with an Op of yours or a function that emits nodes',
        tuple(report for finding in findings for report in finding.differences),
        next((finding.error for finding in findings if finding.error), ""),
    )


def against_node(node: Node) -> str:
    """Return why a call cannot be a single node of a model, whatever computes it, or ``""`` if it can."""
    if node.target in _VIEWS:
        return "it only reinterprets a tensor"
    if is_constant(node):
        return ""
    outputs = present_leaves(node.meta.get("val"))
    if not outputs:
        return "it returns nothing"
    for value in [item.meta.get("val") for item in node.all_input_nodes] + outputs:
        reason = _reason_against_argument(value)
        if reason:
            return reason
    if not any(tensor_leaves(item.meta.get("val")) for item in node.all_input_nodes):
        return "this call takes no tensor"
    return ""


def against_fallback(node: Node, target: OpOverload) -> str:
    """Return why a call cannot become a node that calls torch, or ``""`` if it can."""
    return against_node(node) or allowed_operators.reason_against(target, {target.namespace})


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
        and not _reason_against_argument(node.meta["val"])
    )


def has_complex_input(node: Node) -> bool:
    """Return whether a call takes a complex tensor."""
    return any(tensor.is_complex() for item in node.all_input_nodes for tensor in tensor_leaves(item.meta.get("val")))


def _reason_against_argument(value: Any) -> str:
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return "it takes or returns a float or a bool that is known only at run time"
    if isinstance(value, CustomObjArgument):
        return f"it takes a {value.class_fqn}, which ONNX does not have"
    return against_value(value)


def against_value(value: Any) -> str:
    """Return why a value of a graph, or a tensor in it, cannot be in an ONNX model, or ``""`` if it can."""
    for tensor in tensor_leaves(value):
        if tensor.layout is not torch.strided:
            return f"it takes or returns a sparse tensor ({tensor.layout}), which ONNX does not support"
        if tensor.is_quantized or "bits" in str(tensor.dtype):
            return f"it takes or returns a tensor of {tensor.dtype}, which neither ONNX nor NumPy supports"
    return ""
