"""Libraries and sessions whose kernels numba compiles in the same process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.scripts import run_plain_script

SCRIPT = """
import subprocess, sys

import numpy as np, onnxruntime
from numpy.typing import NDArray

import pyops
from pyops.testing import Sample

Array = NDArray[np.float32]

@pyops.onnx_op("built::Middle", compile=True)
def middle(x: Array) -> Array:
    y = np.zeros((4, 2), np.float32)
    y[1:3] = x  # what numba raises here is of numba's own functions, which all kernels of a process share
    return y

sample = Sample(middle, np.ones((2, 2), np.float32))
model = sample.model()
for value in (*model.graph.input, *model.graph.output):
    value.type.tensor_type.ClearField("shape")
model = model.SerializeToString()

def run(session):
    assert session.run(None, sample.feed)[0].sum() == 4
    try:
        session.run(None, dict.fromkeys(sample.feed, np.ones((3, 2), np.float32)))
    except Exception as error:
        print("(2, 2) from input of shape (3, 2)" in str(error))

for step in STEPS:
    if step == "run":
        run(pyops.InferenceSession(model))
    else:
        library = pyops.build(LIBRARY, examples=[sample]).path
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.register_custom_ops_library(str(library))
        run(onnxruntime.InferenceSession(model, options))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("steps", [("run", "build", "run"), ("build", "run", "build")], ids="-".join)
def test_neither_uses_code_that_was_compiled_for_the_other(
    steps: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(tmp_path))
    script = f"STEPS, LIBRARY = {steps!r}, {str(tmp_path / 'libmiddle.so')!r}\n{SCRIPT}"
    # numba has to see the source.
    (tmp_path / "middle.py").write_text(script)
    run_plain_script(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import middle", "True\nTrue\nTrue")
