"""``python -m pyops demo``, as a user runs it."""

import re

import onnx
import pytest

from tests.helpers.scripts import run_beside_torch


@pytest.mark.exhaustive
def test_the_demo_compares_and_keeps_the_model(tmp_path):
    script = f"""
import runpy, sys
sys.argv = ["pyops", "demo", "--out", {str(tmp_path / "out")!r}]
runpy.run_module("pyops", run_name="__main__")
"""
    done = run_beside_torch(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch and ONNX Runtime agree" in done.stdout
    (accuracy,) = re.findall(r"(\S+)% of 450 test images are classified correctly", done.stdout)
    assert float(accuracy) > 90
    model = onnx.load(tmp_path / "out" / "digits.onnx")
    assert "demo::MedianPool" in {f"{node.domain}::{node.op_type}" for node in model.graph.node}
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_without_the_extra_the_demo_names_it(tmp_path):
    code = (
        "import sys; sys.modules['sklearn'] = None; sys.argv = ['pyops', 'demo']; import pyops.__main__ as m; m.main()"
    )
    done = run_beside_torch(code, tmp_path)
    assert done.returncode == 1
    assert 'pip install "onnx-pyops[demo]"' in done.stderr
