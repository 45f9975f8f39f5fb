"""What kernels return: ``python tests/benchmarks/returned.py`` prints a Markdown table of ratios.

Kernels in float32 that return a new array are compared with the same ones whose results are copied, with kernels that
write to `out`, with the nodes of ONNX Runtime that compute the same, and with NumPy alone, as `compiled.py` does.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any

import compiled
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import pyops
from pyops import onnx_op

Array = NDArray[np.float32]
ONE, EPSILON = np.float32(1), np.float32(1e-5)
SIZES = (1, 10**3, 10**5, 10**6, 10**7)
ROW = compiled.ROW


def add_one(x: Array) -> Array:
    """Add 1."""
    return x + ONE


def add_one_out(x: Array, *, out: Array | None = None) -> Array:
    """Add 1, into `out`."""
    return np.add(x, ONE, out=out)


def add(x: Array, z: Array) -> Array:
    """Add two arrays."""
    return x + z


def add_out(x: Array, z: Array, *, out: Array | None = None) -> Array:
    """Add two arrays, into `out`."""
    return np.add(x, z, out=out)


def swish(x: Array, z: Array) -> Array:
    """Compute a chain of six calls."""
    return x * (ONE / (ONE + np.exp(-x))) + z


def swish_out(x: Array, z: Array, *, out: Array | None = None) -> Array:
    """Compute `swish` into `out`, without another array."""
    out = np.negative(x, out=out)
    np.exp(out, out=out)
    out += ONE
    np.divide(x, out, out=out)
    return np.add(out, z, out=out)


def softmax(x: Array) -> Array:
    """Compute a softmax of rows."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_out(x: Array, *, out: Array | None = None) -> Array:
    """Compute `softmax` into `out`."""
    out = np.subtract(x, x.max(-1, keepdims=True), out=out)
    np.exp(out, out=out)
    return np.divide(out, out.sum(-1, keepdims=True), out=out)


def layer_norm(x: Array) -> Array:
    """Normalize rows."""
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + EPSILON)


def layer_norm_out(x: Array, *, out: Array | None = None) -> Array:
    """Compute `layer_norm` into `out`."""
    out = np.subtract(x, x.mean(-1, keepdims=True), out=out)
    return np.divide(out, np.sqrt((out * out).mean(-1, keepdims=True) + EPSILON), out=out)


OPERATORS: dict[str, tuple[Callable[..., Array], Callable[..., Array], str]] = {
    "x + 1": (add_one, add_one_out, "y = Add (x, one)"),
    "x + z": (add, add_out, "y = Add (x, z)"),
    "x * sigmoid(x) + z": (swish, swish_out, "s = Sigmoid (x)  p = Mul (x, s)  y = Add (p, z)"),
    "softmax": (softmax, softmax_out, "y = Softmax <axis = -1> (x)"),
    "layer norm": (layer_norm, layer_norm_out, "y = LayerNormalization <axis = -1> (x, scale)"),
}


for number, (returning, writing, _) in enumerate(OPERATORS.values()):
    onnx_op(f"bench::Returning{number}")(returning)
    onnx_op(f"bench::Writing{number}")(writing).register_shape_inference(lambda x, *others: x)


def shape_of(name: str, size: int) -> tuple[int, ...]:
    """Return the shape of an operator's arrays."""
    row = min(ROW, size)
    return (size // row, row) if name in ("softmax", "layer norm") else (size,)


def session(body: str, feed: Mapping[str, Array], threads: int, settings: Mapping[str, str]) -> Any:
    """Return a session of ONNX Runtime's own nodes, or of ops, that is created with variables of the environment."""
    dims = ", ".join("ab"[: feed["x"].ndim])
    inputs = ", ".join(f"float[{dims}] {name}" for name in feed)
    row = feed["x"].shape[-1] if "scale" in body else 1
    constants = f"<float one = {{1}}, float[{row}] scale = {{{', '.join(['1'] * row)}}}>"
    head = '<ir_version: 10, opset_import: ["": 20, "bench": 1]>'
    model = onnx.parser.parse_model(f"{head} g ({inputs}) => (float[{dims}] y) {constants} {{ {body} }}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    os.environ.update(settings)
    try:
        if "bench" in body:
            return pyops.InferenceSession(model, options)
        return onnxruntime.InferenceSession(model.SerializeToString(), options)
    finally:
        for variable in settings:
            del os.environ[variable]


def contestants(name: str, size: int, threads: int) -> dict[str, Callable[[], Any]]:
    """Return a call per column."""
    returning, _, nodes = OPERATORS[name]
    number = list(OPERATORS).index(name)
    random = np.random.default_rng(0)
    names = returning.__code__.co_varnames[: returning.__code__.co_argcount]
    feed = {each: random.standard_normal(shape_of(name, size), np.float32) for each in names}
    node = f"{number} ({', '.join(feed)})"
    sessions = {
        "ONNX Runtime": session(nodes, feed, threads, {}),
        "returned": session(f"y = bench.Returning{node}", feed, threads, {}),
        "copied": session(f"y = bench.Returning{node}", feed, threads, {"PYOPS_EXCHANGE": "0"}),
        "`out=`": session(f"y = bench.Writing{node}", feed, threads, {}),
    }
    calls: dict[str, Callable[[], Any]] = {each: (lambda s=s: s.run(None, feed)) for each, s in sessions.items()}
    wanted = calls["ONNX Runtime"]()[0]
    for call in list(calls.values()) * 2:
        np.testing.assert_allclose(call()[0], wanted, 1e-3, 1e-3)
    return calls | {"NumPy alone": lambda: returning(*feed.values())}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/returned.py", description=__doc__)
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=list(OPERATORS))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="elements")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="intra_op_num_threads; 0 is the default")
    parser.add_argument("--rounds", type=int, default=compiled.ROUNDS, help="rounds per figure")
    arguments = parser.parse_args()
    header = ["operator", "threads", "elements", "ONNX Runtime", "returned", "copied", "`out=`", "NumPy alone"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for name, threads, size in itertools.product(arguments.operators, arguments.threads, arguments.sizes):
        measured = compiled.fastest(contestants(name, size, threads), arguments.rounds)
        base = measured.pop("ONNX Runtime")
        cells = [name, str(threads or "default"), f"{size:,}", f"{base * 1e6:.1f} µs"]
        print(f"| {' | '.join(cells + [f'{time / base:.2f}' for time in measured.values()])} |", flush=True)


if __name__ == "__main__":
    main()
