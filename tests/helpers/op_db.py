"""The table of sample operators: each test of an engine runs over all of it.

A sample is one call of an op. Every engine must return what the plain call returns.
"""

from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyops import Op, onnx_op
from pyops._core.schema.attribute import AttributeKind
from pyops.testing import Sample

DTYPES = (
    *(np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64),
    *(np.uint8, np.uint16, np.uint32, np.uint64, np.bool_, np.object_, ml_dtypes.bfloat16),
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz),
)
"""Every element type that custom operators of ONNX Runtime take on the CPU; object stands for string."""

T = TypeVar("T", np.float16, np.float32, np.float64)
S = TypeVar("S", np.float32, np.int64)
Any_ = TypeVar("Any_", *DTYPES)
F32, F64, I64, Str = NDArray[np.float32], NDArray[np.float64], NDArray[np.int64], NDArray[np.str_]


SAMPLES: list[Sample] = []


def sample(id: str, op: Op[..., Any], *inputs: Any, **attributes: Any) -> None:
    SAMPLES.append(Sample(op, *inputs, **attributes).with_id(f"{op.name}-{id}"))


def expected_failures(sample: Sample) -> dict[str, str]:
    """The reason why a sample cannot run in an engine, by engine."""
    signature = sample.op.signature
    lacking = [item.name for item in signature.inputs if item.optional or item.variadic]
    lacking += [item.name for item in signature.outputs if item.variadic]
    foreign = [x.dtype.name for x in sample.inputs if x is not None and _is_foreign(x.dtype)]
    if lacking or foreign:
        reason = f"onnxruntime-extensions does not support {', '.join(lacking + foreign)}"
        return {"extensions": reason, "extensions-plain": reason}
    kinds = {attribute.kind for attribute in signature.attributes}
    if not kinds <= {AttributeKind.INT, AttributeKind.STRING}:
        return {"extensions-plain": "onnxruntime-extensions rounds floats, and has no list and tensor attributes"}
    if kinds and len(sample.attributes) < len(signature.attributes):
        return {"extensions-plain": "onnxruntime-extensions wants every attribute on the node"}
    return {}


def _is_foreign(dtype: np.dtype[Any]) -> bool:
    return dtype == np.float16 or dtype.type.__module__ == "ml_dtypes"


