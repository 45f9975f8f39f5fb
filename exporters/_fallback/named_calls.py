"""The calls of an exported graph by name, through captures of the same model and through torch's exporter.

Of what a node carries, torch's exporter keeps the custom metadata: each call has its name there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from .._lowering.explanations import causes
from .._torch_private.operators import OpOverload

_MARK = "pyops_call"


def graphs(program: torch.export.ExportedProgram) -> Iterator[tuple[str, GraphModule]]:
    """The graph of a program and its sub-graphs, those of ``torch.cond`` among them, by their names."""
    for name, module in program.graph_module.named_modules():
        if isinstance(module, GraphModule):
            yield name, module


def call_nodes(program: torch.export.ExportedProgram) -> Iterator[tuple[str, Node]]:
    """Every call of a torch operator, with a name that it keeps from one capture of a model to the next."""
    for name, module in graphs(program):
        for node in module.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, OpOverload):
                yield f"{name}/{node.name}", node


def target_of(call: Node) -> OpOverload:
    """The operator that it calls."""
    assert isinstance(call.target, OpOverload)
    return call.target


def mark(program: torch.export.ExportedProgram) -> None:
    """Write every call's name onto it."""
    for name, node in call_nodes(program):
        node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: name}


def mark_of(node: Node) -> str | None:
    """The name that `mark` gave the call that a node is, or is made of."""
    return (node.meta.get("custom") or {}).get(_MARK)


def calls_at_fault(error: BaseException) -> list[str]:
    """The names of the marked calls that an exception of torch's exporter is about, the likeliest first.

    The exporter's functions have the node that they work on in a local variable.
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
