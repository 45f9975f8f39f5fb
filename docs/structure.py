"""Writes structure.md from the modules and their imports: ``python docs/structure.py``."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

import grimp
import networkx

PAGE = Path(__file__).with_suffix(".md")
ROOT = PAGE.parents[1]

INTRODUCTION = """# The modules and their imports

Two packages: `exporters` imports `pyops`, and in `pyops` only the checks of `pyops.testing`, and the commands, import
`exporters`, when they run. A module is one idea and its name says which. Imports go one way: no module imports,
directly or through others, a module that imports it. That counts imports inside functions and those for type checkers
too. It does not count the public names of `pyops`, which are loaded when somebody asks for them.

A table has what each module imports of its own package; what it imports of others is listed above.
`python docs/structure.py` writes this page.
"""


@functools.cache
def imports() -> networkx.DiGraph[str]:
    """An edge from every module to each that it imports."""
    found = grimp.build_graph("pyops", "exporters", cache_dir=None)
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(found.modules)
    graph.add_edges_from(
        (name, used) for name in found.modules for used in found.find_modules_directly_imported_by(name)
    )
    graph.remove_edges_from([edge for edge in graph.edges if edge[0] == "pyops"])
    return graph


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(section(package) for package in packages())])


def packages() -> list[str]:
    """The packages that are drawn, `pyops` first."""
    names = {name.rpartition(".")[0] for name in imports() if "." in name}
    return sorted(names, key=lambda name: (name.partition(".")[0] != "pyops", name))


def section(package: str) -> str:
    """A package: what it is for, what it imports of other packages, and its modules."""
    inside = {name for name in imports() if name.rpartition(".")[0] == package} - {*packages()}
    outside = sorted({package_of(used) for name in inside for used in imports()[name]} - {package})
    used = ", ".join(f"`{name}`" for name in outside) or "nothing"
    rows = "\n".join(row(name, inside) for name in sorted(inside))
    return f"""## {package}

{first_line(package)} It imports of the others: {used}.

| module | what it is | imports |
|---|---|---|
{rows}
"""


def row(module: str, inside: Iterable[str]) -> str:
    """A module, what it is, and what it imports of its package."""
    used = ", ".join(f"`{short(name)}`" for name in sorted(inside) if imports().has_edge(module, name))
    return f"| `{short(module)}` | {first_line(module)} | {used} |"


def package_of(module: str) -> str:
    """The package that a module lies in; a package is its own."""
    return module if module in packages() else module.rpartition(".")[0]


def short(module: str) -> str:
    """A module's name in its package."""
    return module.rpartition(".")[2]


def first_line(module: str) -> str:
    """The first sentence of a module's docstring."""
    path = ROOT / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(page())
