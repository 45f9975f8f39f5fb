"""The nodes of a model."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir


def all_nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    """Every node of the graph, its subgraphs and the model's functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()
