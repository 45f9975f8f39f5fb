"""Orthogonal polynomials: each by its recurrence over the degree, since CuPy has none of SciPy's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.op import Op

from ._declarations import Wide, elementwise, variant

Function = Callable[[Any, Any], Any]
Polynomial = Op[[Any, Any], NDArray[Any]]

_DEGREES = """n is rounded towards 0, and the value is 0 where n is below 0 or not finite. The recurrence is
computed in float64, and what overflows the dtype of x in it is infinite or NaN. One of more than 100000 steps is an
error."""

# More steps of a recurrence than this are minutes and hours.
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
    """Compute the polynomial of degree n: `first` is degree 1, `following` gives k + 1 from k, x and the two before."""
    xp = array_namespace(x)
    highest = int(n.max()) if n.size else 0
    if highest > _MOST_STEPS:
        raise ValueError(f"a recurrence to degree {highest:g} is too long; degrees are up to {_MOST_STEPS} here")
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
