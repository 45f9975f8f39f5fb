"""What each value of a recorded graph depends on: the model's arguments, its state, or chance."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node

from .._torch.private.operators import OpOverload, aliased_names, qualified_name
from .decisions import Source
from .graph_calls import arguments_of, draws

_ORDER: tuple[Source, ...] = ("inputs", "random", "state")


_STATE = (InputKind.PARAMETER, InputKind.BUFFER)
_SYMBOL = re.compile(r"\b(?:u|zuf)\d+\b")  # torch's names of numbers known only at run time: u0, zuf0, ...


def sources(graph: Graph, inputs: Sequence[Source | None]) -> dict[Node, Source | None]:
    """Return the strongest source of each node; None for a value that is the same in every run.

    A write to a tensor adds its sources to every tensor on the same memory, earlier ones included.

    Parameters
    ----------
    inputs : sequence
        The source of each input of the graph.
    """
    memory: dict[Node, Node] = {}
    found: dict[Node, set[Source]] = defaultdict(set)
    given = iter(inputs)
    for node in graph.nodes:
        aliased = _aliased(node)
        memory[node] = memory[aliased[0]] if aliased else node
        own = found[memory[node]]
        if node.op == "placeholder":
            own |= {source for source in [next(given)] if source}
        elif draws(node):
            own.add("random")
        for item in node.all_input_nodes:
            own |= found[memory[item]]
        for item in aliased[1:]:
            found[memory[item]] |= own
    return {node: _strongest(found[memory[node]]) for node in graph.nodes}


def expression_sources(program: torch.export.ExportedProgram, expressions: Iterable[str]) -> list[Source | None]:
    """Return the strongest source of the symbols in each expression of a captured program.

    The source of a symbol is that of the assertions about it that torch adds to the graph.
    """
    kinds = [item.kind for item in program.graph_signature.input_specs]
    inputs: list[Source | None] = [
        "state" if kind in _STATE else "inputs" if kind is InputKind.USER_INPUT else None for kind in kinds
    ]
    found = sources(program.graph, inputs)
    known = {
        symbol: found[node]
        for node in program.graph.nodes
        if isinstance(node.target, OpOverload) and qualified_name(node.target) == "aten::_assert_scalar"
        for symbol in _SYMBOL.findall(str(node.args[1]))
    }
    return [_strongest(known.get(symbol, "inputs") for symbol in _SYMBOL.findall(item)) for item in expressions]


def _strongest(found: Iterable[Source | None]) -> Source | None:
    found = set(found)
    return next((item for item in _ORDER if item in found), None)


def _aliased(node: Node) -> list[Node]:
    """Return the arguments of a call that it writes to, or whose memory its result shares."""
    if not isinstance(node.target, OpOverload):
        return node.all_input_nodes[:1] if node.op == "call_function" else []  # a getitem of several results
    arguments = arguments_of(node)
    values = [arguments[name] for name in aliased_names(node.target)]
    flat = [item for value in values for item in (value if isinstance(value, (list, tuple)) else [value])]
    return [item for item in flat if isinstance(item, Node)]
