"""Special functions: SciPy's, with torch's values where the two differ at the ends of their domains.

Orthogonal polynomials are computed by recurrence over the degree, since CuPy has no counterparts of SciPy's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import Op, onnx_op
from ._arrays import scipy
from ._declarations import Float, Wide, elementwise, first_spec, in_float32, variant


@elementwise(Float, "5.2.1")
def lgamma(x: Any) -> Any:
    """Compute the natural logarithm of the absolute value of the gamma function; inf at its poles."""
    xp = array_namespace(x)
    magnitude = xp.abs(x)
    # SciPy overflows where 1 / x does, and has the opposite sign at -inf.
    small = magnitude < np.finfo(x.dtype).tiny
    result = xp.where(small, -xp.log(magnitude), scipy("special", x).gammaln(x))
    return xp.where(xp.isinf(x), magnitude, result)


@elementwise(Float, "5.2.2", by="special.psi")
def digamma(x: Any) -> Any:
    """Compute the derivative of `lgamma`; NaN at its poles below 0, and inf and -inf at -0 and 0."""


@elementwise(Wide, "7.2.1", by="special.erf")
def erf(x: Any) -> Any:
    """Compute the error function."""


@elementwise(Wide, "7.2.2", by="special.erfc")
def erfc(x: Any) -> Any:
    """Compute the complementary error function, 1 - erf(x)."""


@elementwise(Float, "7.17.1")
def erfinv(x: Any) -> Any:
    """Compute the inverse of the error function; NaN outside of [-1, 1]."""
    return array_namespace(x).copysign(scipy("special", x).erfinv(x), x)  # SciPy loses the sign of -0


@elementwise(Wide, "7.2.3", by="special.erfcx")
def erfcx(x: Any) -> Any:
    """Compute the scaled complementary error function, exp(x**2) * erfc(x)."""


@elementwise(Wide, by="special.ndtri")
def ndtri(x: Any) -> Any:
    """Compute the quantile of the standard normal distribution for a probability x; NaN outside of [0, 1]."""


@elementwise(Wide, by="special.log_ndtr")
def log_ndtr(x: Any) -> Any:
    """Compute the natural logarithm of the standard normal distribution function."""


@elementwise(Float, "10.25.2", by="special.i0")
def i0(x: Any) -> Any:
    """Compute the modified Bessel function of the first kind, of order 0."""


@elementwise(Float, "10.25.2", by="special.i1")
def i1(x: Any) -> Any:
    """Compute the modified Bessel function of the first kind, of order 1."""


@elementwise(Float, "10.25.2", by="special.i0e")
def i0e(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(-abs(x)) * i0(x)."""


