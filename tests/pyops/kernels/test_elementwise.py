"""Elementwise kernels against other ways to compute the same numbers, where this does not need torch."""

import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre

from pyops._core.ops.op import Op
from pyops.errors import InputError
from pyops.kernels import pointwise, special
from pyops.shapes import TensorSpec
from pyops.testing import check
from tests.helpers.scripts import run_plain_script

OPS = [op for module in (special, pointwise) for op in vars(module).values() if isinstance(op, Op)]
X = np.linspace(-1.4, 1.4, 29)
DEGREES = np.arange(13.0)


def inputs_of(op, dtype, shape):
    generator = np.random.default_rng(0)
    return [generator.uniform(1, 20, shape).astype(dtype) for _ in op.signature.inputs]


def attributes_of(op):
    return {"n": 2} if op is special.polygamma else {}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_dtype_and_shape(op):
    for dtype in op.signature.inputs[0].type.dtypes:
        for shape in ((), (0, 3), (2, 3)):
            arrays = inputs_of(op, dtype, shape)
            result = op(*arrays, **attributes_of(op))
            first = result[0] if isinstance(result, tuple) else result
            assert (first.shape, first.dtype) == (shape, np.bool_ if op is pointwise.signbit else dtype)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_strides_and_broadcasting_change_nothing(op):
    dtype = op.signature.inputs[0].type.dtypes[-1]
    arrays, attributes = inputs_of(op, dtype, (4, 6)), attributes_of(op)
    expected = op(*[array[:, ::2].copy() for array in arrays], **attributes)
    np.testing.assert_array_equal(op(*[array[:, ::2] for array in arrays], **attributes), expected)
    np.testing.assert_array_equal(
        op(*[array[:, ::2].T for array in arrays], **attributes), np.swapaxes(expected, -1, -2)
    )
    if len(arrays) == 2:
        pair = arrays[0][:, :1], arrays[1][0]
        np.testing.assert_array_equal(op(*pair), op(*np.broadcast_arrays(*pair)))


@pytest.mark.parametrize("op", [op for op in OPS if np.dtype(np.float32) in op.signature.inputs[0].type.dtypes])
def test_no_warnings(op):
    edges = np.array([0.0, -0.0, 1, -1, -3, 0.5, np.inf, -np.inf, np.nan, 1e-40, 3e38], np.float32)
    arrays = [edges] if len(op.signature.inputs) == 1 else [edges[:, None], edges]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op(*arrays, **attributes_of(op))


@pytest.mark.parametrize("op", [special.igamma, pointwise.gcd, pointwise.signbit])
def test_all_checks_hold(op):
    report = check(op, *inputs_of(op, op.signature.inputs[0].type.dtypes[0], (3, 4)))
    assert report.ok, report


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (special.lgamma, math.lgamma),
        (special.erf, math.erf),
        (special.erfc, math.erfc),
        (special.erfcx, lambda x: math.exp(x * x) * math.erfc(x)),
        (special.log_ndtr, lambda x: math.log(math.erfc(-x / math.sqrt(2)) / 2)),
        (special.spherical_bessel_j0, lambda x: math.sin(x) / x),
    ],
    ids=lambda item: getattr(item, "name", ""),
)
def test_values_that_python_has(op, expected):
    x = np.array([-1.5, -0.3, 0.2, 1.7, 4.4])
    np.testing.assert_allclose(op(x), [expected(item) for item in x], rtol=1e-10)


def test_inverses():
    p = np.array([1e-300, 0.01, 0.5, 0.9])
    np.testing.assert_allclose(special.log_ndtr(special.ndtri(p)), np.log(p), rtol=1e-12)
    x = np.array([-3.0, -0.1, 0.0, 2.0])
    np.testing.assert_allclose(special.erfinv(np.array([math.erf(item) for item in x])), x, rtol=1e-11)


