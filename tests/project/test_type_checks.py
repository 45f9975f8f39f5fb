"""What type checkers report for test_typical_*.py: the types of results, and the errors that are marked in them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USES = {
    "pyops": ROOT / "tests/project/test_typical_uses.py",
    "exporters": ROOT / "tests/exporters/test_typical_exports.py",
}
# As for a user, who has not this project's settings, and sees no errors inside of what is installed.
MYPY = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary"]


@pytest.fixture(params=USES)
def package(request: pytest.FixtureRequest) -> str:
    if request.param == "exporters":
        pytest.importorskip("torch")
    return str(request.param)


def run(checker: str, *arguments: str | Path) -> str:
    """What a checker says that finds something."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f'type checks are left out: {checker} is not installed: pip install -e ".[dev]"')
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
    )
    return f"{done.stdout}{done.stderr}" if done.returncode else ""


@pytest.fixture
def files() -> list[Path]:
    """All files at once, which takes less time than one by one."""
    return [file for name, file in USES.items() if name != "exporters" or importlib.util.find_spec("torch")]


@pytest.mark.exhaustive
def test_mypy_finds_what_is_marked_and_no_more(files: list[Path], pytestconfig: pytest.Config) -> None:
    cache = pytestconfig.cache.mkdir("mypy")
    assert run("mypy", *MYPY, "--cache-dir", cache, *files) == ""


@pytest.mark.exhaustive
def test_pyright_finds_what_is_marked_and_no_more(files: list[Path]) -> None:
    # pyproject.toml has its settings.
    assert run("pyright", "--pythonpath", sys.executable, *files) == ""


def test_every_public_name_is_used(package: str) -> None:
    tree = ast.parse(USES[package].read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {item.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for item in node.names}
    assert set(importlib.import_module(package).__all__) - used == set()
