"""What docs/architecture.md says of the structure: which folder imports which, and what is private to the core."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import networkx
import pytest

import pyops._core
from tests.project.import_graph import PACKAGES, modules, units

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MOST_ROWS, MOST_NAMES = 15, 60

CORE = "pyops._core"
# Where the public names are defined, which may name any module of the core.
FACES = {"pyops", "pyops._wiring", "pyops.shapes", "pyops.testing"}
FOR_EVERYONE = {"pyops._support", "pyops.errors", "exporters.errors", CORE, "pyops.shapes", "pyops._wiring"}

IMPORTING_BY_NAME = {
    "pyops/_wiring.py": "the satellites and the public names",
    "pyops/_core/__init__.py": "modules of the core",
    "pyops/_core/runtime/session_pickling.py": "the modules that a session's ops come from",
    "pyops/_cli/command_arguments.py": "the modules that a command names",
    "pyops/_machine/direct/loaded_code.py": "NumPy's C API",
    "pyops/kernels/__init__.py": "the modules beside it",
    "exporters/_library/translation_order.py": "the modules of rows beside it",
    "pyops/kernels/_arrays.py": "SciPy",
}
"""The files that import modules by their names, and which."""

SAME_THING = {"__init__.py", "errors.py", "fft.py", "losses.py"}
"""Names of several files: in exporters/_library, the rows for the operators in pyops/kernels."""


def table() -> list[tuple[list[str], set[str]]]:
    """Return the units of each row of the page's table, and what they may import besides the first rows."""
    rows = re.findall(r"^\| (`[^|]*`) \| [^|]* \| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(re.findall(r"`([\w.]+)`", names), set(re.findall(r"`([\w.]+)`", used))) for names, used in rows]


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def private_names(paths: list[Path]) -> set[str]:
    """Return the names with one leading underscore that are assigned or defined in files."""
    nodes = [node for path in paths for node in ast.walk(tree(path))]
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    found |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name for name in found if re.match(r"_[^_]", name)}


def test_folders_import_what_the_page_lets_them() -> None:
    rows = table()
    assert 10 < len(rows) <= MOST_ROWS
    assert Counter(name for names, _ in rows for name in names) == Counter(units())
    before: set[str] = set()
    for names, allowed in rows:
        used = {name: set(units().successors(name)) for name in names}
        assert set().union(*used.values()) - set(names) - FOR_EVERYONE == allowed, names
        for name in names:
            assert used[name] <= before, f"{name} imports a later row, or a later folder of its row"
            before.add(name)


@pytest.mark.parametrize("graph", [modules, units])
def test_imports_go_one_way(graph) -> None:
    assert graph().number_of_edges() > 50
    with pytest.raises(networkx.NetworkXNoCycle):
        print(networkx.find_cycle(graph()))  # which pytest shows


def test_pyops_imports_exporters_for_commands_alone() -> None:
    crossing = {name for name, used in units().edges if name.startswith("pyops") and used.startswith("exporters")}
    assert crossing == {"pyops._cli"}


def test_the_folders_of_the_core_import_one_way() -> None:
    order = [f"{CORE}.{folder}" for folder in ("schema", "ops", "models", "runtime")]
    folders = {name: ".".join(name.split(".")[:3]) for name in modules()}
    later = [
        (name, used)
        for name, used in modules().edges
        if folders[name] in order and folders[used] in order[order.index(folders[name]) + 1 :]
    ]
    assert later == []


def test_the_core_is_imported_through_its_waist() -> None:
    beside = [
        (name, used)
        for name, used in modules().edges
        if used.startswith(f"{CORE}.") and not name.startswith(CORE) and name not in FACES
    ]
    assert beside == []


def test_the_waist_is_narrow_and_no_name_in_it_is_unused() -> None:
    used = set()
    for path in FILES:
        if not module_of(path).startswith(CORE):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_core"):
                    used |= {alias.name for alias in node.names}
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "core":
                    used.add(node.attr)
    assert used - {"satellites"} == set(pyops._core.__all__)
    assert len(pyops._core.__all__) <= MOST_NAMES