def test_differential_equations_of_bessel_functions():
    # Wronskians, DLMF 10.5.2 and 10.28.2.
    x = np.array([0.1, 1, 5, 20])
    j, y = special.bessel_j1(x) * special.bessel_y0(x), special.bessel_j0(x) * special.bessel_y1(x)
    np.testing.assert_allclose(j - y, 2 / (np.pi * x), rtol=1e-12)
    i0, i1 = special.i0(x), special.i1(x)
    k0, k1 = special.modified_bessel_k0(x), special.modified_bessel_k1(x)
    np.testing.assert_allclose(i0 * k1 + i1 * k0, 1 / x, rtol=1e-12)
    scaled = special.scaled_modified_bessel_k0(x), special.scaled_modified_bessel_k1(x)
    np.testing.assert_allclose(special.i0e(x) * scaled[1] + special.i1e(x) * scaled[0], 1 / x, rtol=1e-12)


def test_zeta_and_polygamma():
    np.testing.assert_allclose(special.zeta(np.array([2.0, 4.0]), np.array(1.0)), [np.pi**2 / 6, np.pi**4 / 90])
    np.testing.assert_allclose(special.polygamma(np.array([1.0]), n=1), np.pi**2 / 6)
    np.testing.assert_allclose(special.igamma(np.array(1.0), X**2) + np.exp(-(X**2)), 1)
    np.testing.assert_array_equal(special.polygamma(np.array([0.0, -3, np.inf]), n=1), [np.inf, np.inf, 0])
    with pytest.raises(ValueError, match="polygamma got n=-1; the order of a derivative must be at least 0"):
        special.polygamma(X, n=-1)


