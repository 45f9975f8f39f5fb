"""The recipe for Ray Data in docs/processes.md, on a local cluster; skipped where Ray is not installed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import pyops

SCRIPT = """
import os, signal, sys
sys.path.insert(0, {folder!r})
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
import numpy as np, onnxruntime, pyops, ray
from ray_ops import MODEL

{recipe}

class KilledOnce(Predict):
    def __call__(self, batch):
        if batch["x"][0] == 0 and not os.path.exists({folder!r} + "/killed"):
            open({folder!r} + "/killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)

session = pyops.InferenceSession(MODEL)
x = np.arange(1000, dtype=np.float32)
(expected,) = session.run(None, {{"x": x}})
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
for workers, actor in ((1, Predict), (2, Predict), (2, KilledOnce)):
    data = ray.data.from_numpy(np.array_split(x, 4)).rename_columns(["x"])
    predicted = data.map_batches(
        actor,
        fn_constructor_args=(session,),
        batch_size=128,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=1,
    )
    found = np.concatenate([batch["y"] for batch in predicted.iter_batches(batch_size=None)])
    print("found", workers, np.array_equal(np.sort(found), np.sort(expected)), flush=True)
print("killed", os.path.exists({folder!r} + "/killed"))
failing = ray.data.from_numpy(np.array([-1], np.float32)).rename_columns(["x"]).map_batches(
    Predict, fn_constructor_args=(session,), compute=ray.data.ActorPoolStrategy(size=1), num_cpus=1
)
try:
    failing.take_all()
except Exception as error:
    print("found", all(text in str(error) for text in ("LookupError: negative", "ray_ops.py", "rayed::Twice")))
"""
OPS = """
import numpy as np, onnx
from numpy.typing import NDArray
from pyops import onnx_op

@onnx_op("rayed::Twice")
def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    if x.min() < 0:
        raise LookupError("negative")
    return x + x

MODEL = onnx.parser.parse_model('''
<ir_version: 10, opset_import: ["" : 20, "rayed" : 1]>
main (float[n] x) => (float[n] y) { y = rayed.Twice(x) }''')
"""


@pytest.mark.exhaustive
def test_the_recipe_gives_the_numbers_of_one_session_and_a_killed_worker_loses_nothing(tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ray[data]'")
    page = Path(pyops.__file__).parents[1] / "docs" / "processes.md"
    recipe = page.read_text().partition("```python\nclass Predict:")[2].partition("\n\n\npredicted =")[0]
    (tmp_path / "ray_ops.py").write_text(OPS)
    script = SCRIPT.format(folder=str(tmp_path), recipe="class Predict:" + recipe)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(("found", "killed"))]
    assert lines == ["found 1 True", "found 2 True", "found 2 True", "killed True", "found True"]
