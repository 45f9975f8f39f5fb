"""What each value of a recorded graph depends on: the model's arguments, its state, or chance."""

from __future__ import annotations

from collections import defaultdict

from torch.fx import Graph, Node

from .._torch_private.operators import OpOverload, aliased_names, is_random, schema_arguments
from .decisions import Source

_ORDER: tuple[Source, ...] = ("inputs", "random", "state")


def sources(graph: Graph, state: int) -> dict[Node, Source | None]:
    """Return the strongest source of each node; None for what is the same in every run.

    What is written to a tensor counts for every tensor on the same memory, earlier ones included.

    Parameters
    ----------
    state : int
        The number of parameters and buffers, which come first among the graph's inputs.
    """
    memory: dict[Node, Node] = {}
    found: dict[Node, set[Source]] = defaultdict(set)
    placeholders = 0
    for node in graph.nodes:
        aliased = _aliased(node)
        memory[node] = memory[aliased[0]] if aliased else node
        own = found[memory[node]]
        if node.op == "placeholder":
            own.add("state" if placeholders < state else "inputs")
            placeholders += 1
        elif isinstance(node.target, OpOverload) and is_random(node.target):
            own.add("random")
        for item in node.all_input_nodes:
            own |= found[memory[item]]
        for item in aliased[1:]:
            found[memory[item]] |= own
    return {node: next((item for item in _ORDER if item in found[memory[node]]), None) for node in graph.nodes}


def _aliased(node: Node) -> list[Node]:
    """Return the arguments of a call with whose memory it returns a tensor, or to which it writes."""
    if not isinstance(node.target, OpOverload):
        return node.all_input_nodes[:1] if node.op == "call_function" else []  # an item of several results
    arguments = dict(zip((item.name for item in schema_arguments(node.target)), node.args, strict=False))
    values = [(arguments | node.kwargs).get(name) for name in aliased_names(node.target)]
    flat = [item for value in values for item in (value if isinstance(value, (list, tuple)) else [value])]
    return [item for item in flat if isinstance(item, Node)]
