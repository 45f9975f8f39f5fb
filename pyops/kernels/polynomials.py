"""Orthogonal polynomials: each by its recurrence over the degree, or by the sines and cosines that it is made of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.op import Op

from ._declarations import elementwise, variant
from ._element_types import Wide

Function = Callable[[Any, Any], Any]
Polynomial = Op[[Any, Any], NDArray[Any]]

_DEGREES = """n is rounded towards 0, and the value is 0 where n is below 0 or not finite. The recurrence is
computed in the dtype of x, and what overflows in it is infinite or NaN. One of more than 100000 steps is an error."""

# Above it torch takes sines and cosines as well.
_LOW_DEGREE = 8
# More steps of a recurrence than this are minutes and hours.
_MOST_STEPS = 100_000
# Above it Hermite polynomials are NaN, as in torch.
_HERMITE_DEGREE = {4: 128, 8: 512}


def _polynomial(function: Function) -> Polynomial:
    """Declare a polynomial that is computed for whole degrees from 0 on, in arrays of one shape; a decorator."""

    @functools.wraps(function)
    def kernel(x: Any, n: Any) -> Any:
        """Evaluate the Chebyshev polynomial of the {kind} kind at 2 * x - 1, as `{plain}`."""
        xp = array_namespace(x, n)
        x, n = xp.broadcast_arrays(x, xp.trunc(n))
        known = (n >= 0) & (n < 2.0**63)
        return xp.where(known, function(x, xp.where(known, n, xp.zeros_like(n))), xp.zeros_like(x))

    kernel.__doc__ = f"{inspect.getdoc(function)}\n\n{_DEGREES}"
    return elementwise(Wide, "18.9.1")(kernel)


def _recurrence(x: Any, n: Any, first: Any, following: Callable[[int, Any, Any, Any], Any]) -> Any:
    """Compute the polynomial of degree n: `first` is degree 1, `following` gives k + 1 from k, x and the two before."""
    xp = array_namespace(x)
    result = xp.where(n == 0, xp.ones_like(x), first).ravel()
    (left,) = xp.nonzero(n.ravel() > 1)
    x, n, current = x.ravel()[left], n.ravel()[left], result[left]
    previous = xp.ones_like(current)
    k = 1
    while left.size:
        if k > _MOST_STEPS:
            raise ValueError(f"a recurrence to degree {n.max():g} is too long; degrees are up to {_MOST_STEPS} here")
        previous, current = current, following(k, x, current, previous)
        k += 1
        done = (n <= k) | xp.isnan(current)
        if done.any():
            result[left[done]] = current[done]
            left, x, n, current, previous = (array[~done] for array in (left, x, n, current, previous))
    return result.reshape(first.shape)


def _chebyshev(x: Any, n: Any, first: Any, at_ends: tuple[Any, Any], inside: Function) -> Any:
    """Compute a Chebyshev polynomial of any kind.

    Parameters
    ----------
    first : array
        That of degree 1.
    at_ends : tuple of arrays
        At 1, and at -1 for even degrees; for odd ones it is the opposite there.
    inside : callable
        That between -1 and 1, of angles whose cosines are x, and of n.
    """
    xp = array_namespace(x)
    between, end = (abs(x) < 1) & (n > _LOW_DEGREE), abs(x) == 1
    degree = xp.where(between | end, xp.zeros_like(n), n)
    outside = _recurrence(x, degree, first, lambda k, x, current, previous: (x + x) * current - previous)
    result = xp.where(between, inside(xp.where(between, x, xp.zeros_like(x)).astype("float64"), n), outside)
    return xp.where(end, xp.where(x > 0, at_ends[0], _sign(n) * at_ends[1]), result)


def _sign(n: Any) -> Any:
    """Return 1 for even and -1 for odd numbers."""
    return 1 - 2 * (n % 2)


def _ratio_of_sines(x: Any, factor: Any, divisor: float) -> Any:
    """Compute sin(factor * angle) / sin(angle / divisor), where cos(angle) is x."""
    xp = array_namespace(x)
    angle = xp.arccos(x)
    return xp.sin(factor * angle) / xp.sin(angle / divisor)


@_polynomial
def chebyshev_polynomial_t(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the first kind.

    T(k + 1) = 2 * x * T(k) - T(k - 1); T(0) = 1, T(1) = x.

    At x = cos(t) it is cos(n * t), by which it is computed between -1 and 1 where n is above 8.
    """
    xp = array_namespace(x)
    one = xp.ones_like(x)
    return _chebyshev(x, n, x, (one, one), lambda x, n: xp.cos(n * xp.arccos(x)))


@_polynomial
def chebyshev_polynomial_u(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the second kind.

    U(k + 1) = 2 * x * U(k) - U(k - 1); U(0) = 1, U(1) = 2 * x.

    At x = cos(t) it is sin((n + 1) * t) / sin(t), by which it is computed between -1 and 1 where n is above 8.
    """
    xp = array_namespace(x)
    # Of the absolute value, since the arc cosine is exact near 1 alone.
    return _chebyshev(
        x,
        n,
        x + x,
        (n + 1, n + 1),
        lambda x, n: xp.where(x < 0, _sign(n), xp.ones_like(n)) * _ratio_of_sines(abs(x), n + 1, 1),
    )


@_polynomial
def chebyshev_polynomial_v(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the third kind.

    V(k + 1) = 2 * x * V(k) - V(k - 1); V(0) = 1, V(1) = 2 * x - 1.

    At x = cos(t) it is cos((n + 1/2) * t) / cos(t / 2), by which it is computed between -1 and 1 where n is above 8.
    """
    ends = array_namespace(x).ones_like(x), n + n + 1
    # That of the fourth kind of -x, since the arc cosine is exact near 1 alone.
    return _chebyshev(x, n, x + x - 1, ends, lambda x, n: _sign(n) * _ratio_of_sines(-x, n + 0.5, 2))


@_polynomial
def chebyshev_polynomial_w(x: Any, n: Any) -> Any:
    """Evaluate the Chebyshev polynomial of the fourth kind.

    W(k + 1) = 2 * x * W(k) - W(k - 1); W(0) = 1, W(1) = 2 * x + 1.

    At x = cos(t) it is sin((n + 1/2) * t) / sin(t / 2), by which it is computed between -1 and 1 where n is above 8.
    """
    ends = n + n + 1, array_namespace(x).ones_like(x)
    return _chebyshev(x, n, x + x + 1, ends, lambda x, n: _ratio_of_sines(x, n + 0.5, 2))


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
    known = n <= _HERMITE_DEGREE[x.dtype.itemsize]
    result = _recurrence(x, xp.where(known, n, xp.zeros_like(n)), first, following)
    return xp.where(known, result, xp.full_like(x, xp.nan))


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
    xp = array_namespace(x)
    return _recurrence(
        x,
        xp.where(x == 0, xp.zeros_like(n), n),
        1 - x,
        lambda k, x, current, previous: ((k + k + (1 - x)) * current - k * previous) / (k + 1),
    )


@_polynomial
def legendre_polynomial_p(x: Any, n: Any) -> Any:
    """Evaluate the Legendre polynomial.

    (k + 1) * P(k + 1) = (2 * k + 1) * x * P(k) - k * P(k - 1); P(0) = 1, P(1) = x.
    """
    xp = array_namespace(x)
    end = abs(x) == 1
    result = _recurrence(
        x,
        xp.where(end, xp.zeros_like(n), n),
        x,
        lambda k, x, current, previous: ((k + k + 1) * x * current - k * previous) / (k + 1),
    )
    return xp.where(end, xp.where(x > 0, xp.ones_like(x), _sign(n)), result)
