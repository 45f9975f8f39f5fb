"""Special functions: SciPy's, with torch's values where the two differ at the ends of their domains."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op

from ._arrays import scipy
from ._declarations import Float, Wide, elementwise, first_spec, in_float32


@elementwise(Float, "5.2.1")
def lgamma(x: Any) -> Any:
    """Compute the natural logarithm of the absolute value of the gamma function; inf at its poles."""
    xp = array_namespace(x)
    magnitude = xp.abs(x)
    # SciPy overflows where 1 / x does, and has another sign at -inf.
    small = magnitude < np.finfo(x.dtype).tiny
    result = xp.where(small, -xp.log(magnitude), scipy("special", x).gammaln(x))
    return xp.where(xp.isinf(x), magnitude, result)


@elementwise(Float, "5.2.2")
def digamma(x: Any) -> Any:
    """Compute the derivative of `lgamma`; NaN at its poles below 0, and inf and -inf at -0 and 0."""
    return scipy("special", x).psi(x)


@elementwise(Float, "7.17.1")
def erfinv(x: Any) -> Any:
    """Compute the inverse of the error function; NaN beyond -1 and 1."""
    return array_namespace(x).copysign(scipy("special", x).erfinv(x), x)  # SciPy loses the sign of -0


@elementwise(Wide, "7.2.2")
def erfcx(x: Any) -> Any:
    """Compute the scaled complementary error function, exp(x**2) * erfc(x)."""
    return scipy("special", x).erfcx(x)


@elementwise(Wide)
def ndtri(x: Any) -> Any:
    """Compute the quantile of the standard normal distribution for a probability x; NaN beyond 0 and 1."""
    return scipy("special", x).ndtri(x)


@elementwise(Wide)
def log_ndtr(x: Any) -> Any:
    """Compute the natural logarithm of the standard normal distribution function."""
    return scipy("special", x).log_ndtr(x)


@elementwise(Float, "10.25.2")
def i0(x: Any) -> Any:
    """Compute the modified Bessel function of the first kind, of order 0."""
    return scipy("special", x).i0(x)


@elementwise(Float, "10.25.2")
def i1(x: Any) -> Any:
    """Compute the modified Bessel function of the first kind, of order 1."""
    return scipy("special", x).i1(x)


@elementwise(Float, "10.25.2")
def i0e(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(-abs(x)) * i0(x)."""
    return scipy("special", x).i0e(x)


@elementwise(Float, "10.25.2")
def i1e(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(-abs(x)) * i1(x)."""
    return scipy("special", x).i1e(x)


@elementwise(Wide, "10.2.2")
def bessel_j0(x: Any) -> Any:
    """Compute the Bessel function of the first kind, of order 0."""
    return scipy("special", x).j0(x)


@elementwise(Wide, "10.2.2")
def bessel_j1(x: Any) -> Any:
    """Compute the Bessel function of the first kind, of order 1."""
    return scipy("special", x).j1(x)


@elementwise(Wide, "10.2.3")
def bessel_y0(x: Any) -> Any:
    """Compute the Bessel function of the second kind, of order 0; -inf at 0, NaN below."""
    return scipy("special", x).y0(x)


@elementwise(Wide, "10.2.3")
def bessel_y1(x: Any) -> Any:
    """Compute the Bessel function of the second kind, of order 1; -inf at 0, NaN below."""
    return scipy("special", x).y1(x)


@elementwise(Wide, "10.25.2")
def modified_bessel_i0(x: Any) -> Any:
    """Compute the modified Bessel function of the first kind, of order 0: `i0`."""
    return scipy("special", x).i0(x)


@elementwise(Wide, "10.25.2")
def modified_bessel_i1(x: Any) -> Any:
    """Compute the modified Bessel function of the first kind, of order 1: `i1`."""
    return scipy("special", x).i1(x)


@elementwise(Wide, "10.27.4")
def modified_bessel_k0(x: Any) -> Any:
    """Compute the modified Bessel function of the second kind, of order 0; inf at 0, NaN below."""
    return scipy("special", x).k0(x)


@elementwise(Wide, "10.27.4")
def modified_bessel_k1(x: Any) -> Any:
    """Compute the modified Bessel function of the second kind, of order 1; inf at 0, NaN below."""
    return scipy("special", x).k1(x)


@elementwise(Wide, "10.27.4")
def scaled_modified_bessel_k0(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(x) * modified_bessel_k0(x)."""
    return scipy("special", x).k0e(x)


@elementwise(Wide, "10.27.4")
def scaled_modified_bessel_k1(x: Any) -> Any:
    """Compute the exponentially scaled modified Bessel function exp(x) * modified_bessel_k1(x)."""
    return scipy("special", x).k1e(x)


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
    # Where SciPy gives up, the first term of the asymptotic expansion is all that counts: DLMF 9.7.9.
    magnitude = np.abs(x)
    angle = 2 / 3 * magnitude * np.sqrt(magnitude) - np.pi / 4
    far = np.where(x > 0, 0, np.cos(angle) / np.sqrt(np.pi * np.sqrt(magnitude)))
    return np.where(np.isnan(result) & np.isfinite(x), far, result)


@elementwise(Float, "8.2.4")
def igamma(a: Any, x: Any) -> Any:
    """Compute the regularized lower incomplete gamma function P(a, x); NaN where a or x is below 0."""
    return scipy("special", x).gammainc(a, x)


@elementwise(Float, "8.2.4")
def igammac(a: Any, x: Any) -> Any:
    """Compute the regularized upper incomplete gamma function Q(a, x); NaN where a or x is below 0."""
    return scipy("special", x).gammaincc(a, x)


@elementwise(Wide, "25.11.1")
def zeta(s: Any, q: Any) -> Any:
    """Compute the Hurwitz zeta function: the sum of (k + q)**-s over k from 0 on; NaN where s is below 1.

    Unlike torch's, which is NaN there, it is 0 where q is inf.
    """
    return scipy("special", s).zeta(s, q)


@onnx_op("pyops::Polygamma", device_types=("cpu", "cuda"))
def polygamma(x: NDArray[Float], *, n: int) -> NDArray[Float]:
    """Compute the derivative of order n of `digamma`.

    Defined in DLMF 5.15.1, https://dlmf.nist.gov/5.15.E1. Unlike torch's, of which some are huge or NaN there, the
    values are inf at the poles, and 0 at inf.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        Of any shape.
    n : int
        From 0 on.

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
        raise ValueError(f"polygamma got n={n}; the order of a derivative is from 0 on")
    special = scipy("special", x)
    return in_float32(special.psi if n == 0 else lambda wide: special.polygamma(n, wide), x)


polygamma.register_shape_inference(first_spec)
