"""Kernels of float16 and bfloat16 compute in float32, and round each element once when they store it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from pyops.errors import CompileError
from pyops.testing import Sample, check
from tests.helpers.scripts import run_script
from tests.helpers.tiers import first_quick

T = TypeVar("T", np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
F32 = NDArray[np.float32]
TYPES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
EVERY = np.arange(1 << 16, dtype=np.uint16)
TABLE, STEP = np.array([0.1, 2, -3], ml_dtypes.bfloat16), np.float16(0.1)

each_type = pytest.mark.parametrize("dtype", TYPES, ids=str)
first_type = pytest.mark.parametrize("dtype", first_quick(TYPES), ids=str)


def same(given: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Bit for bit, and NaN for NaN."""
    assert (given.dtype, given.shape) == (wanted.dtype, wanted.shape)
    both = np.isnan(given.astype(np.float32)) & np.isnan(wanted.astype(np.float32))
    return bool(np.all(both | (given.view(np.uint16) == wanted.view(np.uint16))))


def values(dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
    return (np.random.default_rng(0).normal(size=shape) * 3).astype(dtype)


def run(op: Op[..., Any], *inputs: Any, **attributes: Any) -> list[NDArray[Any]]:
    """The outputs of the second call of a session, in which machine code calls the kernel."""
    sample = Sample(op, *inputs, **attributes)
    session = pyops.InferenceSession(sample.model())
    session.run(None, sample.feed)
    return [np.asarray(output) for output in session.run(None, sample.feed)]


@onnx_op("half::Wide", compile=True)
def wide(x: NDArray[T]) -> F32:
    return x.astype(np.float32)


@onnx_op("half::Fused", compile=True, parallel="(),()->()")
def fused(x: NDArray[T], y: NDArray[T], *, out: NDArray[T] | None = None) -> NDArray[T]:
    if out is None:
        out = np.empty_like(x)
    flat, other, result = x.ravel(), y.ravel(), out.reshape(-1)
    for i in range(x.size):
        result[i] = flat[i] / (np.float32(1) + np.exp(-other[i])) + other[i]
    return out


fused.register_shape_inference(lambda x, y: x)


@each_type
def test_every_value_is_widened(dtype: np.dtype[Any]) -> None:
    with np.errstate(all="ignore"):
        wanted = EVERY.view(dtype).astype(np.float32)
    given = wide(EVERY.view(dtype))
    assert np.array_equal(given.view(np.uint32)[~np.isnan(wanted)], wanted.view(np.uint32)[~np.isnan(wanted)])
    assert np.array_equal(np.isnan(given), np.isnan(wanted))


@each_type
def test_every_value_and_what_lies_between_two_is_rounded_to_the_even_one(dtype: np.dtype[Any]) -> None:
    @onnx_op("half::Rounded", compile=True)
    def rounded(x: F32) -> NDArray[dtype.type]:  # type: ignore[name-defined]
        return x

    with np.errstate(all="ignore"):
        bits = EVERY.view(dtype).astype(np.float32).view(np.uint32).astype(np.int64)
        steps = np.array([0, 1, -1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001])
        x = (bits[:, None] + steps).astype(np.uint32).ravel().view(np.float32)
        x = np.concatenate([x, np.random.default_rng(0).integers(0, 2**32, 10**6, np.uint32).view(np.float32)])
        wanted = x.astype(dtype)
    given = rounded(x)
    assert same(given, wanted)
    quiet = 0x200 if dtype == np.float16 else 0x40
    assert np.all(given.view(np.uint16)[np.isnan(x)] & quiet)


@each_type
def test_a_kernel_gives_the_result_of_float32_rounded_once(dtype: np.dtype[Any]) -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 16, (2, 10**6), np.uint16)
    x, y = bits.view(dtype)
    with np.errstate(all="ignore"):
        wanted = fused(x.astype(np.float32), y.astype(np.float32)).astype(dtype)
        assert same(fused(x, y), wanted)
        assert same(run(fused, x, y)[0], wanted)


def test_all_types_of_a_type_variable_are_compiled() -> None:
    for dtype in (*TYPES, np.dtype(np.float32), np.dtype(np.float64)):
        x, y = values(dtype, 2, 3, 5)
        plain = fused.kernels["cpu"].plain(x.astype(np.float64), y.astype(np.float64))
        for given in (fused(x, y), run(fused, x, y)[0]):
            assert given.dtype == dtype
            limits = ml_dtypes.finfo(dtype)
            np.testing.assert_allclose(given.astype(np.float64), plain, rtol=20 * float(limits.eps))


