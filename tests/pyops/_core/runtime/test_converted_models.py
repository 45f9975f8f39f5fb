"""Models with declared ops, quantized and converted to float16 by others' tools, where torch cannot be imported."""

import importlib.util
from pathlib import Path

import pytest

from tests.helpers.scripts import WITHOUT_TORCH, run_plain_script

PAGE = Path(__file__).parents[4] / "docs/precision.md"
START = f"{WITHOUT_TORCH}sys.modules['onnxscript'] = None\n"

pytestmark = pytest.mark.exhaustive  # they import onnxruntime's tools and quantize


PRINTED = "static.onnx ['Denoise'] True\ndynamic.onnx ['Denoise'] True\nfloat32 True\n"


def page(with_marked: bool = False) -> str:
    """Return the Python blocks of the page, and if asked those too that the test of the pages leaves out."""
    parts = PAGE.read_text().partition("## Train and export")[0].split("```python\n")  # what follows needs torch
    marked = ["<!-- not run" in before.rpartition("\n\n")[2] for before in parts]
    kept = [
        part.partition("```")[0] for part, mark in zip(parts[1:], marked[:-1], strict=True) if with_marked or not mark
    ]
    return "\n".join(["import sys", START, *kept])


def test_the_page_runs_without_torch(tmp_path):
    run_plain_script(f"import os; os.chdir({str(tmp_path)!r})\n{page()}", PRINTED)


def test_mixed_precision_is_found_by_running_the_ops(tmp_path):
    if importlib.util.find_spec("onnxconverter_common") is None:
        pytest.skip("onnxconverter-common is not installed: pip install onnxconverter-common")
    # It prints each attempt.
    quiet = page(with_marked=True).replace("    mixed =", "    sys.stdout = sys.stderr\n    mixed =")
    script = f"""import os; os.chdir({str(tmp_path)!r})
{quiet}
sys.stdout = sys.__stdout__
(y,) = pyops.InferenceSession(mixed).run(None, {{"x": x}})
types = [item.data_type for item in mixed.graph.initializer]
print(np.abs(y - exact).max() < 0.1, set(types) == {{onnx.TensorProto.FLOAT16}})
"""
    assert "Final model validated successfully" in run_plain_script(script, PRINTED + "True True")


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("pyops.register_schemas()", "Fail ...quantized:Same(-1) is not a registered function/op"),
        ("pyops.patch_onnxruntime()", "ValueError ...Unable to get valid quantization scale for input"),
        ("pyops.patch_onnxruntime(), pyops.register_schemas()", "none"),
    ],
)
def test_calibration_needs_the_sessions_and_the_types(block, found, tmp_path):
    script = f"""
import os, sys; os.chdir({str(tmp_path)!r})
{START}
import numpy as np, onnx, pyops
from numpy.typing import NDArray
from onnxruntime.quantization import quantize_static

runs = []

@pyops.onnx_op("quantized::Same")
def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
    runs.append(x.dtype)
    return x

model = onnx.parser.parse_model('''
<ir_version: 10, opset_import: ["" : 20, "quantized" : 1]>
main (float[n,2] x) => (float[n,2] y) <float[2,2] w = {{1, 2, 3, 4}}, float[2] b = {{1, 2}}> {{
    a = Relu(x)
    s = quantized.Same(a)
    y = Gemm(s, w, b)
}}''')
onnx.save(model, "model.onnx")

class Samples:
    feeds = [{{"x": np.ones((4, 2), np.float32)}}] * 2

    def get_next(self):
        return self.feeds.pop() if self.feeds else None

try:
    with {block}:
        quantize_static("model.onnx", "static.onnx", Samples(), reduce_range=True)
    error = "none"
    assert runs == [np.float32] * 2, runs
    y = pyops.InferenceSession("static.onnx").run(None, {{"x": np.ones((1, 2), np.float32)}})[0]
    assert np.allclose(y, [[5, 8]], atol=0.1), y
except Exception as raised:
    error = type(raised).__name__ + " ..." + str(raised)[str(raised).find({found.partition("...")[2]!r}):]
print(error.startswith({found!r}) or error)
"""
    run_plain_script(script, "True")


def test_an_op_for_two_types_runs_in_the_one_of_the_model_except_between_nodes_computed_in_float32():
    run_plain_script(
        f"""
import sys
{START}
import numpy as np, onnx, pyops
from typing import TypeVar
from numpy.typing import NDArray
T, seen = TypeVar("T", np.float16, np.float32), []

@pyops.onnx_op("seen::Either")
def either(x: NDArray[T]) -> NDArray[T]:
    seen.append(x.dtype.name)
    return x

@pyops.onnx_op("seen::Half")
def half(x: NDArray[np.float16]) -> NDArray[np.float16]:
    seen.append(x.dtype.name)
    return x

between = "a = Sin(x) b = seen.{{}}(a) y = Sin(b)"
for nodes in ("y = seen.Either(x)", between.format("Either"), between.format("Half")):
    model = onnx.parser.parse_model('''
    <ir_version: 10, opset_import: ["" : 20, "seen" : 1]>
    main (float16[n] x) => (float16[n] y) {{''' + nodes + "}}")
    y = pyops.InferenceSession(model).run(None, {{"x": np.zeros(2, np.float16)}})[0]
    print(y.dtype, seen.pop())
""",
        "float16 float16\nfloat16 float32\nfloat16 float16",
    )
