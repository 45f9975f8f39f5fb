"""Where the tests of the command line are run."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

OPS = """
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

F32 = NDArray[np.float32]

@onnx_op("typed::Plus")
def plus(x: F32, *, by: float = 1.0) -> F32:
    return x + np.float32(by)

@onnx_op("typed::Wrong")
def wrong(x: F32) -> F32:
    return x.astype(np.float64)

@onnx_op("typed::Shout")
def shout(x: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.array([item.upper() for item in x], object)

@onnx_op("typed::Concatenate")
def concatenate(first: F32, *rest: F32) -> F32:
    return np.concatenate([first, *rest])

@onnx_op("typed::Options")
def options(x: F32, *, checks: str = "", generate: int = 1) -> F32:
    return x * np.float32(generate)

@onnx_op("typed::Ending")
def ending(x: F32) -> F32:
    print("the kernel prints")
    if not len(x):
        raise SystemExit(7)
    return x + np.float32(1)

print("the module prints")
not_an_op = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of ops, on a terminal of 80 columns that is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "typed_ops.py").write_text(OPS)
    yield tmp_path
    for name in ("typed_ops", "typed_plugin"):
        sys.modules.pop(name, None)
