"""The modules and their imports, which docs/structure.md lists."""

import runpy
from pathlib import Path

import networkx
import pytest

STRUCTURE = runpy.run_path(str(Path(__file__).parents[1] / "docs/structure.py"))


def test_imports_go_one_way() -> None:
    imports = STRUCTURE["imports"]()
    assert imports.has_edge("exporters.custom_op", "pyops._ops.op")
    with pytest.raises(networkx.NetworkXNoCycle):
        print(networkx.find_cycle(imports))  # which pytest shows


def test_pyops_imports_exporters_for_checks_and_commands_alone() -> None:
    edges = STRUCTURE["imports"]().edges
    crossing = {name.rpartition(".")[0] for name, used in edges if name.startswith("pyops") and "exporters" in used}
    assert crossing == {"pyops.cli", "pyops.testing"}


def test_the_page_lists_what_is_there() -> None:
    assert STRUCTURE["PAGE"].read_text() == STRUCTURE["page"](), "run python docs/structure.py"
