"""The table of sample operators with compiled kernels, for tests of everything that runs these."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import Op, onnx_op
from pyops.shapes import broadcast, new_dim
from pyops.testing import Sample

T = TypeVar("T", np.float16, np.float32, np.float64)
N = TypeVar("N", np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_)
F32, I64 = NDArray[np.float32], NDArray[np.int64]
X = np.array([[0.25, 1.5, -2.75], [3, 0, 1]], np.float32)

SAMPLES: list[Sample] = []


def sample(id: str, op: Op[..., Any], *inputs: Any, **attributes: Any) -> None:
    SAMPLES.append(Sample(op, *inputs, **attributes).with_id(f"{op.name}-{id}"))


@onnx_op("compiled::AddRound", compile=True)
def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
    return np.round(x + x, decimals)


sample("numpy-style", add_round, X, decimals=1)
sample("float64", add_round, X.astype(np.float64))
sample("scalar", add_round, np.array(0.25, np.float32), decimals=1)
sample("empty", add_round, X[:0])
sample("four-dimensions", add_round, X.reshape(1, 2, 1, 3))


@onnx_op("compiled::Loop", compile=True)
def loop(x: NDArray[N], *, out: NDArray[N] | None = None) -> NDArray[N]:
    if out is None:
        out = np.empty_like(x)
    for index in np.ndindex(x.shape):
        out[index] = x[index] + x[index]
    return out


loop.register_shape_inference(lambda x: x)
for _dtype in (np.float32, np.int64, np.uint8):
    sample(f"loop-style-{np.dtype(_dtype)}", loop, np.arange(6).reshape(2, 3).astype(_dtype))


@onnx_op("compiled::Not", compile=True)
def negate(x: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.logical_not(x)


sample("bool", negate, np.array([True, False]))


class Extremes(NamedTuple, Generic[T]):
    values: NDArray[T]
    index: I64


@onnx_op("compiled::Extremes", compile=True)
def extremes(x: NDArray[T]) -> Extremes[T]:
    return Extremes(x.max(), np.int64(x.argmax()))


sample("scalar-results", extremes, X)


@onnx_op("compiled::SumAndDifference", compile=True)
def sum_and_difference(x: F32, y: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
    if out is None:
        return x + y, x - y
    np.add(x, y, out[0])
    np.subtract(x, y, out[1])
    return out


sum_and_difference.register_shape_inference(lambda x, y: (x.like(shape=broadcast(x, y)),) * 2)
sample("two-buffers", sum_and_difference, X[0], X[0, :1])


@onnx_op("compiled::Clip", compile=True)
def clip(x: F32, low: F32 | None = None, high: F32 | None = None) -> F32:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


_one = np.ones(1, np.float32)
sample("only-required", clip, X)
sample("trailing-absent", clip, X, -_one, None)
sample("middle-absent", clip, X, None, _one)


@onnx_op("compiled::Total", compile=True)
def total(*xs: NDArray[T]) -> NDArray[T]:
    result = xs[0].copy()
    for x in xs[1:]:
        result += x
    return result


sample("many", total, *[X] * 4)


@onnx_op("compiled::Halves", compile=True)
def halves(x: NDArray[T]) -> tuple[NDArray[T], ...]:
    half = len(x) // 2
    return x[:half], x[half:][::-1]


sample("variadic-outputs", halves, X[0])


@onnx_op("compiled::Attributes", compile=True)
def attributes(
    x: F32,
    *,
    i: int,
    f: float,
    b: bool,
    ints: list[int],
    floats: tuple[float, ...] = (0.5, 2.5),
    mode: Literal["plus", "minus"] = "plus",
    words: list[str] = ["a", "bc"],  # noqa: B006
    table: np.ndarray | None = None,
    nothing: int | None = None,
) -> F32:
    y = x * f + np.float32(i) if mode == "plus" else x * f - np.float32(i)
    for value in ints:
        y[0, 0] += np.float32(value)
    if b and nothing is None:
        y = y + np.float32(len(words[1]))
    if table is not None:
        y = y + table
    return y * floats[1]


_given: dict[str, Any] = {"i": 3, "f": 0.1, "b": True, "ints": [2, -5]}
sample("defaults", attributes, X, **_given)
_table = np.arange(3, dtype=np.float32)
sample("given", attributes, X, **_given | {"b": False, "mode": "minus", "floats": (1.5, -2.0)}, table=_table)


@onnx_op("compiled::Softmax", compile=True)
def softmax(x: NDArray[T]) -> NDArray[T]:
    result = np.empty_like(x)
    for i in range(len(x)):
        e = np.exp(x[i] - np.max(x[i]))
        result[i] = e / np.sum(e)
    return result


sample("float32", softmax, X)
sample("float64", softmax, X.astype(np.float64))


@onnx_op("compiled::Unique", compile=True)
def unique(x: I64) -> I64:
    return np.unique(x)


unique.register_shape_inference(lambda x: x.like(shape=(new_dim(),)))
sample("run-time-size", unique, np.array([3, 1, 3]))


class Direction(enum.IntEnum):
    UP = 1


GREETING, SCALES = "ab", np.arange(6, dtype=np.float32).reshape(2, 3)


def of_many_pieces(offset: float, pair: tuple[int, float]) -> Callable[..., Any]:
    def inner(value: Any) -> Any:
        if math.isnan(value):
            raise ValueError("not a number", value)
        return math.erf(value) + np.hypot(value, np.float32(pair[1])) + np.exp(value)

    def pieces(x: F32) -> F32:
        y = x * SCALES + np.float32(pair[0] * len(GREETING) + offset + Direction.UP.value)
        for index in np.ndindex(y.shape):
            y[index] = inner(y[index] / np.float32(10))
        if GREETING + "c" == "abd":
            raise KeyError(GREETING)
        return np.tanh(y)

    return pieces


pieces = onnx_op("compiled::Pieces", compile=True)(of_many_pieces(0.5, (2, 0.25)))
sample("globals-closures-and-calls", pieces, X)


MANY = np.arange(300_000, dtype=np.float32)


@onnx_op("compiled::Large", compile=True)
def large(x: F32) -> F32:
    return x + MANY[-1]


sample("large-constant", large, X)
NOT_KEPT = {"Large-large-constant"}
"""What is compiled by each process."""

_FURTHER = {
    *("AddRound-scalar", "AddRound-empty", "AddRound-four-dimensions", "AddRound-float64"),
    *(
        "Attributes-defaults",
        "Clip-trailing-absent",
        "Loop-loop-style-int64",
        "Loop-loop-style-uint8",
        "Softmax-float64",
    ),
}
"""Samples of another shape or type than others of their ops, each of which takes a second to compile."""
QUICK = [case for case in SAMPLES if case.id not in _FURTHER]
PARAMETERS = [
    pytest.param(case, id=case.id, marks=[pytest.mark.exhaustive] if case.id in _FURTHER else []) for case in SAMPLES
]
