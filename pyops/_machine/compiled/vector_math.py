"""Vectorizing replacements for functions that numba does not vectorize.

Compiled kernels use them for ``np.exp``, ``math.exp``, ``np.sum``, ``np.max`` and ``np.min``. On contiguous float32
they take at most an eighth of the time, which makes kernels as fast as ONNX Runtime's own operators. Left to numba's
implementations are the exponentials of float64, and sums and extremes along an axis or of anything but contiguous
float32 and float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numba
import numpy as np
from numba import types

from .half_precision import HalfPrecision
from .intrinsics import INNER, for_compiled_code, in_register, larger, smaller
from .specialization import HALVES

_float, _int, _NARROW = np.float32, np.int32, (np.bool_, np.int8, np.int16, np.uint8, np.uint16)
_LOG2_E = _float(1.44269504088896341)
# log(2) in two parts; the high part has few significant bits, so that its product with k is exact.
_LOG_2_HIGH, _LOG_2_LOW = _float(0.693359375), _float(-2.12194440e-4)
# The inputs below which the result is 0, and above which it is infinite.
_LOWEST, _HIGHEST = _float(-104), _float(89)
# exp(r) is 1 + r + r**2 (_C2 + _C3 r + ... + _C6 r**4) with a relative error of 3.3e-9 for all r that occur.
_C2, _C3, _C4 = _float(0.49999994), _float(0.16666515), _float(0.041668456)
_C5, _C6 = _float(0.008369419), _float(0.0013813145)
_ONE = _float(1)
# Adding 1.5 * 2**23 rounds a float32 to an integer, which its lowest bits then hold. The bias of the exponent is added
# with it, once for each factor of 2**k, so that these bits, shifted to the exponent's place, are a power of 2.
_ROUNDER = _float(12582912 + 2 * 127)
_MANTISSA = _int(23)


@numba.vectorize(fastmath={"contract"})
def exp(x: Any) -> Any:
    """Return the exponential of each element.

    On float32 it is 2**k times a polynomial in r, with k = round(x / log 2) and r = x - k log 2, as in Cephes' ``expf``
    (S. L. Moshier). It is accurate to 1 unit in the last place, and exact at 0, NaN and the infinities.
    """
    if isinstance(x, _float):
        # In this order, the comparisons propagate NaN.
        lowest, highest = in_register(_LOWEST), in_register(_HIGHEST)
        bounded = lowest if x < lowest else x
        bounded = highest if bounded > highest else bounded
        rounded = _float(bounded * in_register(_LOG2_E) + in_register(_ROUNDER))
        k = rounded - in_register(_ROUNDER)
        # 2**k in two factors, since 2**k alone may underflow.
        bits = rounded.view(_int)
        half = _int(bits >> _int(1))
        first = _int(half << _MANTISSA).view(_float)
        second = _int(_int(bits - half) << _MANTISSA).view(_float)
        r = bounded - k * in_register(_LOG_2_HIGH) - k * in_register(_LOG_2_LOW)
        p = (in_register(_C6) * r + in_register(_C5)) * r + in_register(_C4)
        p = ((p * r + in_register(_C3)) * r + in_register(_C2)) * r + in_register(_ONE)
        return _float(p * r + in_register(_ONE)) * first * second
    if isinstance(x, _NARROW):  # numba's own has float32's precision for them
        return np.exp(np.float64(x))
    return np.exp(x)


@for_compiled_code
def total(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Return the sum, as ``np.sum``; like NumPy's, it adds up several partial sums."""
    absent = (types.NoneType, types.Omitted, type(None))
    if not isinstance(dtype, absent):
        if isinstance(axis, absent):
            return lambda a, axis=None, dtype=None: np.sum(a, dtype=dtype)
        return lambda a, axis=None, dtype=None: np.sum(a, axis=axis, dtype=dtype)
    if not isinstance(axis, absent):
        return lambda a, axis=None, dtype=None: np.sum(a, axis)
    if not _is_contiguous_floats(a):
        return lambda a, axis=None, dtype=None: np.sum(a)
    if a.ndim == 1:
        return lambda a, axis=None, dtype=None: _add_up(a)
    return lambda a, axis=None, dtype=None: _add_up(a.ravel())


def _extreme(numpys: Callable[..., Any], chosen: Callable[[Any, Any], Any], nothing: str) -> Callable[[Any], Any]:
    """Return the largest or the smallest element, as ``np.max`` and ``np.min``, for compiled code."""

    @numba.njit(**INNER)
    def reduce(a: Any) -> Any:
        if a.size == 0:
            raise ValueError(nothing)
        result, is_number = a[0], True
        for i in range(a.size):
            result = chosen(result, a[i])
            is_number &= a[i] == a[i]
        return result if is_number else a.dtype.type(np.nan)

    @for_compiled_code
    def extreme(a: Any) -> Any:
        if not _is_contiguous_floats(a):
            return lambda a: numpys(a)
        return (lambda a: reduce(a)) if a.ndim == 1 else (lambda a: reduce(a.ravel()))

    return extreme


largest = _extreme(np.max, larger, "zero-size array to reduction operation maximum which has no identity")
smallest = _extreme(np.min, smaller, "zero-size array to reduction operation minimum which has no identity")


def _is_contiguous_floats(a: Any) -> bool:
    return isinstance(a, types.Array) and a.layout == "C" and isinstance(a.dtype, types.Float)


@numba.njit(fastmath={"reassoc"}, **INNER)
def _add_up(a: Any) -> Any:
    result = a.dtype.type(0)
    for i in range(a.size):
        result += a[i]
    return result


_REPLACEMENTS: dict[Any, Any] = {
    np.exp: exp,
    math.exp: exp,
    np.sum: total,
    **dict.fromkeys((np.max, np.amax), largest),
    **dict.fromkeys((np.min, np.amin), smallest),
    np.float16: HalfPrecision("float16"),
    ml_dtypes.bfloat16: HalfPrecision("bfloat16"),
}


def _changed(module: ModuleType) -> ModuleType:
    changed = ModuleType(module.__name__)
    values = vars(module).items()
    own = {name: _REPLACEMENTS[value] for name, value in values if callable(value) and value in _REPLACEMENTS}
    changed.__dict__.update(vars(module) | own)
    return changed


MODULES = {"np": _changed(np), "ml_dtypes": _changed(ml_dtypes)}
"""The modules by which code of ours spells element types."""
_REPLACED: dict[int, Any] = {id(function): own for function, own in _REPLACEMENTS.items()}
_REPLACED |= {id(np): MODULES["np"], id(ml_dtypes): MODULES["ml_dtypes"], id(math): _changed(math)}


def vectorised(value: Any) -> Any:
    """Return the replacement for a global of a kernel in its compiled form; constants of float16 are float32."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in HALVES:
        return value.astype(np.float32)
    return _REPLACED.get(id(value), value)
