"""Which folder imports which: a folder of a package, or a module beside them, is one unit."""

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
    # The public names of pyops, and the waist of its core, are loaded when somebody asks for them.
    graph.remove_edges_from([edge for edge in graph.edges if edge[0] in ("pyops", "pyops._core")])
    return graph


@functools.cache
def units() -> networkx.DiGraph[str]:
    """Return an edge from every unit to each that it imports; the public names of a package are no unit."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(unit(name) for name in modules() if name not in PACKAGES)
    for name, used in modules().edges:
        if unit(name) != unit(used) and not {name, used} & set(PACKAGES):
            graph.add_edge(unit(name), unit(used))
    return graph


def unit(module: str) -> str:
    """Return the folder of a package that a module lies in, or the module itself where it lies beside the folders."""
    return ".".join(module.split(".")[:2])
