"""The workflows of a public forge, as far as they run elsewhere."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.systems import needs_fork

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TESTS, ONE_FILE = "python -m pytest -n auto", "tests/pyops/_core/schema/test_attributes.py"


def jobs(name: str) -> dict[str, Any]:
    """The jobs of a workflow, by name."""
    yaml = pytest.importorskip("yaml")
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())["jobs"]
    return read


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_they_name_files_that_exist() -> None:
    named = [
        word
        for path in WORKFLOWS
        for job in jobs(path.name).values()
        for command in commands(job)
        for word in command.split()
        if word.startswith((".ci/", "tests/"))
    ]
    assert ".ci/run" in named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_quick_job_is_for_every_python_that_is_supported() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    prefix = "Programming Language :: Python :: 3."
    supported = [text.rpartition(" ")[2] for text in classifiers if text.startswith(prefix)]
    assert jobs("quick.yml")["quick"]["strategy"]["matrix"]["python"] == supported


@pytest.mark.exhaustive
@needs_fork
def test_the_commands_of_the_quick_job_pass_in_a_fresh_clone(tmp_path: Path) -> None:
    clone, environment = tmp_path / "clone", tmp_path / "environment"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), clone], check=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    variables = inherited | {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    steps = commands(jobs("quick.yml")["quick"])
    assert TESTS in steps
    for command in (f"{step} {ONE_FILE}" if step == TESTS else step for step in steps):
        bash = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(bash, cwd=clone, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
