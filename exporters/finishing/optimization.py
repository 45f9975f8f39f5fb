"""Torch's optimization of an exported model, which leaves every call of a declared op in it.

A kernel is any Python: it may count, log or draw random numbers. The optimizer merges nodes that are
equal and drops those whose outputs nobody uses, whatever their domain; ONNX Runtime does neither to a
custom operator.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import onnx_ir
import torch
from onnx_ir.passes.common import InlinePass

from pyops import registry

# Two underscores before a name keep onnx from looking for it in a schema.
_MARK = "__pyops_call"


class Keepers:
    """Uses of values that no pass sees, since no graph has them; inside its ``with`` block nothing drops the values."""

    def __init__(self) -> None:
        self._nodes: list[onnx_ir.Node] = []

    def keep(self, values: Sequence[onnx_ir.Value]) -> None:
        """Count as a use of the values."""
        self._nodes.append(onnx_ir.Node("", "Identity", values))

    def __enter__(self) -> Keepers:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        self._nodes.clear()


def optimize(program: torch.onnx.ONNXProgram, functions: Container[tuple[str, str]] = ()) -> None:
    """Optimize the program's model in place, as ``torch.onnx.export(optimize=True)`` does.

    Parameters
    ----------
    functions : container of (str, str)
        Domain and name of functions that the model will get, whose calls stay as well.
    """
    if program.model.functions:
        InlinePass()(program.model)
    calls = [
        node
        for node in all_nodes(program.model)
        if registry.versions(node.domain, node.op_type) or (node.domain, node.op_type) in functions
    ]
    with Keepers() as keepers:
        for number, node in enumerate(calls):
            keepers.keep(node.outputs)
            node.attributes.add(onnx_ir.AttrInt64(_MARK, number))
        program.optimize()
    for node in calls:
        node.attributes.pop(_MARK, None)


def all_nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    """Every node of the graph, its subgraphs and the model's functions."""
    yield from onnx_ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from onnx_ir.traversal.RecursiveGraphIterator(function)
