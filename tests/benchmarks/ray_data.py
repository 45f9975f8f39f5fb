"""What Ray Data costs: ``python tests/benchmarks/ray_data.py`` prints a Markdown table of rows per second.

A classifier of scikit-learn's digits, whose pixels an op scales, runs over a million images: in one session with one
thread and with two, and by the recipe of docs/processes.md on a local cluster with one worker and with two, each of one
thread. In the last row a worker is killed while it works. An error if any digit differs from those of the one session.
It needs Ray and scikit-learn: ``pip install "ray[data]" scikit-learn``.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import pyops
from pyops import onnx_op

ROOT = Path(__file__).parents[2]
BATCH = 4096


@onnx_op("digits::Scale")
def scale(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale pixels, which are 0 to 16, to 0 to 1."""
    return image / np.float32(16)


def predict_class() -> type[Any]:
    """Return the class of the recipe."""
    recipe = (ROOT / "docs/processes.md").read_text().partition("```python\nclass Predict:")[2]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("class Predict:" + recipe.partition("\n\n\npredicted =")[0], names)
    return names["Predict"]


def model(images: NDArray[np.float32], digits: NDArray[np.int64]) -> onnx.ModelProto:
    """Fit a classifier and return it as a model from images to digits."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(max_iter=300).fit(images / 16, digits)
    made = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20, "digits" : 1]>
    classify (float[n,64] image) => (int64[n] digit) {
        scaled = digits.Scale(image)
        score = Gemm(scaled, weight, bias)
        digit = ArgMax <axis = 1, keepdims = 0> (score)
    }""")
    for name, values in {"weight": fitted.coef_.T, "bias": fitted.intercept_}.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
    return made


def alone(source: onnx.ModelProto, images: NDArray[np.float32], threads: int) -> tuple[float, NDArray[np.int64]]:
    """Return the seconds that one session with so many threads takes, and the digits."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = pyops.InferenceSession(source, options)
    start = time.perf_counter()
    batches = [images[begin : begin + BATCH] for begin in range(0, len(images), BATCH)]
    digits = np.concatenate([session.run(None, {"image": batch})[0] for batch in batches])
    return time.perf_counter() - start, digits


def distributed(data: Any, worker: type[Any], source: onnx.ModelProto, count: int) -> tuple[float, NDArray[np.int64]]:
    """Return the seconds that so many workers of Ray Data take, their start included, and the digits."""
    import ray

    start = time.perf_counter()
    predicted = data.map_batches(
        worker,
        fn_constructor_args=(pyops.InferenceSession(source),),
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=count),
        num_cpus=1,
    )
    digits = np.concatenate([batch["digit"] for batch in predicted.iter_batches(batch_size=None)])
    return time.perf_counter() - start, digits


def killed_once(worker: type[Any], mark: Path) -> type[Any]:
    """Return a class of workers of which the first to get its tenth batch is killed."""

    class KilledOnce(worker):  # type: ignore[misc]  # the base is a parameter
        batches = 0

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            self.batches += 1
            if self.batches == 10 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return dict(super().__call__(batch))

    return KilledOnce


def main() -> None:
    """Measure and print."""
    # An installation that only runs tests has neither.
    import ray
    from sklearn.datasets import load_digits

    parser = argparse.ArgumentParser(prog="python tests/benchmarks/ray_data.py", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # for the workers
    some, digits = load_digits(return_X_y=True)
    source = model(some.astype(np.float32), digits)
    images = np.resize(some.astype(np.float32), (rows, 64))
    found = {f"one session, threads: {threads}": alone(source, images, threads) for threads in (1, 2)}
    expected = found["one session, threads: 1"][1]
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    data = ray.data.from_numpy(np.array_split(images, 16)).rename_columns(["image"])
    worker = predict_class()
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder, "killed")
        for count in (1, 2):
            found[f"Ray, workers: {count}"] = distributed(data, worker, source, count)
        found["Ray, workers: 2, one of them killed"] = distributed(data, killed_once(worker, mark), source, 2)
        assert mark.exists(), "no worker was killed; give more rows"
    for name, (_, got) in found.items():
        assert np.array_equal(got, expected), f"{name}: other digits than those of one session"
    packages = ", ".join(f"{name} {version(name)}" for name in ("ray", "onnxruntime", "numpy"))
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    print(f"\nPython {platform.python_version()}, {packages}, {machine}; {rows:,} rows\n")
    print("| | seconds | rows per second |\n|---|---|---|")
    for name, (seconds, _) in found.items():
        print(f"| {name} | {seconds:.1f} | {rows / seconds:,.0f} |")


if __name__ == "__main__":
    main()
