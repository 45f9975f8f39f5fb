"""Nodes without a kernel, in an ONNX Runtime that has libraries of execution providers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest

import pyops
from tests.gpu.gpu_ops import CUDA, cuda_options

pytestmark = pytest.mark.gpu("session")

TEXT = '<ir_version: 10, opset_import: ["": 20]> main (double[n] x) => (double[n] y) { y = Sinh(x) }'
# To list ONNX Runtime's kernels would end the process, as TensorRT is not installed.
SCRIPT = f"""
import numpy as np, onnx, pyops, warnings
warnings.simplefilter("ignore")
session = pyops.InferenceSession(onnx.parser.parse_model({TEXT!r}), fill_missing=True)
print(session.run(None, {{"x": np.arcsinh(np.array([2.0, 3.0]))}})[0].round(6).tolist())
"""


def test_they_are_filled_where_the_library_of_a_provider_cannot_be_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[2.0, 3.0]\n"), done.stderr


def test_they_are_filled_in_a_cuda_session() -> None:
    with pytest.warns(pyops.errors.FilledNodeWarning, match=r"Sinh-9\(float64\)"):
        session = pyops.InferenceSession(
            onnx.parser.parse_model(TEXT), fill_missing=True, providers=CUDA, provider_options=cuda_options()
        )
    x = np.arcsinh(np.array([2.0, 3.0]))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], [2, 3])


def test_without_it_the_refusal_names_it() -> None:
    with pytest.raises(Exception, match="no kernel of Sinh for the types in this model"):
        pyops.InferenceSession(onnx.parser.parse_model(TEXT), providers=CUDA, provider_options=cuda_options())