@elementwise(Float, "10.25.2", by="special.i1e")
def i1e(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(-abs(x)) * i1(x)."""


@elementwise(Wide, "10.2.2", by="special.j0")
def bessel_j0(x: Any) -> Any:
    """Compute the Bessel function of the first kind, of order 0."""


@elementwise(Wide, "10.2.2", by="special.j1")
def bessel_j1(x: Any) -> Any:
    """Compute the Bessel function of the first kind, of order 1."""


@elementwise(Wide, "10.2.3", by="special.y0")
def bessel_y0(x: Any) -> Any:
    """Compute the Bessel function of the second kind, of order 0; -inf at 0, NaN below."""


@elementwise(Wide, "10.2.3", by="special.y1")
def bessel_y1(x: Any) -> Any:
    """Compute the Bessel function of the second kind, of order 1; -inf at 0, NaN below."""


@elementwise(Wide, "10.27.4", by="special.k0")
def modified_bessel_k0(x: Any) -> Any:
    """Compute the modified Bessel function of the second kind, of order 0; inf at 0, NaN below."""


@elementwise(Wide, "10.27.4", by="special.k1")
def modified_bessel_k1(x: Any) -> Any:
    """Compute the modified Bessel function of the second kind, of order 1; inf at 0, NaN below."""


@elementwise(Wide, "10.27.4", by="special.k0e")
def scaled_modified_bessel_k0(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(x) * modified_bessel_k0(x)."""


@elementwise(Wide, "10.27.4", by="special.k1e")
def scaled_modified_bessel_k1(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(x) * modified_bessel_k1(x)."""


@elementwise(Wide, "10.49.3")
def spherical_bessel_j0(x: Any) -> Any:
    """Compute the spherical Bessel function of the first kind, of order 0: sin(x) / x; 1 at 0."""
    xp = array_namespace(x)
    return xp.where(x == 0, xp.ones_like(x), xp.where(xp.isinf(x), xp.zeros_like(x), xp.sin(x) / x))


# CuPy has no Airy functions.
@elementwise(Wide, "9.2.2", device_types=("cpu",))
def airy_ai(x: Any) -> Any:
    """Compute the Airy function Ai; NaN at -inf and inf."""
    result = scipy("special", x).airy(x)[0]
    # Where SciPy returns NaN, the first term of the asymptotic expansion is exact enough: DLMF 9.7.9.
    magnitude = np.abs(x)
    angle = 2 / 3 * magnitude * np.sqrt(magnitude) - np.pi / 4
    far = np.where(x > 0, 0, np.cos(angle) / np.sqrt(np.pi * np.sqrt(magnitude)))
    return np.where(np.isnan(result) & np.isfinite(x), far, result)


@elementwise(Float, "8.2.4", by="special.gammainc")
def igamma(a: Any, x: Any) -> Any:
    """Compute the regularized lower incomplete gamma function P(a, x); NaN where a or x is below 0."""


@elementwise(Float, "8.2.4", by="special.gammaincc")
def igammac(a: Any, x: Any) -> Any:
    """Compute the regularized upper incomplete gamma function Q(a, x); NaN where a or x is below 0."""


@elementwise(Wide, "25.11.1", by="special.zeta")
def zeta(s: Any, q: Any) -> Any:
    """Compute the Hurwitz zeta function: the sum of (k + q)**-s for k >= 0; NaN where s is below 1.

    It is 0 where q is inf; torch's is NaN there.
    """


@onnx_op("pyops::Polygamma", device_types=("cpu", "cuda"))
def polygamma(x: NDArray[Float], *, n: int) -> NDArray[Float]:
    """Compute the derivative of order n of `digamma`.

    Defined in DLMF 5.15.1, https://dlmf.nist.gov/5.15.E1. The values are inf at the poles and 0 at inf, where some of
    torch's are huge or NaN.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        Of any shape.
    n : int
        The order, at least 0.

    Returns
    -------
    array of the dtype of `x`
        Of the shape of the input.

    Raises
    ------
    ValueError
        n is below 0.
    """
    if n < 0:
        raise ValueError(f"polygamma got n={n}; the order of a derivative must be at least 0")
    special = scipy("special", x)
    return in_float32(special.psi if n == 0 else lambda wide: special.polygamma(n, wide), x)


polygamma.register_shape_inference(first_spec)


Function = Callable[[Any, Any], Any]
Polynomial = Op[[Any, Any], NDArray[Any]]

_DEGREES = """n is rounded towards 0, and the value is 0 where n is below 0 or not finite. The recurrence is
computed in float64, and what overflows the dtype of x in it is infinite or NaN. A degree above 100000 is an error."""

# More steps of a recurrence than this would take minutes to hours.
_MOST_STEPS = 100_000
# Above it Hermite polynomials are NaN, as in torch.
_HERMITE_DEGREE = {4: 128, 8: 512}


def _polynomial(function: Function) -> Polynomial:
    """Declare a polynomial that is computed for whole degrees from 0 on, in arrays of one shape; a decorator."""

    @functools.wraps(function)
    def kernel(x: Any, n: Any) -> Any:
        xp = array_namespace(x, n)
        x, n = xp.broadcast_arrays(x.astype(np.float64), xp.trunc(n))
        known = (n >= 0) & (n < 2.0**63)
        return xp.where(known, function(x, xp.where(known, n, xp.zeros_like(n))), xp.zeros_like(x))

    kernel.__doc__ = f"{inspect.getdoc(function)}\n\n{_DEGREES}"
    return elementwise(Wide, "18.9.1")(kernel)


def _recurrence(x: Any, n: Any, first: Any, following: Callable[[int, Any, Any, Any], Any]) -> Any:
    """Compute the polynomial of degree n from that of degree 1 and a recurrence.

    `following` takes k, x and the polynomials of degrees k and k - 1, and returns that of degree k + 1.
    """
    xp = array_namespace(x)
    highest = int(n.max()) if n.size else 0
    if highest > _MOST_STEPS:
        raise ValueError(f"a recurrence to degree {highest:g} is too long; degrees must be at most {_MOST_STEPS}")
    previous, current = xp.ones_like(x), first
    result = xp.where(n == 0, previous, current)
    for k in range(1, highest):
        previous, current = current, following(k, x, current, previous)
        current = xp.where(abs(current) > np.finfo(n.dtype).max, current * xp.inf, current)
        result = xp.where(n > k, current, result)
    return result


def _chebyshev(k: int, x: Any, current: Any, previous: Any) -> Any:
    return (x + x) * current - previous


@_polynomial
def chebyshev_polynomial_t(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the first kind.

    T(k + 1) = 2 * x * T(k) - T(k - 1); T(0) = 1, T(1) = x.

    At x = cos(t) it is cos(n * t).
    """
    return _recurrence(x, n, x, _chebyshev)


@_polynomial
def chebyshev_polynomial_u(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the second kind.

    U(k + 1) = 2 * x * U(k) - U(k - 1); U(0) = 1, U(1) = 2 * x.

    At x = cos(t) it is sin((n + 1) * t) / sin(t).
    """
    return _recurrence(x, n, x + x, _chebyshev)


@_polynomial
def chebyshev_polynomial_v(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the third kind.

    V(k + 1) = 2 * x * V(k) - V(k - 1); V(0) = 1, V(1) = 2 * x - 1.

    At x = cos(t) it is cos((n + 1/2) * t) / cos(t / 2).
    """
    return _recurrence(x, n, x + x - 1, _chebyshev)


@_polynomial
def chebyshev_polynomial_w(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the fourth kind.

    W(k + 1) = 2 * x * W(k) - W(k - 1); W(0) = 1, W(1) = 2 * x + 1.

    At x = cos(t) it is sin((n + 1/2) * t) / sin(t / 2).
    """
    return _recurrence(x, n, x + x + 1, _chebyshev)


def _shifted(polynomial: Polynomial, kind: str) -> Polynomial:
    """Declare the polynomial of 2 * x - 1."""
    plain = inspect.unwrap(polynomial.kernels["cpu"])

    @_polynomial
    @variant(f"shifted_{polynomial.__name__}", kind=kind, plain=polynomial.__name__)
    def kernel(x: Any, n: Any) -> Any:
        """Evaluate the Chebyshev polynomial of the {kind} kind at 2 * x - 1, as `{plain}`."""
        return plain(x + x - 1, n)

    return kernel


shifted_chebyshev_polynomial_t = _shifted(chebyshev_polynomial_t, "first")
shifted_chebyshev_polynomial_u = _shifted(chebyshev_polynomial_u, "second")
shifted_chebyshev_polynomial_v = _shifted(chebyshev_polynomial_v, "third")
shifted_chebyshev_polynomial_w = _shifted(chebyshev_polynomial_w, "fourth")


def _hermite(x: Any, n: Any, first: Any, following: Callable[[int, Any, Any, Any], Any]) -> Any:
    xp = array_namespace(x)
    known = n <= _HERMITE_DEGREE[n.dtype.itemsize]
    return xp.where(known, _recurrence(x, xp.where(known, n, xp.zeros_like(n)), first, following), xp.nan)


@_polynomial
def hermite_polynomial_h(x: Any, n: Any) -> Any:
    """Evaluate the physicists' Hermite polynomial.

    H(k + 1) = 2 * x * H(k) - 2 * k * H(k - 1); H(0) = 1, H(1) = 2 * x.

    NaN where n is above 128 in float32, and above 512 in float64.
    """
    return _hermite(x, n, x + x, lambda k, x, current, previous: (x + x) * current - 2 * k * previous)


@_polynomial
def hermite_polynomial_he(x: Any, n: Any) -> Any:
    """Evaluate the probabilists' Hermite polynomial.

    He(k + 1) = x * He(k) - k * He(k - 1); He(0) = 1, He(1) = x.

    NaN where n is above 128 in float32, and above 512 in float64.
    """
    return _hermite(x, n, x, lambda k, x, current, previous: x * current - k * previous)


@_polynomial
def laguerre_polynomial_l(x: Any, n: Any) -> Any:
    """Evaluate the Laguerre polynomial.

    (k + 1) * L(k + 1) = (2 * k + 1 - x) * L(k) - k * L(k - 1); L(0) = 1, L(1) = 1 - x.
    """
    return _recurrence(
        x, n, 1 - x, lambda k, x, current, previous: ((k + k + 1 - x) * current - k * previous) / (k + 1)
    )


@_polynomial
def legendre_polynomial_p(x: Any, n: Any) -> Any:
    """Evaluate the Legendre polynomial.

    (k + 1) * P(k + 1) = (2 * k + 1) * x * P(k) - k * P(k - 1); P(0) = 1, P(1) = x.
    """
    return _recurrence(x, n, x, lambda k, x, current, previous: ((k + k + 1) * x * current - k * previous) / (k + 1))