def test_a_branch_for_an_absent_buffer_or_input_may_give_float32() -> None:
    @onnx_op("half::Branches", compile=True)
    def branches(x: NDArray[T], y: NDArray[T] | None = None, *, out: NDArray[T] | None = None) -> NDArray[T]:
        if y is not None:
            x = x + y
        if out is None:
            return x * np.float32(2)
        np.multiply(x, np.float32(2), out)
        return out

    branches.register_shape_inference(lambda x, y=None: x)
    for dtype in TYPES:
        x, y = values(dtype, 2, 7)
        wide = x.astype(np.float32)
        for inputs, total in (((x,), wide), ((x, y), wide + y.astype(np.float32))):
            assert same(branches(*inputs), (total * 2).astype(dtype))
            assert same(run(branches, *inputs)[0], (total * 2).astype(dtype))


@first_type
def test_several_outputs_optional_and_variadic_inputs_and_attributes(dtype: np.dtype[Any]) -> None:
    scalar = dtype.type

    @onnx_op("half::Parts", compile=True)
    def parts(
        first: NDArray[scalar],  # type: ignore[valid-type]
        bias: NDArray[scalar] | None = None,  # type: ignore[valid-type]
        *rest: NDArray[scalar],  # type: ignore[valid-type]
        scale: float = 0.1,
        table: np.ndarray,
        k: int = 2,
    ) -> tuple[NDArray[scalar], F32, NDArray[np.int64], NDArray[scalar]]:  # type: ignore[valid-type]
        total = first * scale
        if bias is not None:
            total = total + bias
        for x in rest:
            total = total + x
        return total, total * np.float32(k), np.asarray(np.argmax(first)), first[0] * table

    first, bias, third, fourth = values(dtype, 4, 6)
    table = np.array([0.1, 3], scalar)
    for given in ([first, bias, third, fourth], [first, None, third]):
        total = first.astype(np.float32) * np.float32(0.1)
        for x in given[1:]:
            total = total if x is None else total + x.astype(np.float32)
        scaled = first[0].astype(np.float32) * table.astype(np.float32)
        for outputs in (parts(*given, table=table), run(parts, *given, table=table)):
            assert same(outputs[0], total.astype(dtype))
            assert np.array_equal(outputs[1], total * 2)
            assert outputs[2] == np.argmax(first)
            assert same(outputs[3], scaled.astype(dtype))


@first_type
def test_variadic_outputs_scalars_and_views_that_are_returned(dtype: np.dtype[Any]) -> None:
    @onnx_op("half::Many", compile=True)
    def many(x: NDArray[T]) -> tuple[NDArray[T], ...]:
        return np.float32(3.7), x[::-1], x.astype(np.float32) / np.float32(3), np.float64(x.sum())

    x = values(dtype, 9)
    third, total = x.astype(np.float32) / np.float32(3), sum(x.astype(np.float32), np.float32(0))
    for outputs in (many(x), run(many, x)):
        wanted = (np.array(3.7, np.float32), x[::-1], third, np.array(total))
        assert all(same(given, expected.astype(dtype)) for given, expected in zip(outputs, wanted, strict=True))


@first_type
def test_an_op_may_work_in_place(dtype: np.dtype[Any]) -> None:
    @onnx_op("half::Grow", compile=True, may_inplace={"output": "x"})
    def grow(x: NDArray[T], *, out: NDArray[T] | None = None) -> NDArray[T]:
        if out is None:
            return x + np.float32(1)
        np.add(x, np.float32(10 if x.ctypes.data == out.ctypes.data else 1), out)
        return out

    grow.register_shape_inference(lambda x: x)
    text = f"""<ir_version: 10, opset_import: ["" : 21, "half" : 1]> g (float[n] x) => (float[m] y)
        {{ a = Cast<to={10 if dtype == np.float16 else 16}>(x)  b = half.Grow(a)  y = Cast<to=1>(b) }}"""
    session = pyops.InferenceSession(onnx.parser.parse_model(text))
    x = np.arange(4, dtype=np.float32)
    assert [session.run(None, {"x": x})[0].tolist() for _ in range(2)] == [(x + 10).tolist()] * 2


@first_type
def test_reductions_are_float32_along_axes_too(dtype: np.dtype[Any]) -> None:
    @onnx_op("half::Sums", compile=True)
    def sums(x: NDArray[T]) -> tuple[F32, F32, F32, F32, F32]:
        total = x[0, 0]
        for row in x:
            for value in row:
                total += value
        return np.sum(x, axis=0), x.sum(1), np.asarray(np.sum(x)), np.cumsum(x[0]), np.asarray(total)

    x = np.ones((2, 5000), dtype)  # float16 counts to 2048, bfloat16 to 256
    columns, rows, whole, counts, total = sums(x)
    assert columns.tolist() == [2] * 5000
    assert rows.tolist() == [5000, 5000]
    assert (whole, total) == (10000, 10001)
    assert counts.tolist() == list(range(1, 5001))


@first_type
def test_an_array_of_the_inputs_type_rounds_when_an_element_is_stored(dtype: np.dtype[Any]) -> None:
    @onnx_op("half::Stored", compile=True)
    def stored(x: NDArray[T]) -> tuple[F32, F32]:
        y = np.empty_like(x)
        for i in range(x.size):
            y[i] = x[i] / np.float32(3)
        return y.astype(np.float32), x / np.float32(3)

    x = values(dtype, 100)
    rounded, exact = stored(x)
    assert np.array_equal(exact, x.astype(np.float32) / np.float32(3))
    assert np.array_equal(rounded, exact.astype(dtype).astype(np.float32))