def test_type_checkers_read_the_same_waist() -> None:
    imports = [node for node in ast.walk(tree(ROOT / "pyops/_core/__init__.py")) if isinstance(node, ast.ImportFrom)]
    named = {alias.name: node.module for node in imports if node.level for alias in node.names}
    assert {name: f".{module}" for name, module in named.items()} == pyops._core._PLACES


@pytest.mark.parametrize("name", pyops._core.__all__)
def test_each_name_of_the_waist_is_there(name: str) -> None:
    assert getattr(pyops._core, name) is not None


def test_an_unknown_name_of_the_waist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'find_operator'"):
        _ = pyops._core.find_operator


def test_no_private_attribute_of_the_core_is_used_outside() -> None:
    core = private_names([path for path in FILES if module_of(path).startswith(CORE)])
    for path in FILES:
        if not module_of(path).startswith(CORE):
            used = {node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
            assert not used & core - private_names([path]) - FOREIGN.get(path.name, set()), path


FOREIGN = {"onnx_exporter.py": {"_report"}, "disk_cache.py": {"_reduce", "_fields"}}
"""Private attributes of objects of torch and numba, and of named tuples, that have the name of one in the core."""


def test_modules_are_imported_by_name_in_few_files() -> None:
    def imports(path: Path) -> bool:
        calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute | ast.Name)]
        return bool({ast.unparse(node) for node in calls} & {"importlib.import_module", "__import__"})

    found = {str(path.relative_to(ROOT)) for path in FILES if imports(path)}
    assert found == set(IMPORTING_BY_NAME)


def test_the_core_names_no_module_beside_it() -> None:
    core = [path for path in FILES if module_of(path).startswith(CORE)]
    texts = {node.value for path in core for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)}
    assert not {name for name in modules() if "." in name and not name.startswith(CORE)} & texts


def test_no_two_files_have_one_name() -> None:
    found = Counter(path.name for path in FILES)
    assert {name for name, count in found.items() if count > 1} == SAME_THING


def test_no_two_files_of_tests_have_one_name_unless_they_are_in_packages() -> None:
    """Pytest imports a file that is in no package by its name alone."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists()]
    found = Counter(path.name for path in files if path.name not in ("conftest.py", "__main__.py"))
    assert not {name for name, count in found.items() if count > 1}


@pytest.mark.parametrize("package", PACKAGES)
def test_tests_are_in_the_folders_of_what_they_test(package: str) -> None:
    def folders(root: Path) -> set[str]:
        found = {path.parent.relative_to(root) for path in root.rglob("*.py")}
        return {path.as_posix() for path in found}

    tested, code = folders(ROOT / "tests" / package), folders(ROOT / package)
    assert tested <= code
    # Of _core itself, which has the waist, test_structure.py is the test.
    assert {folder for folder in code if not any(f"{name}/".startswith(f"{folder}/") for name in tested)} <= {"."}


def test_each_language_reads_tensors_of_onnxruntime_in_one_place() -> None:
    def calling(call: str, suffix: str) -> list[str]:
        paths = [path for path in sorted((ROOT / "pyops").rglob("*")) if path.suffix == suffix]
        return [path.name for path in paths for _ in re.findall(call, path.read_text(encoding="utf-8"))]

    # Python through ctypes, on the GPU and on the host; LLVM; C.
    assert calling(r"\.GetTensorElementTypeAndShapeDataReference\(", ".py") == ["cuda_memory.py", "call_tensors.py"]
    assert calling(r"layout\.GET_TYPE_AND_SHAPE\)", ".py") == ["direct_call.py"]
    assert calling(r"ORT\(api, get_data\)\(value", ".c") == ["runtime.c"]


def test_one_module_asks_which_system_this_is() -> None:
    asks = re.compile(r"\bsys\.platform\b|\bos\.(name|uname)\b|\bplatform\.\w+\(|^(import|from) platform\b", re.M)
    found = [str(path.relative_to(ROOT)) for path in FILES if asks.search(path.read_text(encoding="utf-8"))]
    assert found == ["pyops/_support/system.py"]
