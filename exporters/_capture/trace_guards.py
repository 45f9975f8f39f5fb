"""Guards in a recorded graph: calls that raise an error if a decision would differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .._torch_private.operators import OpOverload
from .._torch_private.trees import tensor_leaves
from .calls import place_of
from .decisions import Kind

_MOST_VALUES = 4096


class Guards:
    """The guards of a recorded graph; without an operator, nothing is guarded."""

    def __init__(self, recorded: GraphModule, operator: OpOverload | None) -> None:
        self._graph, self._operator = recorded.graph, operator
        self._waiting: list[tuple[Node, Node, Kind, Any]] = []
        self._guarded_sizes: dict[Node, tuple[Node, Node, Kind, Any]] = {}

    def add(self, node: Node, kind: Kind, value: Any) -> bool:
        """Guard the decision of a call; return whether that is possible.

        Parameters
        ----------
        value : any
            For a size, the results of the call; otherwise the value that Python code got.
        """
        if self._operator is None or node.op != "call_function":
            return False
        outputs: Any = self._graph.output_node().args[0]
        if any(map(_is_complex, [node] if kind == "size" else [node.args[0], *outputs[:1]])):
            return False
        if kind == "size":
            self._guard_sizes(node)
            return True
        if kind == "values" and value.numel() > _MOST_VALUES:
            return False
        asked = node if kind == "values" else node.args[0]
        with self._graph.inserting_after(node):
            # A copy, because the model may write to the tensor afterwards.
            copied = self._graph.call_function(torch.ops.aten.clone.default, (asked,))
        self._waiting.append((node, copied, kind, value.tolist() if kind == "values" else value))
        return True

    def finish(self) -> None:
        """Put the guards of conditions and values on the path to the first output."""
        output = self._graph.output_node()
        (returned,) = output.args
        assert isinstance(returned, (list, tuple))
        if not returned:
            return
        first, *others = returned
        # What the code used of a result may be its sizes alone.
        unused = [item for item in self._guarded_sizes if item not in _ancestors(output)]
        for node, copied, kind, value in (*self._waiting, *map(self._guarded_sizes.__getitem__, unused)):
            with self._graph.inserting_before(output):
                first = self._call(node, first, copied, kind, value)
        output.args = ([first, *others],)

    def _guard_sizes(self, node: Node) -> None:
        tensors = [node] if isinstance(node.meta["val"], torch.Tensor) else list(node.users)
        for tensor in tensors:
            users = list(tensor.users)
            with self._graph.inserting_after(tensor):
                sizes = list(tensor.meta["val"].shape)
                guarded = self._call(node, tensor, tensor, "size", sizes)
            self._guarded_sizes[guarded] = node, tensor, "size", sizes
            for user in users:
                user.replace_input_with(tensor, guarded)

    def _call(self, node: Node, result: Any, asked: Node, kind: Kind, value: Any) -> Node:
        assert self._operator is not None
        file, line = place_of(node)
        attributes: dict[str, Any] = {"kind": kind, "expected": json.dumps(value), "line": f"{Path(file).name}:{line}"}
        call = self._graph.call_function(self._operator, (result, asked), attributes)
        call.meta["val"] = result.meta.get("val")
        return call


def _ancestors(node: Node) -> set[Node]:
    found = {node}
    for item in reversed(node.graph.nodes):
        if item in found:
            found.update(item.all_input_nodes)
    return found


def _is_complex(node: Any) -> bool:
    return any(item.is_complex() for item in tensor_leaves(node.meta.get("val")))
