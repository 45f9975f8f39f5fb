"""The NumPy functions that pyops itself implements in compiled kernels give what NumPy's give."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from tests.helpers.models import chain
from tests.helpers.scripts import run_script
from tests.helpers.tiers import first_quick

T = TypeVar("T", np.float32, np.float64)
F32 = NDArray[np.float32]


@onnx_op("compiled::Exp", compile=True)
def exponential(x: F32) -> F32:
    return np.exp(x)


@onnx_op("compiled::ExpOfEach", compile=True)
def exponential_of_each(x: F32) -> F32:
    result = np.empty_like(x)
    for i in range(x.size):
        result[i] = math.exp(x[i])
    return result


@pytest.mark.parametrize("op", first_quick([exponential_of_each, exponential]))
def test_exp_is_within_one_unit_in_the_last_place(op: Op[..., Any]) -> None:
    x = np.concatenate([np.linspace(-110, 95, 500_000), np.linspace(-1, 1, 100_000), [0, 88.72284, 88.72283]])
    x = x.astype(np.float32)
    given = op(x)
    with np.errstate(over="ignore"):
        exact = np.exp(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    assert np.array_equal(np.isinf(given), np.isinf(rounded))
    finite = np.isfinite(rounded)
    assert np.all(np.abs(given[finite] - exact[finite]) <= np.spacing(rounded[finite]))


@pytest.mark.parametrize("op", first_quick([exponential_of_each, exponential]))
def test_exp_of_what_is_no_number(op: Op[..., Any]) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e38, -1e38], np.float32)
    np.testing.assert_array_equal(op(x), np.array([np.nan, np.inf, 0, 1, 1, np.inf, 0], np.float32))


@onnx_op("compiled::Reduced", compile=True)
def reduced(x: NDArray[T]) -> tuple[NDArray[T], NDArray[T], NDArray[T], NDArray[T], NDArray[T]]:
    parts = np.sum(x[:, ::2]), np.max(x[:, ::2]), np.min(x[::2])
    return (
        np.array([np.sum(x), np.max(x), np.min(x), np.amax(x[0]), np.amin(x[0]), np.sum(x[0])]),
        np.array(parts),
        np.sum(x, axis=0),
        np.sum(x, 1),
        np.array([np.sum(x, dtype=np.float64)]).astype(x.dtype),
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_and_extremes(dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=(7, 1001)).astype(dtype)
    for value in (1, np.nan, np.inf, -np.inf):
        x[3, 4] = value
        given = reduced(x)
        for a, b in zip(given, reduced.kernels["cpu"].plain(x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4 if dtype is np.float32 else 1e-10, atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes_are_nan_wherever_one_is(dtype: Any) -> None:
    @onnx_op("compiled::LargestAndSmallest", compile=True)
    def extremes(x: NDArray[T]) -> NDArray[T]:
        return np.array([np.max(x), np.min(x)])

    for size in (1, 3, 64, 1001):
        x = np.random.default_rng(size).normal(size=size).astype(dtype)
        assert extremes(x).tolist() == [x.max(), x.min()]
        for position in {0, size // 2, size - 1}:
            for nan in (np.nan, -np.nan):
                given = x.copy()
                given[position] = nan
                assert np.isnan(extremes(given)).all()
        assert extremes(np.full(size, -np.inf, dtype)).tolist() == [-np.inf, -np.inf]
        assert extremes(np.full(size, np.inf, dtype)).tolist() == [np.inf, np.inf]


def test_of_nothing() -> None:
    @onnx_op("compiled::SumOfNothing", compile=True)
    def sum_of_nothing(x: F32) -> F32:
        return np.array([np.sum(x)])

    @onnx_op("compiled::MaxOfNothing", compile=True)
    def max_of_nothing(x: F32) -> F32:
        return np.array([np.max(x)])

    x = np.zeros(0, np.float32)
    assert sum_of_nothing(x).tolist() == [0]
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum which has no identity"):
        max_of_nothing(x)


def test_exp_of_complex_numbers() -> None:
    @onnx_op("compiled::Wave", compile=True)
    def wave(x: F32) -> F32:
        return np.exp(x * 1j).real.astype(np.float32)

    x = np.linspace(-3, 3, 7, dtype=np.float32)
    np.testing.assert_allclose(wave(x), np.cos(x), rtol=1e-5, atol=1e-6)


def test_sums_along_an_axis_in_another_precision() -> None:
    @onnx_op("compiled::WideSum", compile=True)
    def wide_sum(x: F32) -> NDArray[np.float64]:
        return np.sum(x, axis=0, dtype=np.float64)

    x = np.full((1000, 2), 0.1, np.float32)
    given = wide_sum(x)
    assert given.dtype == np.float64
    np.testing.assert_allclose(given, x.sum(0, dtype=np.float64), rtol=1e-12)


@pytest.mark.parametrize("dtype", first_quick(["int32", "int8", "int16", "int64"]))
def test_divisions_of_the_lowest_integer_do_not_end_the_process(dtype: str) -> None:
    run_script(
        f"""
        I = NDArray[np.{dtype}]

        @onnx_op("compiled::Divided", compile=True)
        def divided(x: I, y: I) -> tuple[I, I, I, I, I, I]:
            rest, quotient, each = x.copy(), np.empty_like(x), np.empty_like(x)
            rest %= y
            np.floor_divide(x, y, quotient)
            for i in range(x.size):
                each[i] = x[i] // y[i] + np.remainder(x[i], y[i])
            return np.remainder(x, y), np.divmod(x, y)[0], np.fmod(x, y), rest, quotient, each

        lowest = np.iinfo(np.{dtype}).min
        x = np.array([lowest, lowest, -7, 7, lowest, 5], np.{dtype})
        y = np.array([-1, lowest, 3, -3, 2, 0], np.{dtype})
        for given, expected in zip(divided(x, y), divided.kernels["cpu"].plain(x, y)):
            assert given.tolist() == expected.tolist(), (given, expected)
        print("alive")
        """,
        "alive",
    )


def test_the_sign_of_unsigned_integers() -> None:
    @onnx_op("compiled::Sign", compile=True)
    def sign(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.sign(x)

    assert sign(np.array([0, 1, 127, 128, 255], np.uint8)).tolist() == [0, 1, 1, 1, 1]


def test_the_lowest_common_multiple_of_large_integers() -> None:
    @onnx_op("compiled::Multiple", compile=True)
    def multiple(x: NDArray[np.uint64], y: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.lcm(x, y)

    x, y = np.array([2**63 - 1, 0, 6], np.uint64), np.array([1, 5, 4], np.uint64)
    assert multiple(x, y).tolist() == [2**63 - 1, 0, 12]


@pytest.mark.parametrize("dtype", first_quick(["int64", "uint64", "int8", "uint16"]))
def test_shifts_and_powers_of_any_integers(dtype: str) -> None:
    def shifts_and_powers(x: Any, y: Any) -> Any:
        each, product = x.copy(), x.copy()
        each <<= y
        for i in range(x.size):
            product[i] = x[i] ** y[i] ^ (x[i] >> y[i])
        left, right, power, cube = np.left_shift(x, y), np.right_shift(x, y), np.power(x, y), (x**3).astype(x.dtype)
        return x << y, x >> y, left, right, power, x**y, cube, each, product

    integers = NDArray[np.dtype(dtype).type]  # type: ignore[misc]
    shifts_and_powers.__annotations__ = {"x": integers, "y": integers, "return": tuple[(integers,) * 9]}  # type: ignore[misc]
    op = onnx_op("compiled::ShiftsAndPowers", compile=True)(shifts_and_powers)
    limits = np.iinfo(dtype)
    values = [0, 1, 3, 5, limits.max, limits.max - 1, limits.min, limits.bits - 1, limits.bits, limits.bits + 1, 100]
    exponents = [value for value in values if value >= 0]
    x, y = (array.ravel() for array in np.meshgrid(np.array(values, dtype), np.array(exponents, dtype)))
    with np.errstate(all="ignore"):
        wanted = shifts_and_powers(x, y)
    for given, expected in zip(op(x, y), wanted, strict=True):
        assert given.tolist() == expected.tolist()


def test_negative_powers_of_integers_are_numpys_error() -> None:
    @onnx_op("compiled::NegativePower", compile=True)
    def power(x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.int64]:
        return x**y

    for run in (power, power.kernels["cpu"].plain):
        with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
            run(np.array([2, 1]), np.array([1, -1]))


@pytest.mark.parametrize("dtype", first_quick(["float64", "float32"]))
def test_floored_quotients_and_remainders_of_floats(dtype: str) -> None:
    def divided(x: Any, y: Any) -> Any:
        quotient, rest = np.divmod(x, y)
        return np.floor_divide(x, y), np.remainder(x, y), x // y, x % y, quotient, rest, np.sign(x)

    floats = NDArray[np.dtype(dtype).type]  # type: ignore[misc]
    divided.__annotations__ = {"x": floats, "y": floats, "return": tuple[(floats,) * 7]}  # type: ignore[misc]
    op = onnx_op("compiled::DividedFloats", compile=True)(divided)
    values = [*(np.arange(-33, 34) / 10), -0.0, np.nan, np.inf, -np.inf, 1e300, 5e-324]
    with np.errstate(all="ignore"):
        x, y = (array.ravel().astype(dtype) for array in np.meshgrid(values, values))
        for given, expected in zip(op(x, y), divided(x, y), strict=True):
            np.testing.assert_array_equal(given, expected)
            numbers = ~np.isnan(expected)
            assert np.array_equal(np.signbit(given[numbers]), np.signbit(expected[numbers]))


def test_negative_powers_of_zero() -> None:
    @onnx_op("compiled::Reciprocals", compile=True)
    def reciprocals(x: F32, *, n: int = -1) -> tuple[F32, F32, F32, F32]:
        each = np.empty_like(x)
        for i in range(x.size):
            each[i] = x[i] ** n
        return x**-1, x**-2, (x**n).astype(np.float32), each

    x = np.array([0, -0.0, 2, -2, np.inf, np.nan], np.float32)
    for n in (-3, 2, 0, -(2**63)):
        with np.errstate(all="ignore"):
            expected = [x**-1, x**-2, x**n, x**n]
        for a, b in zip(reciprocals(x, n=n), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_unsigned_integers_of_floats() -> None:
    @onnx_op("compiled::Unsigned", compile=True)
    def unsigned(x: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint64]]:
        return x.astype(np.uint8), x.astype(np.uint16), x.astype(np.uint64)

    x = np.array([-1, -2.9, -300, 255.9, 256, 70000, 2.0**31 - 1, np.nan])
    wide = np.array([-1, -300, 2.0**63 - 1024, 2.0**63, 2.0**64 - 2048, np.nan])
    with np.errstate(invalid="ignore"):
        for given, expected in zip(unsigned(x)[:2], unsigned.kernels["cpu"].plain(x)[:2], strict=True):
            assert given.tolist() == expected.tolist()
        assert unsigned(wide)[2].tolist() == wide.astype(np.uint64).tolist()


def test_uint64_and_a_number_in_the_code() -> None:
    U64 = NDArray[np.uint64]

    @onnx_op("compiled::WithNumber", compile=True)
    def with_number(x: U64) -> tuple[U64, U64, U64, U64, U64, U64, U64, NDArray[np.bool_]]:
        each = np.empty_like(x)
        for i in range(x.size):
            each[i] = (x[i] - 1) // 2 + 3 * x[i] % 7 + divmod(x[i], 3)[1] + (x[i] >> 60)
        shifted = (x << 3) ^ np.right_shift(x, 3) ^ np.lcm(3, np.gcd(x, 15))
        return x // 2, np.remainder(x + 1, 10), 3 * x, np.fmod(x, 7), np.divmod(x, 3)[0], shifted, each, x > 2**53

    x = np.array([2**64 - 1, 2**63 - 1, 2**63, 2**53 + 1, 5], np.uint64)
    with np.errstate(over="ignore"):
        wanted = with_number.kernels["cpu"].plain(x)
    for given, expected in zip(with_number(x), wanted, strict=True):
        assert given.tolist() == expected.tolist()


def test_medians_with_nan() -> None:
    @onnx_op("compiled::Median", compile=True)
    def median(x: F32) -> F32:
        return np.array([np.median(x)])

    values = np.array([5, 4, 3, 2, 1, np.nan, 0.5], np.float32)
    for x in (values, values[:5], values[:4], np.roll(values, 1), np.array([[1, 2], [np.inf, 4]], np.float32)):
        np.testing.assert_array_equal(median(x), np.array([np.median(x)]))
    assert np.isnan(median(values[:0]))


def test_functions_of_math_of_narrow_and_of_large_integers() -> None:
    @onnx_op("compiled::NarrowExp", compile=True)
    def narrow(x: NDArray[np.int8]) -> NDArray[np.float64]:
        return np.array([math.exp(x[0]), math.exp(x[1]), math.exp(x[0] > 0)])

    @onnx_op("compiled::LargeHypot", compile=True)
    def large(x: NDArray[np.uint64]) -> NDArray[np.float64]:
        return np.array([math.hypot(x[0], x[1])])

    np.testing.assert_allclose(narrow(np.array([1, -3], np.int8)), np.exp([1, -3, 1]), rtol=1e-15)
    np.testing.assert_allclose(large(np.array([2**64 - 1, 1], np.uint64)), [2.0**64])


def test_reshaping_nothing_to_rows_of_nothing_is_an_error() -> None:
    @onnx_op("compiled::Rows", compile=True)
    def rows(x: F32) -> F32:
        return x.reshape(-1, x.shape[-1])

    for run in (rows, rows.kernels["cpu"].plain):
        with pytest.raises(ValueError, match="cannot reshape array of size 0 into "):
            run(np.zeros((2, 3, 0), np.float32))
        assert run(np.zeros((0, 3), np.float32)).shape == (0, 3)
        assert run(np.zeros((2, 0, 3), np.float32)).shape == (0, 3)
    session = pyops.InferenceSession(chain("compiled::Rows"))
    with pytest.raises(ValueError, match="cannot reshape array of size 0 into "):
        session.run(None, {"x": np.zeros((2, 3, 0), np.float32)})
