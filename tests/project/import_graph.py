"""Which subpackage imports which: a subpackage, or a module beside them, is one unit."""

from __future__ import annotations

import functools

import grimp
import networkx

PACKAGES = ("pyops", "exporters")


@functools.cache
def modules() -> networkx.DiGraph[str]:
    """Return an edge from every module to each that it imports, inside functions and for type checkers too."""
    found = grimp.build_graph(*PACKAGES, cache_dir=None)
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(found.modules)
    for name in found.modules:
        graph.add_edges_from((name, used) for used in found.find_modules_directly_imported_by(name))
    # The public names of pyops are loaded when somebody asks for them.
    graph.remove_edges_from([edge for edge in graph.edges if edge[0] == "pyops"])
    return graph


@functools.cache
def units() -> networkx.DiGraph[str]:
    """Return an edge from every subpackage, or module beside them, to each that it imports."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for name, used in modules().edges:
        if unit(name) != unit(used):
            graph.add_edge(unit(name), unit(used))
    return graph


def unit(module: str) -> str:
    """Return the subpackage that a module lies in; the module itself where it lies beside the subpackages."""
    is_package = any(name.startswith(f"{module}.") for name in modules())
    package = module if is_package else module.rpartition(".")[0]
    return module if package in PACKAGES else package


def layers() -> list[list[str]]:
    """Return the units by layer, the lowest first: each imports units of lower layers alone."""
    return [sorted(layer) for layer in networkx.topological_generations(units().reverse())]