def test_airy_ai_far_out():
    x = np.array([-1e5, -1e7, -1e9, 200, 1e9, np.inf])
    result = special.airy_ai(x)
    assert (np.abs(result[:3]) <= np.abs(x[:3]) ** -0.25).all()
    assert result[3:].tolist()[:2] == [0, 0]
    assert np.isnan(result[-1])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(dtype):
    x = np.array([0.1, 0.7, 3, 11], dtype)
    np.testing.assert_array_equal(special.lgamma(x), special.lgamma(x.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize(
    ("op", "series"),
    [
        (special.chebyshev_polynomial_t, chebyshev.Chebyshev),
        (special.hermite_polynomial_h, hermite.Hermite),
        (special.hermite_polynomial_he, hermite_e.HermiteE),
        (special.laguerre_polynomial_l, laguerre.Laguerre),
        (special.legendre_polynomial_p, legendre.Legendre),
    ],
    ids=lambda item: getattr(item, "name", ""),
)
def test_polynomials_that_numpy_has(op, series):
    expected = np.stack([series.basis(int(n))(X) for n in DEGREES], axis=-1)
    np.testing.assert_allclose(op(X[:, None], DEGREES), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [3.0, 12.0, 101.0])
def test_chebyshev_polynomials_are_of_sines_and_cosines(n):
    t = np.linspace(0.01, 3.13, 50)
    x, degree = np.cos(t), np.array(n)
    expected = {
        "t": np.cos(n * t),
        "u": np.sin((n + 1) * t) / np.sin(t),
        "v": np.cos((n + 0.5) * t) / np.cos(t / 2),
        "w": np.sin((n + 0.5) * t) / np.sin(t / 2),
    }
    for kind, values in expected.items():
        plain = getattr(special, f"chebyshev_polynomial_{kind}")
        shifted = getattr(special, f"shifted_chebyshev_polynomial_{kind}")
        np.testing.assert_allclose(plain(x, degree), values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(shifted((x + 1) / 2, degree), values, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("op", [op for op in OPS if "Polynomial" in op.name], ids=lambda op: op.name)
def test_degrees(op):
    x = np.array([-1.0, 0.3, 1.0, np.nan])
    for n in (-1.0, -np.inf, np.inf, np.nan, 1e30):
        np.testing.assert_array_equal(op(x, np.array(n)), np.zeros(4))
    np.testing.assert_array_equal(op(x, np.array(-0.5)), np.ones(4))
    np.testing.assert_array_equal(op(x, np.array(4.9)), op(x, np.array(4.0)))
    assert np.isnan(op(x, np.array([2.0, 40, 400, 4000])[:, None])[:, -1]).all()


@pytest.mark.parametrize("n", [20.0, 21.0])
def test_ends_of_chebyshev_polynomials(n):
    sign = (-1) ** int(n)
    ends = {"t": (1, 1), "u": (n + 1, n + 1), "v": (1, 2 * n + 1), "w": (2 * n + 1, 1)}
    for kind, (at_one, at_minus_one) in ends.items():
        op = getattr(special, f"chebyshev_polynomial_{kind}")
        np.testing.assert_array_equal(op(np.array([1.0, -1.0]), np.array(n)), [at_one, sign * at_minus_one])
        near = op(np.array([1 - 2**-24, -1 + 2**-24], np.float32), np.array(n, np.float32))
        np.testing.assert_allclose(near, [at_one, sign * at_minus_one], rtol=1e-4)


def test_whole_numbers():
    x, y = np.array([12, -12, 0, 0, 7], np.int8), np.array([18, 18, -5, 0, 7], np.int8)
    assert pointwise.gcd(x, y).tolist() == [6, 6, 5, 0, 7]
    assert pointwise.lcm(x, y).tolist() == [36, 36, 0, 0, 7]
    lowest = np.array(-128, np.int8)
    assert pointwise.gcd(lowest, np.array([6, -1], np.int8)).tolist() == [2, 1]
    assert pointwise.lcm(np.array(np.iinfo(np.int64).min), np.array(-1)).shape == ()


def test_representations():
    x = np.array([0.0, -0.0, 1, -3.75, 1e-45, np.inf, -np.inf, np.nan], np.float32)
    mantissa, exponent = pointwise.frexp(x)
    np.testing.assert_array_equal(np.ldexp(mantissa, exponent), x)
    finite = np.isfinite(x) & (x != 0)
    assert ((np.abs(mantissa[finite]) >= 0.5) & (np.abs(mantissa[finite]) < 1)).all()
    assert pointwise.signbit(x).tolist() == [False, True, False, True, False, False, True, False]
    assert pointwise.nextafter(np.float32(1), np.float32(2)) == np.float32(1) + np.finfo(np.float32).eps
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
        assert np.signbit(pointwise.nextafter(np.array(0, dtype), np.array(-0.0, dtype)))


def test_nan_gives_way():
    x, y = np.array([np.nan, 1, np.nan, 2]), np.array([3, np.nan, np.nan, 1])
    np.testing.assert_array_equal(pointwise.fmax(x, y), [3, 1, np.nan, 2])
    np.testing.assert_array_equal(pointwise.fmin(x, y), [3, 1, np.nan, 1])


def test_types_that_torch_lacks_are_refused():
    with pytest.raises(InputError, match="declared as"):
        special.ndtri(np.array([0.5], np.float16))
    with pytest.raises(InputError, match="declared as"):
        pointwise.gcd(X, X)
    with pytest.raises(InputError, match="one type per call"):
        special.igamma(X, X.astype(np.float32))


def test_shapes_are_known_before_a_run():
    left, right = TensorSpec((4, 1), np.dtype(np.float32)), TensorSpec((3,), np.dtype(np.float32))
    assert [str(spec) for spec in special.zeta.infer_shapes(left, right)] == ["float32[4, 3]"]
    assert [str(spec) for spec in pointwise.signbit.infer_shapes(left)] == ["bool[4, 1]"]
    assert [str(spec) for spec in pointwise.frexp.infer_shapes(left)] == ["float32[4, 1]", "int32[4, 1]"]


def test_where_scipy_is_not_installed():
    script = """
import sys
sys.modules["scipy"] = None
import numpy as np
from pyops.errors import MissingDependencyError
from pyops.kernels.pointwise import hypot
from pyops.kernels.special import lgamma
print(hypot(np.array([3.0]), np.array([4.0])))
try:
    lgamma(np.array([1.0]))
except MissingDependencyError as error:
    print(str(error).partition("; ")[2])
"""
    run_plain_script(script, '[5.]\npip install "onnx-pyops[kernels]"')
