"""Emission of the node that calls torch for a call of a captured graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node

from .._lowering.nodes import emit
from .._torch_private.operators import OpOverload, schema_arguments
from .._torch_private.trees import flatten, present_leaves
from . import calls, kernel


def emit_fallback(
    node: Node, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], number: int | None
) -> Any:
    """Emit a node that calls torch, and return its outputs: the tensors of the call, flattened.

    Parameters
    ----------
    node, target
        The call, and the operator that it means.
    args, kwargs
        The arguments of the call as torch's exporter passes them, with graph values for tensors and sizes.
    number : int, optional
        Distinguishes equal calls of a random operator.

    Raises
    ------
    ExportError
        Another op is declared under the node's domain and name.
    """
    kernel.register_fallback(target.namespace)
    values = dict(zip(flatten((node.args, node.kwargs)), flatten((args, kwargs)), strict=True))
    inputs = node.all_input_nodes
    declared = schema_arguments(target)
    optional = {item.name for item in declared if item.has_default and item.default is None}
    arguments = {item.name: value for item, value in zip(declared, node.args, strict=False)} | dict(node.kwargs)
    given = {name: value for name, value in arguments.items() if value is not None or name not in optional}
    attributes = {
        "overload_name": kernel.overload_name(target),
        "arguments": calls.encode(given, inputs, [calls.tag(item.meta["val"]) for item in inputs]),
        "call": number,
    }
    outputs = len(present_leaves(node.meta["val"]))
    results = emit(kernel.op_of(target), [values[item] for item in inputs], attributes, outputs)
    return results if outputs > 1 else [results]
