"""Compiled kernels of float16 and bfloat16: ``python tests/benchmarks/half_precision.py``.

They are compared with the same kernels of float32, and with the nodes of ONNX Runtime that compute the same, as
`tests/benchmarks/compiled.py` does. ONNX Runtime computes nodes of float16 between casts of its own; it has none of
bfloat16 for the CPU, so these nodes are between casts of the model's.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import compiled
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import pyops
from pyops import onnx_op

T = TypeVar("T", np.float32, np.float16, ml_dtypes.bfloat16)
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ONE, TWO = np.float32(1), np.float32(2)
SIZES = (10**4, 10**5, 10**6, 10**7)
ROW = 1000


@onnx_op("bench::Swish", compile=True, parallel="()->()")
def swish(x: NDArray[T], *, out: NDArray[T] | None = None) -> NDArray[T]:
    """``x * sigmoid(x)``."""
    if out is None:
        out = np.empty_like(x)
    for i in range(x.size):
        out[i] = x[i] / (ONE + np.exp(-x[i]))
    return out


@onnx_op("bench::RMSNorm", compile=True, parallel="(n),(n)->(n)", fastmath={"reassoc"})
def rms_norm(x: NDArray[T], weight: NDArray[T], *, out: NDArray[T] | None = None) -> NDArray[T]:
    """Each row divided by the root of the mean of its squares, times the weights."""
    if out is None:
        out = np.empty_like(x)
    for i in range(len(x)):
        row, result, total = x[i], out[i], np.float32(0)
        for j in range(row.size):
            total += row[j] * row[j]
        scale = ONE / np.sqrt(total / np.float32(row.size) + np.float32(1e-6))
        for j in range(row.size):
            result[j] = row[j] * scale * weight[j]
    return out


@onnx_op("bench::GEGLU", compile=True, parallel="(),()->()")
def geglu(x: NDArray[T], gate: NDArray[T], *, out: NDArray[T] | None = None) -> NDArray[T]:
    """``x * gelu(gate)``, with tanh's approximation of GELU."""
    if out is None:
        out = np.empty_like(x)
    for i in range(x.size):
        g = gate[i]
        inner = np.float32(0.7978845608) * (g + np.float32(0.044715) * g * g * g)
        out[i] = x[i] * g / (ONE + np.exp(-TWO * inner))
    return out


for _op in (swish, rms_norm, geglu):
    _op.register_shape_inference(lambda x, y=None: x)

CASES: dict[str, tuple[str, bool, str]] = {
    # call, whether there are rows, built-in nodes
    "Swish": ("(x)", False, "s = Sigmoid(x)  z = Mul(x, s)"),
    "RMSNorm": (
        *("(x, y)", True),
        "q = Mul(x, x)  m = ReduceMean<keepdims=1>(q, axis)  e = Add(m, epsilon)  r = Sqrt(e)  d = Div(x, r)  "
        "z = Mul(d, y)",
    ),
    "GEGLU": ("(x, y)", False, 'g = Gelu<approximate="tanh">(y)  z = Mul(x, g)'),
}


def session(name: str, dtype: str, built_in: bool, threads: int) -> Any:
    """A session of the kernel, or of the nodes that it replaces."""
    call, rows, nodes = CASES[name]
    kind = "float" if dtype == "float32" else dtype
    body, narrow = f"{{ z = bench.{name}{call} }}", dtype == "bfloat16" and built_in
    if built_in:
        constants = "axis = Constant<value_ints=[-1]>()  c = Constant<value_float=1e-6>()  epsilon = CastLike(c, x)  "
        body = f"{{ {constants * rows}{nodes} }}"
    if narrow:
        body = body.replace("{", "{ x = Cast<to=1>(x0)  y = Cast<to=1>(y0)  ").replace("z = ", "w = ")
        body = body.replace("}", "  z = Cast<to=16>(w) }")
    names = ("x0", "y0") if narrow else ("x", "y")
    shapes = ("[n, k]", "[k]") if rows else ("[n]", "[n]")
    used = len(call.split(","))
    inputs = ", ".join(f"{kind}{shape} {name}" for shape, name in list(zip(shapes, names, strict=True))[:used])
    if used == 1:
        body = body.replace("y = Cast<to=1>(y0)  ", "")
    text = f'<ir_version: 10, opset_import: ["" : 20, "bench" : 1]> g ({inputs}) => ({kind}{shapes[0]} z) {body}'
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return pyops.InferenceSession(onnx.parser.parse_model(text), options)


def values(name: str, dtype: str, size: int) -> list[Any]:
    """The inputs, in ONNX Runtime's own memory."""
    generator, rows = np.random.default_rng(0), CASES[name][1]
    shapes = [(size // ROW, ROW), (ROW,)] if rows else [(size,), (size,)]
    arrays = [generator.standard_normal(shape, np.float32).astype(DTYPES[dtype]) for shape in shapes]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[dtype]))
    make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
    return [make(array.view(np.uint16) if array.itemsize == 2 else array, kind) for array in arrays]


def contestants(name: str, size: int, threads: int) -> dict[str, Callable[[], Any]]:
    """The calls that take turns."""
    calls = {}
    for dtype in DTYPES:
        given = values(name, dtype, size)
        for built_in in (False, True):
            made = session(name, dtype, built_in, threads)
            binding = made.io_binding()
            for item, value in zip(made.get_inputs(), given, strict=False):
                binding.bind_ortvalue_input(item.name, value)
            binding.bind_ortvalue_output("z", values(name, dtype, size)[0])
            key = f"{dtype} {'nodes' if built_in else 'kernel'}"
            calls[key] = functools.partial(made.run_with_iobinding, binding)
    return calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/half_precision.py", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="elements")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="intra_op_num_threads")
    parser.add_argument("--rounds", type=int, default=compiled.ROUNDS, help="rounds per figure")
    arguments = parser.parse_args()
    print("| operator | threads | elements | float32 | float16 | bfloat16 | float16, to nodes | bfloat16, to nodes |")
    print("|---|---|---|---|---|---|---|---|")
    for name in CASES:
        for threads in arguments.threads:
            for size in arguments.sizes:
                found = compiled.fastest(contestants(name, size, threads), arguments.rounds)
                base = found["float32 kernel"]
                halves = [found[f"{dtype} kernel"] / base for dtype in ("float16", "bfloat16")]
                nodes = [found[f"{d} kernel"] / found[f"{d} nodes"] for d in ("float16", "bfloat16")]
                cells = " | ".join(f"{ratio:.2f}" for ratio in (*halves, *nodes))
                print(f"| {name} | {threads} | {size:,} | {base * 1e6:.1f} µs | {cells} |", flush=True)


if __name__ == "__main__":
    main()
