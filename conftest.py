"""Leaves out what needs torch where torch is not installed, and what needs a GPU where there is none, and says so."""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import os
from pathlib import Path

import pytest

from tests.gpu.gpus import missing_gpu, missing_provider

# A checkout that is on the path without being installed has no entry points.
IS_INSTALLED = "pyops" in importlib.metadata.entry_points(group="pytest11").names

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the cores: torch's threads would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = ["pytester", *([] if IS_INSTALLED else ["pyops._pytest_plugin"])]

NEED_TORCH = (
    "exporters",
    "notebooks",
    "pyops/_patterns/replacement.py",
    "tests/benchmarks/export.py",
    "tests/corrections",
    "tests/exporters",
    "tests/model_coverage",
    "tests/operator_coverage",
    "tests/replaced_models",
    "tests/pyops/_cli/test_demo.py",
    "tests/pyops/_cli/test_replace_command.py",
    "tests/pyops/_patterns",
    "tests/project/test_site.py",
    "tests/stress/control_flow.py",
    "tests/stress/fallback_calls.py",
    "tests/stress/integer_programs.py",
    "tests/stress/random_decompositions.py",
    "tests/stress/test_control_flow.py",
    "tests/stress/test_fallback_calls.py",
    "tests/stress/test_integer_programs.py",
    "tests/stress/test_random_decompositions.py",
    "tests/stress/test_replaced_places.py",
    "tests/stress/test_torch_programs.py",
    "tests/stress/torch_calls.py",
    "tests/stress/torch_generator.py",
    "tests/stress/torch_oracle.py",
    "tests/stress/torch_programs.py",
    "tests/pyops/testing/test_check_torch.py",
)
QUICK_NOTEBOOK = "03_debugging.ipynb"
_NEEDS_GPU = "needs a GPU"
_LEFT_OUT = "are left out: "
HAS_EXTENSIONS = importlib.util.find_spec("onnxruntime_extensions") is not None  # no wheels for Python 3.14
HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the paths above."""
    left_out = any(collection_path.is_relative_to(config.rootpath / path) for path in NEED_TORCH)
    return True if left_out and not HAS_TORCH else None


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU or onnxruntime-extensions where there is none; make long notebooks exhaustive."""
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.name != QUICK_NOTEBOOK:
            item.add_marker(pytest.mark.exhaustive)
        marker = item.get_closest_marker("gpu")
        reason = marker and (missing_provider() if "session" in marker.args else missing_gpu())
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"{_NEEDS_GPU}: {reason}"))
        engine = getattr(item, "callspec", None) and item.callspec.params.get("engine")
        if not HAS_EXTENSIONS and str(engine).startswith("extensions"):
            item.add_marker(pytest.mark.skip(reason="needs onnxruntime-extensions"))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over torch and all that was imported, and run seldom: a fifth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how much is left out."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    no_gpu = [reason.rpartition(f"{_NEEDS_GPU}: ")[2] for reason in reasons if _NEEDS_GPU in reason]
    if no_gpu:
        why = " and ".join(sorted({reason.rstrip("')") for reason in no_gpu}))
        terminalreporter.write_line(f"{len(no_gpu)} tests need a GPU and are left out: {why}")
    for reason in sorted({reason.partition("Skipped: ")[2].rstrip("')") for reason in reasons if _LEFT_OUT in reason}):
        terminalreporter.write_line(reason)
    if not HAS_TORCH:
        files = [file for path in NEED_TORCH for file in _files(config.rootpath / path)]
        names = ", ".join(NEED_TORCH)
        terminalreporter.write_line(f"torch is not installed, {len(files)} files are left out: {names}")


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [*path.glob("**/*.py"), *path.glob("**/*.ipynb")]
