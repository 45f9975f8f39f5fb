"""Operators for a library: those without a sample in `compiled_db`, and those that are rejected."""

from __future__ import annotations

from typing import TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyops import onnx_op
from pyops.shapes import broadcast
from pyops.testing import Sample

T = TypeVar("T", np.float16, np.float32)
F32, F64 = NDArray[np.float32], NDArray[np.float64]
RANDOM = np.random.default_rng(0)


def values(*shape: int) -> F32:
    return RANDOM.random(shape, np.float32)


@onnx_op("built::AddScaled", compile=True, parallel="(),()->()")
def add_scaled(x: NDArray[T], y: NDArray[T], *, scale: float = 2.0, out: NDArray[T] | None = None) -> NDArray[T]:
    return x + y * x.dtype.type(scale)


add_scaled.register_shape_inference(lambda x, y, *, scale=2.0: x.like(shape=broadcast(x, y)))


@onnx_op("built::Rows", compile=True, parallel="(n)->(n),()")
def rows(x: F32, *, limit: int = 100) -> tuple[F32, F32]:
    result, total = np.empty_like(x), np.empty(x.shape[:-1], np.float32)
    flat, sums = x.reshape(-1, x.shape[-1]), total.reshape(-1)
    for i in range(len(flat)):
        if flat[i, 0] > limit:
            raise ValueError("too large", i, "row", 1e5, 1e-5)
        sums[i] = np.sum(flat[i])
        result.reshape(-1, x.shape[-1])[i] = flat[i] / sums[i]
    return result, total


rows.register_shape_inference(lambda x, limit=100: (x, x.like(shape=x.shape[:-1])))


@onnx_op("built::PairSums", compile=True)
def pair_sums(x: F64, *, scale: int = 1) -> F64:
    if x.shape[0] % 2:
        raise ValueError(f"{x.shape[0]} rows are odd in number")
    return (x[0::2] + x[1::2]) * scale


pair_sums.register_shape_inference(lambda x, scale=1: x.like(shape=(x.shape[0] // 2, *x.shape[1:])))

LOOPS = [
    Sample(add_scaled, values(4, 3, 5, 7), values(3, 1, 1), scale=0.3).with_id("channels"),
    Sample(add_scaled, values(4, 3, 5), values(5)).with_id("last"),
    Sample(add_scaled, values(), values()).with_id("scalars"),
    Sample(add_scaled, values(0, 3), values(1, 3)).with_id("empty"),
    Sample(add_scaled, values(2, 1, 3, 1, 5), values(4, 1, 6, 1)).with_id("alternating"),
    Sample(add_scaled, values(400, 500), values(400, 500)).with_id("parallel"),
    Sample(rows, values(2, 3, 4)).with_id("two-outputs"),
    Sample(rows, values(700, 300)).with_id("two-outputs-parallel"),
    Sample(rows, values(4)).with_id("one-row"),
]
PAIRS = Sample(pair_sums, values(4, 5).astype(np.float64), scale=3).with_id("pairs")
RAISING = [
    (
        Sample(rows, values(2, 4) + np.float32(200)),
        "built::Rows: ValueError: ('too large', 0, 'row', 100000.0, 1e-05) (buildable_ops.py:38, in rows)",
    ),
    (
        Sample(pair_sums, values(3, 2).astype(np.float64)),
        "built::PairSums: ValueError: 3 rows are odd in number (buildable_ops.py:",
    ),
    (Sample(add_scaled, values(3), values(4)), "built::AddScaled: the inputs do not broadcast: 3 against 4"),
    (
        Sample(pair_sums, values(4, 2, 2).astype(np.float64)),
        "this library has no code for (float64 of rank 3); build it with --for",
    ),
]


@onnx_op("built::Divided", compile=True)
def divided(
    x: NDArray[np.int64], y: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    quotient, remainder = np.divmod(x, y)
    return quotient, remainder, np.fmod(x, y)


@onnx_op("built::Prints", compile=True)
def prints(x: F32) -> F32:
    print("hello")
    return x


@onnx_op("built::Product", compile=True)
def product(x: F32, y: F32) -> F32:
    return x @ y


@onnx_op("built::Random", compile=True)
def random(x: F32) -> F32:
    return x + np.float32(np.random.random())


@onnx_op("built::Table", compile=True)
def table(x: F32) -> F32:
    found = {}
    for i in range(x.size):
        found[x[i]] = i
    result = np.zeros_like(x)
    for key, value in found.items():
        result[value] = key
    return result


@onnx_op("built::Quarter", compile=True)
def quarter(x: NDArray[ml_dtypes.float8_e5m2]) -> NDArray[ml_dtypes.float8_e5m2]:
    return x


@onnx_op("built::Texts", compile=True)
def texts(x: F32, *, mode: str) -> F32:
    return x if mode == "a" else -x


@onnx_op("built::LongText", compile=True)
def long_text(x: F32, *, mode: str = "a" * 1100) -> F32:
    return x if len(mode) else -x


@onnx_op("built::Nul", compile=True)
def nul(x: F32, *, mode: str = "a\0b") -> F32:
    return x if len(mode) else -x


@onnx_op("built::Plain")
def plain(x: F32) -> F32:
    return x


@onnx_op("built::Unknown", compile=True)
def unknown(x: F32) -> F32:
    return np.partition_by_magic(x)  # type: ignore[attr-defined]  # NumPy has no such function


def power(x, n):  # type: ignore[no-untyped-def]  # numba infers its types
    return x * power(x, n - 1) if n > 0 else 1.0


@onnx_op("built::Recursive", compile=True)
def recursive(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([power(x[0], x.size)])


REFUSED = {
    prints: "needs the interpreter: it prints",
    product: "linear algebra",
    random: "random numbers",
    table: "it uses a dict, a typed list or the hash of a string, which only numba has; use arrays, tuples or lists",
    quarter: "numba does not support float8_e5m2",
    texts: "attribute 'mode' is str, and each string needs its own code; give a model that has the op (--for)",
    long_text: "a library can read at most 1,023 bytes of a node's string attributes; shorten mode='aaa",
    nul: "a library cannot read a string with a NUL character; remove it from \"mode='a\\x00b'; \"",
    plain: "it has no compiled kernel; declare it with compile=True",
    unknown: "partition_by_magic",
    recursive: "calls itself, directly or through others; machine code has no recursion limit, so write a loop",
}
