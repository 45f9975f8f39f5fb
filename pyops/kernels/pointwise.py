"""Elementwise functions that NumPy has: on the representation of numbers, on integers, and with NaN as missing."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import onnx_op
from ..shapes import TensorSpec
from ._arrays import widened
from ._declarations import Float, Integer, Number, RealOrBool, broadcast_spec, elementwise


@elementwise(Integer, by="gcd")
def gcd(x: Any, y: Any) -> Any:
    """Compute the greatest common divisor; it is not negative, and 0 where both are 0.

    The lowest number of a signed type has no positive counterpart: for it and itself or 0, the result is that number.
    Torch's result is negative in more such cases.
    """


@elementwise(Integer, by="lcm")
def lcm(x: Any, y: Any) -> Any:
    """Compute the least common multiple; it is not negative, 0 where either is 0, and wraps around on overflow."""


@elementwise(RealOrBool, by="fmax")
def fmax(x: Any, y: Any) -> Any:
    """Return the greater of two numbers; where one is NaN, the other."""


@elementwise(RealOrBool, by="fmin")
def fmin(x: Any, y: Any) -> Any:
    """Return the lesser of two numbers; where one is NaN, the other."""


@elementwise(Float, by="hypot")
def hypot(x: Any, y: Any) -> Any:
    """Compute the square root of x**2 + y**2, even where the squares overflow; inf where either is infinite."""


@elementwise(Float, by="copysign")
def copysign(x: Any, y: Any) -> Any:
    """Return the magnitude of x with the sign of y, also of zeros and NaN."""


@elementwise(Number, by="signbit", returns=np.bool_)
def signbit(x: Any) -> Any:
    """Return whether the sign is negative, including that of -0."""


@onnx_op("pyops::Nextafter", device_types=("cpu", "cuda"))
def nextafter(x: NDArray[Float], y: NDArray[Float]) -> NDArray[Float]:
    """Return the next number of the dtype after x in the direction of y; y where they are equal.

    Parameters
    ----------
    x, y : array of float16, bfloat16, float32 or float64
        Of shapes that broadcast, and of one dtype.

    Returns
    -------
    array of the dtype of `x`
        Of the shape that they broadcast to.
    """
    xp = array_namespace(x)
    with np.errstate(all="ignore"):
        return xp.where(x == y, y, xp.nextafter(x, y))


nextafter.register_shape_inference(broadcast_spec)


class Frexp(NamedTuple, Generic[Float]):
    """Outputs of `frexp`."""

    mantissa: NDArray[Float]
    exponent: NDArray[np.int32]


@onnx_op("pyops::Frexp", device_types=("cpu", "cuda"))
def frexp(x: NDArray[Float]) -> Frexp[Float]:
    """Split a number into mantissa and exponent: x = mantissa * 2**exponent, with abs(mantissa) in [0.5, 1).

    The mantissa of a zero, an infinity or NaN is the number itself, and the exponent of a zero is 0.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        Of any shape.

    Returns
    -------
    mantissa : array of the dtype of `x`
        Of the shape of the input.
    exponent : array of int32
        Of the shape of the input.
    """
    with np.errstate(all="ignore"):
        mantissa, exponent = array_namespace(x).frexp(widened(x))
        return Frexp(mantissa.astype(x.dtype), exponent.astype(np.int32))


@frexp.register_shape_inference
def _(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return x, x.like(dtype=np.int32)
