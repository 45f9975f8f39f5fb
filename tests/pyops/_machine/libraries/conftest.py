"""Libraries that several files test, and environments without pyops in which they run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pyops
from pyops._machine.libraries.build_report import BuildReport
from tests.pyops._machine.libraries.buildable_ops import PAIRS, add_scaled, pair_sums, rows

Library = tuple[Path, BuildReport]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Library:
    path = tmp_path_factory.mktemp("build") / "libbuilt.so"
    return path, pyops.build(path, [add_scaled, rows, pair_sums], examples=[PAIRS], cpu="native")


@pytest.fixture(scope="session")
def onnxruntime_of(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Of a requirement, a Python with that onnxruntime and with NumPy, and nothing else."""

    def make(requirement: str) -> Path:
        folder = Path(pytestconfig.cache.mkdir(f"environment-{requirement}"))
        python = folder / "bin" / "python"
        if not (folder / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", folder], check=True)
            numpy = "numpy" if requirement == "onnxruntime" else "numpy<2"
            command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
            command.append("--only-binary=:all:")
            done = subprocess.run([*command, requirement, numpy], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"tests with {requirement} are left out: {(done.stderr.splitlines() or ['?'])[-1]}")
            (folder / "made").touch()
        return python

    return make


@pytest.fixture
def elsewhere(target: str) -> tuple[list[str], dict[str, str]]:
    """The command of a Python for another machine with onnxruntime, emulated, and its environment."""
    script, variable = {
        "linux-aarch64": ("pyops/_machine/libraries/aarch64.sh", "PYOPS_AARCH64"),
        "windows-x86-64": ("pyops/_core/runtime/windows.sh", "PYOPS_WINDOWS"),
    }[target]
    if variable not in os.environ:
        pytest.skip(f"tests of {target} are left out: run tests/{script} DIR, and set {variable}=DIR")
    folder = Path(os.environ[variable])
    if target == "windows-x86-64":
        return ["bash", str(Path(__file__).parents[3] / script), str(folder)], dict(os.environ)
    root = folder / "root"
    python = [str(folder / "qemu-aarch64"), "-L", str(root), str(root / "usr/bin/python3.11")]
    return python, {"PYTHONPATH": str(folder / "site"), "PYTHONHOME": str(root / "usr")}
