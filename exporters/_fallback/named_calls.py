"""Names for the calls of a graph, which are the same in every capture of a model and in torch's exporter.

torch's exporter keeps a node's custom metadata, so each call stores its name there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from .._lowering.explanations import causes
from .._torch_private.operators import OpOverload

_MARK = "pyops_call"


def graphs(program: torch.export.ExportedProgram) -> Iterator[tuple[str, GraphModule]]:
    """Yield the graph of a program and its subgraphs, including branches of ``torch.cond``, with their names."""
    for name, module in program.graph_module.named_modules():
        if isinstance(module, GraphModule):
            yield name, module


def call_nodes(program: torch.export.ExportedProgram) -> Iterator[tuple[str, Node]]:
    """Yield every call of a torch operator, with its name."""
    for name, module in graphs(program):
        for node in module.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, OpOverload):
                yield f"{name}/{node.name}", node


def target_of(call: Node) -> OpOverload:
    """Return the operator that a node calls."""
    assert isinstance(call.target, OpOverload)
    return call.target


def mark(program: torch.export.ExportedProgram) -> None:
    """Write the name of every call into its metadata."""
    for name, node in call_nodes(program):
        node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: name}


def mark_of(node: Node) -> str | None:
    """Return the name of the call that a node is, or is decomposed from, or None."""
    return (node.meta.get("custom") or {}).get(_MARK)


def calls_at_fault(error: BaseException) -> list[str]:
    """Return the names of the calls that an exception of torch's exporter is about, the likeliest first.

    The exporter's functions have the current node in a local variable, which the traceback gives.
    """
    found: list[str] = []
    for cause in causes(error):
        trace = cause.__traceback__
        while trace is not None:
            values = trace.tb_frame.f_locals
            for item in (values.get("node"), values.get("n")):
                name = mark_of(item) if isinstance(item, Node) else None
                if name:
                    found.insert(0, name)
            trace = trace.tb_next
    return found