def example(dtype: Any, shape: Sequence[int] = (2, 3)) -> np.ndarray[Any, Any]:
    """An array whose elements differ, with the special values of its dtype among them."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype == np.object_:
        words = ["plain", "", "Käse 北京 🧀", "tab\tline\n", " ", "x" * 300]
        return np.array([words[i % 6] + ("" if i < 6 else str(i)) for i in range(count)], object).reshape(shape)
    if dtype.kind in "iu":
        values = np.arange(count).astype(dtype)
        values[-2:] = [np.iinfo(dtype).min, np.iinfo(dtype).max][-min(2, count) :]
        return values.reshape(shape)
    if dtype.kind == "b":
        return (np.arange(count) % 3 == 0).reshape(shape)
    values = (np.arange(count) - 2.5).astype(dtype)
    if count > 3:
        values[-1] = np.nan
    return values.reshape(shape)


# Element types, and what a result may look like in memory.


@onnx_op("samples::Same")
def identity(x: NDArray[Any_]) -> NDArray[Any_]:
    return x


@onnx_op("samples::Reverse")
def reverse(x: NDArray[Any_]) -> NDArray[Any_]:
    return x[::-1]


@onnx_op("samples::Turned")
def transpose(x: NDArray[Any_]) -> NDArray[Any_]:
    return np.array(x, order="F").T[::-1] if x.ndim else x.copy()


@onnx_op("samples::Corner")
def corner(x: NDArray[Any_]) -> NDArray[Any_]:
    return x.reshape(-1)[0:1].reshape(())


@onnx_op("samples::Tile")
def tile(x: F32, *, times: int) -> F32:
    return np.broadcast_to(x, (times, *x.shape))


for _dtype in DTYPES:
    for _op in (identity, reverse, transpose, corner):
        sample("string" if _dtype is np.object_ else np.dtype(_dtype).name, _op, example(_dtype))
# Large results are copied in another way than small ones.
for _op in (identity, reverse, transpose):
    for _dtype in (np.float32, np.int8, ml_dtypes.bfloat16, np.object_):
        sample(f"large-{np.dtype(_dtype).name}", _op, example(_dtype, (70, 80)))
    sample("empty", _op, np.empty((0, 3), np.float32))
    sample("empty-strings", _op, np.empty((2, 0), object))
sample("scalar", identity, np.array(2.5))
sample("scalar-string", identity, np.array("one", object).reshape(()))
sample("many-dimensions", identity, example(np.float32, (1, 2, 1, 2, 1, 2, 1, 2)))
sample("stride-zero", tile, example(np.float32), times=3)
sample("stride-zero-large", tile, example(np.float32, (20, 30)), times=7)
sample("zero-times", tile, example(np.float32), times=0)


# Inputs and outputs.


@onnx_op("samples::AddRound")
def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
    return np.round(x + x, decimals)


@onnx_op("samples::Subtract")
def subtract(x: NDArray[T], y: NDArray[T]) -> NDArray[T]:
    return x - y


@onnx_op("samples::Scale")
def scale(x: NDArray[T], factor: NDArray[S]) -> tuple[NDArray[T], NDArray[S]]:
    return (x * factor).astype(x.dtype), factor + factor.dtype.type(1)


class Extremes(NamedTuple, Generic[T]):
    values: NDArray[T]
    index: NDArray[np.int64]


@onnx_op("samples::Extremes")
def extremes(x: NDArray[T], *, axis: int = -1) -> Extremes[T]:
    return Extremes(x.max(axis), x.argmax(axis))


@onnx_op("samples::Floor")
def floor(x: NDArray[np.floating]) -> I64:
    return np.floor(x.astype(np.float64)).astype(np.int64)


@onnx_op("samples::Clip")
def clip(x: F32, low: F32 | None = None, high: F32 | None = None) -> F32:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@onnx_op("samples::Total")
def total(*xs: NDArray[T]) -> NDArray[T]:
    return sum(xs[1:], start=xs[0])


@onnx_op("samples::Ranks")
def ranks(first: F32, *rest: NDArray[np.number]) -> Str:
    return np.array([f"{x.dtype}{x.shape}" for x in (first, *rest)], object)


@onnx_op("samples::Halves")
def halves(x: NDArray[T]) -> tuple[NDArray[T], ...]:
    return tuple(np.split(x, 2))


@onnx_op("samples::Unique")
def unique(x: NDArray[S]) -> tuple[NDArray[S], I64]:
    values, counts = np.unique(x, return_counts=True)
    return values, counts


@onnx_op("samples::Upper")
def upper(x: Str) -> Str:
    return np.char.upper(x.astype(str))


_half, _single, _double = (np.array([0.25, 1.5, -2.75], t) for t in (np.float16, np.float32, np.float64))
for _x in (_half, _single, _double):
    sample(_x.dtype.name, add_round, _x)
    sample(f"{_x.dtype.name}-decimals", add_round, _x, decimals=1)
    sample(f"broadcast-{_x.dtype.name}", subtract, _x, np.ones((2, 1), _x.dtype))
    sample(_x.dtype.name, extremes, np.stack([_x, -_x]))
    sample(_x.dtype.name, floor, _x)
    sample(f"two-{_x.dtype.name}", total, _x, _x[:1])
    sample(_x.dtype.name, halves, np.arange(4).astype(_x.dtype))
    for _factor in (np.array(3, np.int64), np.array([0.5], np.float32)):
        sample(f"{_x.dtype.name}-{_factor.dtype.name}", scale, _x, _factor)
sample("scalars", subtract, np.array(3.0, np.float32), np.array(1.0, np.float32))
sample("empty", subtract, np.empty((0,), np.float64), np.ones((2, 1), np.float64))
sample("axis", extremes, np.arange(6, dtype=np.float32).reshape(2, 3), axis=0)
sample("only-required", clip, _single)
sample("trailing-absent", clip, _single, np.zeros(1, np.float32), None)
sample("middle-absent", clip, _single, None, np.ones(1, np.float32))
sample("all-present", clip, _single, np.zeros(1, np.float32), np.ones(1, np.float32))
sample("one", total, _single)
sample("many", total, *[_single] * 40)
sample("no-rest", ranks, _single)
sample("mixed", ranks, _single, np.ones(2, np.int8), np.ones((), np.float64), np.ones((0, 2), np.float16))
sample("int64", unique, np.array([3, 1, 3]))
sample("float32", unique, np.array([0.5, 0.5], np.float32))
sample("unicode", upper, np.array([["straße", "é"], ["", "ǆ"]], object))


# Attributes.


def _line(*values: Any) -> np.ndarray[Any, Any]:
    return np.array([f"{type(value).__name__} {value!r}" for value in values], object)


@onnx_op("samples::Required")
def required(
    x: F32, *, i: int, f: float, s: str, b: bool, ints: list[int], floats: list[float], strings: list[str]
) -> Str:
    return _line(i, f, s, b, ints, floats, strings)


@onnx_op("samples::Defaults")
def defaults(
    x: F32,
    *,
    i: int = -7,
    f: float = 0.1,
    s: str = "ä",
    b: bool = True,
    ints: Sequence[int] = (1, 2),
    floats: tuple[float, ...] = (0.1, -2.5),
    strings: tuple[str, ...] = ("a", ""),
) -> Str:
    return _line(i, f, s, b, ints, floats, strings)


@onnx_op("samples::Nullable")
def nullable(
    x: F32,
    *,
    i: int | None = None,
    f: float | None = None,
    s: str | None = None,
    b: bool | None = None,
    ints: list[int] | None = None,
    floats: list[float] | None = None,
    strings: list[str] | None = None,
    table: np.ndarray | None = None,
) -> Str:
    return _line(i, f, s, b, ints, floats, strings, None if table is None else table.tolist())


@onnx_op("samples::Choice")
def choice(x: F32, *, mode: Literal["down", "up"] = "up", bits: Literal[4, 8] = 8) -> Str:
    return _line(mode, bits)


@onnx_op("samples::Table")
def table(x: F32, *, table: np.ndarray) -> Str:
    return _line(table.dtype.name, table.shape, table.tolist(), table.flags.writeable)


_given: dict[str, Any] = {
    "i": 2**63 - 1,
    "f": 0.123456789,
    "s": "Größe 🧀",
    "b": False,
    "ints": [-(2**63), 0, 5],
    "floats": [1e30, -0.0, 1e-45],
    "strings": ["x", "", "ß"],
}
_empty: dict[str, Any] = {"i": 0, "f": 0.0, "s": "", "b": False, "ints": [], "floats": [], "strings": []}
for _op in (required, defaults, nullable):
    sample("given", _op, _single, **_given)
    sample("empty", _op, _single, **_empty)
for _op in (defaults, nullable, choice):
    sample("absent", _op, _single)
sample("infinite", defaults, _single, f=float("-inf"), floats=[float("inf"), float("nan")])
sample("choices", choice, _single, mode="down", bits=4)
for _dtype in DTYPES:
    _name = "string" if _dtype is np.object_ else np.dtype(_dtype).name
    sample(_name, table, _single, table=example(_dtype))
sample("scalar", table, _single, table=np.array(0.1))
sample("empty", table, _single, table=np.empty((2, 0), np.float32))
sample("nullable", nullable, _single, table=np.arange(3))
