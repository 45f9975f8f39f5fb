"""Compiled kernels against ONNX Runtime's own operators: ``python tests/benchmarks/compiled.py``.

Each figure is that of the fastest of many short rounds, in which all contestants take turns: what else runs on a
machine can only slow a round down. It is divided by that of the built-in nodes. ``--threads`` is
``intra_op_num_threads``. With ``--scaling``, eight threads of Python call one session, alone and beside a thread
that keeps the interpreter busy.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import pyops
from pyops import onnx_op

F32 = NDArray[np.float32]
ONE = np.float32(1)
SIZES = (1, 10**3, 10**5, 10**6, 10**7)
ROW = 1000
ROUNDS = 100
SECONDS = 0.0005  # per contestant and round


def add(x: F32, y: F32, *, out: F32 | None = None) -> F32:
    """A sum."""
    if out is None:
        return x + y
    np.add(x, y, out)
    return out


def fused(x: F32, b: F32, *, out: F32 | None = None) -> F32:
    """``x * sigmoid(x) + b``."""
    if out is None:
        out = np.empty_like(x)
    for i in range(x.size):
        out[i] = x[i] / (ONE + np.exp(-x[i])) + b[i]
    return out


def plain_fused(x: F32, b: F32) -> F32:
    """As `fused`, as one writes it for NumPy."""
    return x / (ONE + np.exp(-x)) + b


def softmax(x: F32, *, out: F32 | None = None) -> F32:
    """The softmax of each row."""
    if out is None:
        out = np.empty_like(x)
    for i in range(len(x)):
        row, result = x[i], out[i]
        largest = np.max(row)
        for j in range(row.size):
            result[j] = np.exp(row[j] - largest)
        scale = ONE / np.sum(result)
        for j in range(row.size):
            result[j] *= scale
    return out


def reduce_sum(x: F32, *, out: F32 | None = None) -> F32:
    """The sum of each row."""
    if out is None:
        out = np.empty(len(x), np.float32)
    for i in range(len(x)):
        out[i] = np.sum(x[i])
    return out


def plain_softmax(x: F32) -> F32:
    """As `softmax`, as one writes it for NumPy."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def plain_sum(x: F32) -> F32:
    """As `reduce_sum`."""
    return x.sum(-1)


VECTORS, ROWS = "float[n] x, float[n] y", "float[n, k] x"
AXIS = "<int64[1] axis = {1}>"
CASES: dict[str, tuple[Any, Any, str, str, str, str, str]] = {
    # kernel, plain kernel, parallel, call, inputs, output, built-in nodes
    "Add": (add, add, "(),()->()", "(x, y)", VECTORS, "float[m] z", "{ z = Add(x, y) }"),
    "x * sigmoid(x) + b": (
        *(fused, plain_fused, "(),()->()", "(x, y)", VECTORS, "float[m] z"),
        "{ s = Sigmoid(x) m = Mul(x, s) z = Add(m, y) }",
    ),
    "softmax, node by node": (
        *(softmax, plain_softmax, "(n)->(n)", "(x)", ROWS, "float[m, l] z"),
        AXIS + "{ m = ReduceMax<keepdims=1>(x, axis) d = Sub(x, m) e = Exp(d) t = ReduceSum<keepdims=1>(e, axis) "
        "z = Div(e, t) }",
    ),
    "Softmax": (softmax, plain_softmax, "(n)->(n)", "(x)", ROWS, "float[m, l] z", "{ z = Softmax(x) }"),
    "ReduceSum": (
        *(reduce_sum, plain_sum, "(n)->()", "(x)", ROWS, "float[m] z"),
        AXIS + "{ z = ReduceSum<keepdims=0>(x, axis) }",
    ),
}


