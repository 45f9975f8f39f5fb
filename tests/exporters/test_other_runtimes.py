"""Bodies run in other runtimes, each in a Python environment of its own, and mean the same there.

PYOPS_RUNTIMES is a folder with the environments: ``onnxruntime-1.20`` (``pip install onnxruntime==1.20.1``) and
``openvino`` (``pip install openvino``).
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import pytest

from pyops._onnx import bodies
from pyops.kernels import transformers
from pyops.shapes import TensorSpec
from pyops.testing import Sample
from tests.exporters._finishing import test_bodies

SCRIPTS = {
    "onnxruntime-1.20": """
import onnxruntime
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
results = session.run(None, feed)
""",
    "openvino": """
import openvino
compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
found = compiled(feed)
results = [found[output] for output in compiled.outputs]
""",
}
RUN = """
import sys
import numpy
_, model, given, written = sys.argv
feed = dict(numpy.load(given))
{script}
numpy.savez(written, *results)
"""

OPS = {declare.__name__: declare for declare in test_bodies.OPS} | {
    "rms_norm": lambda: (transformers.rms_norm, lambda x: (x, x[0]), {"eps": 0.3}),
    "swiglu": lambda: (transformers.swiglu, lambda x: (x, x + 1), {}),
    "geglu": lambda: (transformers.geglu, lambda x: (x, x + 1), {}),
    "rotary": lambda: (transformers.rotary_embedding, lambda x: (x, x[:1] + 1, x[:1] - 1), {}),
    "rotary_half": lambda: (transformers.rotary_embedding, lambda x: (x, x[:1, 2:], x[1:2, 2:]), {}),
}
LIMITS = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-5}  # OpenVINO computes float64 in float32


def model_of(sample):
    """A model of opset 18 and an IR version that old runtimes read, with the body of its op."""
    model, op = sample.model(), sample.op
    model.ir_version = 8
    next(entry for entry in model.opset_import if not entry.domain).version = 18
    specs = [None if array is None else TensorSpec(array.shape, array.dtype) for array in sample.inputs]
    attributes = op.signature.convert_attributes(sample.attributes)
    model.functions.append(bodies.body(op.decomposition, specs, attributes, 18))
    return model


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("runtime", SCRIPTS)
def test_a_body_means_the_same(runtime, name, dtype, tmp_path):
    python = Path(os.environ.get("PYOPS_RUNTIMES", "build/runtimes")) / runtime / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {python}: set PYOPS_RUNTIMES")
    if (runtime, name, dtype) == ("onnxruntime-1.20", "swiglu", "float64"):
        pytest.skip("it fuses the nodes of SiLU to its QuickGelu, for which it has no kernel of float64")
    op, inputs, attributes = OPS[name]()
    x = np.linspace(-2, 3, 12, dtype=dtype).reshape(3, 4)
    sample = Sample(op, *inputs(x), **attributes)
    model = model_of(sample)
    onnx.save(onnx.inliner.inline_local_functions(model) if runtime == "openvino" else model, tmp_path / "model.onnx")
    np.savez(tmp_path / "given.npz", **sample.feed)
    script = RUN.format(script=SCRIPTS[runtime])
    files = [tmp_path / file for file in ("model.onnx", "given.npz", "results.npz")]
    done = subprocess.run([python, "-c", script, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = bodies.reference(op.decomposition, sample.inputs, op.signature.convert_attributes(sample.attributes))
    for result, wanted in zip(np.load(files[-1]).values(), expected, strict=True):
        np.testing.assert_allclose(result.astype(np.float64), wanted, atol=LIMITS[dtype], rtol=LIMITS[dtype])
