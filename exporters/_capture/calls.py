"""The calls of a captured graph, by names that survive torch's decompositions.

torch keeps a node's custom metadata in what it decomposes the node into, so each call stores its name there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from .._torch_private.operators import OpOverload
from .interception import original

_MARK = "pyops_call"


def call_nodes(program: torch.export.ExportedProgram) -> Iterator[tuple[str, Node]]:
    """Yield every call of a torch operator in the graph and its subgraphs (branches of ``torch.cond``), by name."""
    for name, module in program.graph_module.named_modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and isinstance(node.target, OpOverload):
                    yield f"{name}/{node.name}", node


def mark_calls(program: torch.export.ExportedProgram) -> dict[str, Node]:
    """Write the name of every call into its metadata, and return the calls by name."""
    found = dict(call_nodes(program))
    for name, node in found.items():
        node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: name}
    return found


def mark_of(node: Node) -> str:
    """Return the name of the call that a node is, or is decomposed from; ``""`` for neither."""
    return str((node.meta.get("custom") or {}).get(_MARK, ""))


def target_of(call: Node) -> OpOverload:
    """Return the operator that a node calls; for one that stands for another, that one."""
    assert isinstance(call.target, OpOverload)
    return original(call.target)