def session(inputs: str, output: str, body: str, threads: int) -> pyops.InferenceSession:
    """A session of a model in ONNX's textual form."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    text = f'<ir_version: 8, opset_import: ["" : 18, "bench" : 1]> g ({inputs}) => ({output}) {body}'
    return pyops.InferenceSession(onnx.parser.parse_model(text), options)


def contestants(name: str, threads: int) -> dict[str, pyops.InferenceSession]:
    """Sessions of built-in nodes, of the compiled kernel and of the plain one."""
    kernel, plain, parallel, call, inputs, output, nodes = CASES[name]
    shape: Callable[..., Any] = lambda x, y=None: x.like(shape=x.shape[:-1]) if kernel is reduce_sum else x  # noqa: E731
    onnx_op("bench::Compiled", compile=True, parallel=parallel)(kernel).register_shape_inference(shape)
    onnx_op("bench::Plain")(plain).register_shape_inference(shape)
    bodies = {"built-in": nodes} | {key: f"{{ z = bench.{key}{call} }}" for key in ("Compiled", "Plain")}
    return {key.lower(): session(inputs, output, body, threads) for key, body in bodies.items()}


def feed(name: str, size: int) -> dict[str, F32]:
    """Inputs of about `size` elements."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal(size, np.float32)
    if CASES[name][4] == ROWS:
        return {"x": x.reshape(-1, min(size, ROW))}
    return {"x": x, "y": generator.standard_normal(size, np.float32)}


def fastest(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds per call."""
    numbers = {}
    for name, call in calls.items():
        call()
        numbers[name] = max(1, round(SECONDS / max(timeit.timeit(call, number=3) / 3, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timeit.timeit(call, number=numbers[name]) / numbers[name])
    return {name: min(values) for name, values in times.items()}


def measure(sizes: list[int], threads: list[int], rounds: int) -> None:
    """Print the table of ratios."""
    print("| operator | threads | elements | built-in | compiled | plain |\n|---|---|---|---|---|---|")
    for name in CASES:
        for count in threads:
            sessions = contestants(name, count)
            for size in sizes:
                inputs = feed(name, size)
                results = [made.run(None, inputs)[0] for made in sessions.values()]
                for result in results[1:]:
                    np.testing.assert_allclose(result, results[0], rtol=1e-4, atol=1e-3)
                calls = {key: functools.partial(made.run, None, inputs) for key, made in sessions.items()}
                found = fastest(calls, rounds)
                base = found["built-in"]
                cells = " | ".join(f"{found[key] / base:.2f}" for key in ("compiled", "plain"))
                print(f"| {name} | {count} | {size:,} | {base * 1e6:.1f} µs | {cells} |", flush=True)


@contextmanager
def busy_interpreter(busy: bool) -> Iterator[None]:
    """Context manager: let a thread compute in Python meanwhile, if `busy`."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            sum(range(1000))

    worker = threading.Thread(target=work)
    if busy:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        if busy:
            worker.join()


def calls_per_second(made: pyops.InferenceSession, inputs: dict[str, F32], threads: int, seconds: float) -> float:
    """How many calls several Python threads make of one session."""
    counts = [0] * threads
    until = time.perf_counter() + seconds

    def run(index: int) -> None:
        while time.perf_counter() < until:
            made.run(None, inputs)
            counts[index] += 1

    runners = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    return sum(counts) / seconds


def scaling(rounds: int) -> None:
    """Print calls per second of one and eight threads, relative to one thread of the built-in nodes."""
    name, size = "x * sigmoid(x) + b", 10**6
    sessions, inputs = contestants(name, 1), feed(name, size)
    print("| Python threads | busy Python thread | built-in | compiled | plain |\n|---|---|---|---|---|")
    cells = [(threads, busy) for busy in (False, True) for threads in (1, 8)]
    found: dict[Any, list[float]] = {(key, cell): [] for key in sessions for cell in cells}
    for made in sessions.values():
        made.run(None, inputs)
    for _ in range(rounds):
        for cell in cells:
            for key, made in sessions.items():
                with busy_interpreter(cell[1]):
                    found[key, cell].append(calls_per_second(made, inputs, cell[0], 0.3))
    base = statistics.median(found["built-in", (1, False)])
    for threads, busy in cells:
        ratios = [statistics.median(found[key, (threads, busy)]) / base for key in sessions]
        print(f"| {threads} | {'yes' if busy else 'no'} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/compiled.py", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="elements")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="intra_op_num_threads")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds per figure")
    parser.add_argument("--scaling", action="store_true", help="measure threads of Python instead")
    arguments = parser.parse_args()
    if arguments.scaling:
        scaling(arguments.rounds)
    else:
        measure(arguments.sizes, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    main()
