"""``python -m pyops demo``, as a user runs it."""

import re
import subprocess
import sys

import onnx


def test_the_demo_prints_its_table_and_keeps_the_model(tmp_path):
    command = [sys.executable, "-m", "pyops", "demo", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "torch and ONNX Runtime agree" in done.stdout
    for row in ("accuracy in torch", "accuracy in ONNX Runtime", "demo::MedianPool (1)"):
        assert row in done.stdout
    (difference,) = re.findall(r"largest difference *│ (\S+)", done.stdout)
    assert float(difference) < 1e-4
    model = onnx.load(tmp_path / "out" / "digits.onnx")
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_without_the_extra_the_demo_names_it(tmp_path):
    code = (
        "import sys; sys.modules['sklearn'] = None; sys.argv = ['pyops', 'demo']; import pyops.__main__ as m; m.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'pip install "onnx-pyops[demo]"' in done.stderr
