"""Which subpackage may import which, as in docs/architecture.md."""

import re
from pathlib import Path

import networkx
import pytest

from tests.project.import_graph import PACKAGES, layers, modules, units

PAGE = Path(__file__).parents[2] / "docs/architecture.md"
MOST_LAYERS = 12


def test_subpackages_import_those_that_the_page_lets_them() -> None:
    allowed = dict(re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    found = {name: {used for used in units().successors(name) if used not in PACKAGES} for name in units()}
    assert {name: set(re.findall(r"`([\w.]+)`", text)) for name, text in allowed.items()} == {
        name: used for name, used in found.items() if name not in PACKAGES
    }


@pytest.mark.parametrize("graph", [modules, units])
def test_imports_go_one_way(graph) -> None:
    assert graph().number_of_edges() > 50
    with pytest.raises(networkx.NetworkXNoCycle):
        print(networkx.find_cycle(graph()))  # which pytest shows


def test_layers() -> None:
    found = layers()
    for number, names in enumerate(found, 1):
        print(number, *names)
    print(f"{len(found)} layers; the modules lay in 18 before they were moved into subpackages")
    assert len(found) <= MOST_LAYERS


def test_pyops_imports_exporters_for_commands_alone() -> None:
    crossing = {name for name, used in units().edges if name.startswith("pyops") and used.startswith("exporters")}
    assert crossing == {"pyops._cli"}


def test_one_module_asks_which_system_this_is() -> None:
    asks = re.compile(r"\bsys\.platform\b|\bos\.(name|uname)\b|\bplatform\.\w+\(|^(import|from) platform\b", re.M)
    root = PAGE.parents[1]
    files = [file for package in ("pyops", "exporters") for file in root.glob(f"{package}/**/*.py")]
    assert [str(file.relative_to(root)) for file in files if asks.search(file.read_text())] == [
        "pyops/_support/system.py"
    ]