def test_the_types_are_names_in_kernels_too() -> None:
    @onnx_op("half::Named", compile=True)
    def named(x: F32) -> tuple[F32, F32, F32, F32, F32]:
        made = np.zeros(3, np.float16)
        made[:] = x[0]
        brain = x.astype(ml_dtypes.bfloat16)
        limits = np.array([np.finfo(made.dtype).max, np.finfo(ml_dtypes.bfloat16).eps])
        scaled = x * np.float16(0.1) + x * made.dtype.type(0.1)
        return made.astype(np.float32), brain.astype(np.float32), limits, scaled, TABLE * x[0] + STEP

    x = np.array([1 / 3, 2], np.float32)
    made, brain, limits, scaled, constants = named(x)
    assert np.array_equal(made, np.full(3, x[0]).astype(np.float16).astype(np.float32))
    assert np.array_equal(brain, x.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert limits.tolist() == [65504, 2**-7]
    assert np.array_equal(scaled, x * np.float32(0.1) + x * np.float32(0.1))
    assert np.array_equal(constants, TABLE.astype(np.float32) * x[0] + np.float32(STEP))


@each_type
@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda x: x @ x, id="matmul"),
        pytest.param(lambda x: np.dot(x[0], x[1]) + x, id="dot"),
        pytest.param(lambda x: np.vdot(x[0], x[1]) + x, id="vdot"),
        pytest.param(lambda x: np.dot(x, x[0]) + x, id="matrix-vector"),
    ],
)
def test_products_of_linear_algebra_are_those_of_float32(dtype: np.dtype[Any], compute: Callable[..., Any]) -> None:
    pytest.importorskip("scipy")
    op = onnx_op("half::Product", compile=True)(_annotated(compute))
    x = np.round(values(dtype, 4, 4).astype(np.float32)).astype(dtype)  # whose sums are exact
    assert same(op(x), compute(x.astype(np.float32)).astype(dtype))


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__annotations__ = {"x": NDArray[T], "return": NDArray[T]}
    return function


def test_what_does_not_compile_is_an_error_with_its_line() -> None:
    @onnx_op("half::Unknown", compile=True)
    def unknown(x: NDArray[T]) -> NDArray[T]:
        return np.linalg.inv(x)

    with pytest.raises(CompileError) as caught:
        unknown(np.eye(2, dtype=np.float16))
    line = unknown.kernels["cpu"].function.__code__.co_firstlineno
    assert f"half::Unknown cannot be compiled for float16[:, :] ({__file__}:{line})" in str(caught.value)
    assert f"line {line + 2}" in str(caught.value)


def test_an_exception_has_the_elements_value() -> None:
    @onnx_op("half::Positive", compile=True)
    def positive(x: NDArray[T]) -> NDArray[T]:
        for i, value in enumerate(x):
            if value < 0:
                raise ValueError(f"{value} is negative", i, value)
        return x

    with pytest.raises(ValueError, match=r"-0\.5 is negative") as caught:
        positive(np.array([1, -0.5], ml_dtypes.bfloat16))
    assert caught.value.args == ("-0.5 is negative", 1, -0.5)


@first_type
def test_check_compares_with_the_plain_kernel_in_float32(dtype: np.dtype[Any]) -> None:
    @onnx_op("half::Cancelled", compile=True)
    def cancelled(x: NDArray[T]) -> NDArray[T]:
        return (x + x.dtype.type(1000)) - x.dtype.type(1000)

    cancelled.register_shape_inference(lambda x: x)
    x = values(dtype, 3, 5)
    check(cancelled, x, checks=["compiled", "engine_*"])
    assert same(cancelled(x), (x.astype(np.float32) + np.float32(1000) - np.float32(1000)).astype(dtype))
    plain = cancelled.kernels["cpu"].plain(x)
    assert not np.allclose(plain.astype(np.float32), cancelled(x).astype(np.float32), rtol=1e-2)


@pytest.mark.exhaustive
def test_a_second_process_compiles_nothing() -> None:
    script = """
        import math
        from numba.core import event
        class Compiled(event.Listener):
            count = 0
            def on_start(self, event): self.count += 1
            def on_end(self, event): pass
        listener = Compiled()
        event.register("numba:compile", listener)
        from tests.pyops._machine.compiled.test_half_precision import TYPES, fused, run, values
        for dtype in TYPES:
            x, y = values(dtype, 2, 8)
            print(math.fsum(fused(x, y)) == math.fsum(run(fused, x, y)[0]))
        print(listener.count)
        """
    for dtype in TYPES:
        x, y = values(dtype, 2, 8)
        assert math.isfinite(math.fsum(fused(x, y)) + math.fsum(run(fused, x, y)[0]))
    run_script(script, "True\nTrue\n0")
