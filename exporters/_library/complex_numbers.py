"""Lowering of elementwise functions of complex numbers to nodes on their real and imaginary parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir
import torch

from .elementwise import atan2, is_negative
from .operands import Pairs, by_parts, cast, constant, dtype_of, join, like, named_dtype, onnx_ops, plain, split
from .precision import log_of_one_plus
from .row_table import lower, lower_complex

Parts = tuple[Any, Any]
"""The real and the imaginary parts of complex numbers."""


def _typed(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that emits a node and gives its output the element type of the last input that has one."""

    def emitted(*inputs: Any) -> Any:
        result = emit(*inputs)
        result.dtype = next((item.dtype for item in reversed(inputs) if item.dtype is not None), None)
        return result

    return emitted


_add, _sub, _mul, _div = map(_typed, (onnx_ops.Add, onnx_ops.Sub, onnx_ops.Mul, onnx_ops.Div))
_log1p_of_real = _typed(log_of_one_plus)
_where, _neg = _typed(onnx_ops.Where), _typed(onnx_ops.Neg)


def parts(value: Any, beside: onnx_ir.Value) -> Parts:
    """Return the parts of complex numbers, or of a real tensor or a number, with the element type of `beside`."""
    if isinstance(value, Pairs):
        return split(value)
    if isinstance(value, onnx_ir.Value):
        real = onnx_ops.CastLike(value, beside)
        return real, like(0.0, beside)
    return like(float(complex(value).real), beside), like(float(complex(value).imag), beside)


def multiply(x: Parts, y: Parts) -> Parts:
    """Return the product of complex numbers."""
    (a, b), (c, d) = x, y
    return _sub(_mul(a, c), _mul(b, d)), _add(_mul(a, d), _mul(b, c))


def divide(x: Parts, y: Parts) -> Parts:
    """Return the quotient of complex numbers, by Smith's algorithm, which does not overflow before the result does."""
    (a, b), (c, d) = x, y
    is_wide = onnx_ops.GreaterOrEqual(onnx_ops.Abs(c), onnx_ops.Abs(d))
    one = like(1.0, c)
    is_zero = onnx_ops.And(onnx_ops.Equal(c, like(0.0, c)), onnx_ops.Equal(d, like(0.0, d)))
    large = _where(is_zero, onnx_ops.Abs(c), _where(is_wide, c, d))
    ratio = _where(is_zero, one, _div(_where(is_wide, d, c), _where(is_zero, one, large)))
    below = _div(one, _add(large, _mul(_where(is_wide, d, c), ratio)))
    real = _where(is_zero, a, _where(is_wide, _add(a, _mul(b, ratio)), _add(_mul(a, ratio), b)))
    imaginary = _where(is_zero, b, _where(is_wide, _sub(b, _mul(a, ratio)), _sub(_mul(b, ratio), a)))
    return _mul(real, below), _mul(imaginary, below)


def _modulus(x: Parts) -> Any:
    """Return the absolute values, without overflow or underflow of the squares."""
    a, b = map(onnx_ops.Abs, x)
    large, small = onnx_ops.Max(a, b), onnx_ops.Min(a, b)
    # Of zeros and infinities, the quotient is NaN.
    is_plain = onnx_ops.And(onnx_ops.Greater(large, like(0.0, a)), onnx_ops.Less(large, like(math.inf, a)))
    ratio = _where(is_plain, _div(small, large), like(0.0, a))
    return _mul(large, onnx_ops.Sqrt(_add(like(1.0, a), _mul(ratio, ratio))))


def _angle(x: Parts) -> Any:
    return atan2(x[1], x[0])


def _exp(x: Parts) -> Parts:
    size = onnx_ops.Exp(x[0])
    angle = _where(onnx_ops.Equal(size, like(0.0, x[0])), like(0.0, x[0]), x[1])  # 0 whatever the angle is
    return _mul(size, onnx_ops.Cos(angle)), _mul(size, onnx_ops.Sin(angle))


def _log(x: Parts) -> Parts:
    return onnx_ops.Log(_modulus(x)), _angle(x)


def _log1p(x: Parts) -> Parts:
    a, b = x
    near = _add(_mul(a, _add(a, like(2.0, a))), _mul(b, b))  # |1 + x|**2 - 1, exact near 0
    moved = _add(a, like(1.0, a)), b
    is_near = onnx_ops.Less(onnx_ops.Abs(near), like(0.5, a))
    return _where(is_near, _mul(_log1p_of_real(near), like(0.5, a)), onnx_ops.Log(_modulus(moved))), _angle(moved)


def _sqrt(x: Parts) -> Parts:
    a, b = x
    zero = like(0.0, a)
    root = onnx_ops.Sqrt(_mul(_add(_modulus(x), onnx_ops.Abs(a)), like(0.5, a)))
    other = _where(onnx_ops.Equal(root, zero), zero, _div(onnx_ops.Abs(b), _mul(like(2.0, a), _positive(root))))
    is_right = onnx_ops.GreaterOrEqual(a, zero)
    real, size = _where(is_right, root, other), _where(is_right, other, root)
    return real, _where(is_negative(b), _neg(size), size)


def _positive(x: Any) -> Any:
    """Return numbers with ones in place of zeros, as divisors."""
    return _where(onnx_ops.Equal(x, like(0.0, x)), like(1.0, x), x)


def _reciprocal(x: Parts) -> Parts:
    return divide((like(1.0, x[0]), like(0.0, x[0])), x)


def hyperbolic(x: Any) -> Parts:
    """Return the hyperbolic sine and cosine of real numbers."""
    if dtype_of(x) == torch.float32:
        return onnx_ops.Sinh(x), onnx_ops.Cosh(x)
    # ONNX Runtime has them only for float32.
    up, down, half = onnx_ops.Exp(x), onnx_ops.Exp(_neg(x)), like(0.5, x)
    return _mul(half, _sub(up, down)), _mul(half, _add(up, down))


def _sinh(x: Parts) -> Parts:
    sinh, cosh = hyperbolic(x[0])
    return _mul(sinh, onnx_ops.Cos(x[1])), _mul(cosh, onnx_ops.Sin(x[1]))


def _cosh(x: Parts) -> Parts:
    sinh, cosh = hyperbolic(x[0])
    return _mul(cosh, onnx_ops.Cos(x[1])), _mul(sinh, onnx_ops.Sin(x[1]))


def _tanh(x: Parts) -> Parts:
    # Beyond 20, tanh is 1 in float64 too, and the hyperbolic functions do not overflow before it.
    a, b = _typed(onnx_ops.Clip)(x[0], like(-20.0, x[0]), like(20.0, x[0])), x[1]
    sinh, cosh = hyperbolic(a)
    sine, cosine = onnx_ops.Sin(b), onnx_ops.Cos(b)
    below = _add(_mul(sinh, sinh), _mul(cosine, cosine))
    return _div(_mul(sinh, cosh), below), _div(_mul(sine, cosine), below)


def _turned(function: Callable[[Parts], Parts]) -> Callable[[Parts], Parts]:
    """Return x -> f(i x) / i: the sine for the hyperbolic sine, the tangent for the hyperbolic tangent."""

    def turned(x: Parts) -> Parts:
        real, imaginary = function((_neg(x[1]), x[0]))
        return imaginary, _neg(real)

    return turned


def _cos(x: Parts) -> Parts:
    sinh, cosh = hyperbolic(x[1])
    return _mul(onnx_ops.Cos(x[0]), cosh), _neg(_mul(onnx_ops.Sin(x[0]), sinh))


# The inverse functions are those of W. Kahan, "Branch cuts for complex elementary functions", 1987.


def _roots(x: Parts) -> tuple[Parts, Parts]:
    """Return the square roots of 1 - x and 1 + x."""
    one = like(1.0, x[0])
    return _sqrt((_sub(one, x[0]), _neg(x[1]))), _sqrt((_add(one, x[0]), x[1]))


def _acos(x: Parts) -> Parts:
    p, q = _roots(x)
    return _mul(like(2.0, x[0]), atan2(p[0], q[0])), asinh_of_real(_sub(_mul(q[0], p[1]), _mul(q[1], p[0])))


def _asin(x: Parts) -> Parts:
    p, q = _roots(x)
    real = atan2(x[0], _sub(_mul(p[0], q[0]), _mul(p[1], q[1])))
    return real, asinh_of_real(_sub(_mul(p[0], q[1]), _mul(p[1], q[0])))


def _acosh(x: Parts) -> Parts:
    p, q = (_sqrt((_add(x[0], like(number, x[0])), x[1])) for number in (-1.0, 1.0))
    real = asinh_of_real(_add(_mul(p[0], q[0]), _mul(p[1], q[1])))
    return real, _mul(like(2.0, x[0]), atan2(p[1], q[0]))


def _atanh(x: Parts) -> Parts:
    (a, b), one = x, like(1.0, x[0])
    size = onnx_ops.Abs(a)
    near = _sub(one, size)
    grown = _log1p_of_real(_div(_mul(like(4.0, a), size), _add(_mul(near, near), _mul(b, b))))
    imaginary = atan2(_mul(like(2.0, a), b), _sub(_mul(near, _add(one, size)), _mul(b, b)))
    return _mul(_signed(grown, a), like(0.25, a)), _mul(imaginary, like(0.5, a))


def asinh_of_real(x: Any) -> Any:
    """Return the inverse hyperbolic sine of real numbers."""
    if dtype_of(x) == torch.float32:
        return _typed(onnx_ops.Asinh)(x)
    # ONNX Runtime has it only for float32.
    size = _typed(onnx_ops.Abs)(x)
    inverse = _typed(onnx_ops.Reciprocal)(size)
    root = _typed(onnx_ops.Sqrt)(_add(_mul(inverse, inverse), like(1.0, x)))
    return _signed(_log1p_of_real(_add(size, _div(size, _add(inverse, root)))), x)


def _signed(size: Any, x: Any) -> Any:
    return _where(is_negative(x), _neg(size), size)


def _sigmoid(x: Parts) -> Parts:
    real, imaginary = x
    zero, one = like(0.0, real), like(1.0, real)
    # 1 / (1 + exp(-x)), or exp(x) / (exp(x) + 1) where exp(-x) would overflow.
    negative = onnx_ops.Less(real, zero)
    decay = onnx_ops.Exp(_neg(onnx_ops.Abs(real)))
    turning, factor = _where(negative, one, decay), _where(negative, decay, one)
    c = _add(factor, _mul(turning, onnx_ops.Cos(imaginary)))
    d = _mul(turning, onnx_ops.Sin(imaginary))
    scale = _div(factor, _add(_mul(c, c), _mul(d, d)))
    return _mul(scale, c), _mul(scale, d)


def _expm1(x: Parts) -> Parts:
    # exp(a) cos(b) - 1 is (exp(a) - 1) cos(b) - 2 sin(b / 2)**2.
    a, b = x
    half = onnx_ops.Sin(_mul(b, like(0.5, b)))
    grown = _mul(like(2.0, a), _mul(onnx_ops.Exp(_mul(a, like(0.5, a))), hyperbolic(_mul(a, like(0.5, a)))[0]))
    real = _sub(_mul(grown, onnx_ops.Cos(b)), _mul(like(2.0, a), _mul(half, half)))
    return real, _mul(onnx_ops.Exp(a), onnx_ops.Sin(b))


def _scaled(number: float) -> Callable[[Parts], Parts]:
    """Return a logarithm of another base: the natural one times a factor."""
    return lambda x: tuple(_mul(part, like(number, part)) for part in _log(x))


OF_ONE: dict[str, Callable[[Parts], Parts]] = {
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "log2": _scaled(1 / math.log(2)),
    "log10": _scaled(1 / math.log(10)),
    "sqrt": _sqrt,
    "rsqrt": lambda x: _reciprocal(_sqrt(x)),
    "sin": _turned(_sinh),
    "cos": _cos,
    "tan": _turned(_tanh),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "acos": _acos,
    "asin": _asin,
    "atan": _turned(_atanh),
    "acosh": _acosh,
    "asinh": _turned(_asin),
    "atanh": _atanh,
    "sigmoid": _sigmoid,
    "silu": lambda x: multiply(x, _sigmoid(x)),
    "_conj_physical": lambda x: (x[0], _neg(x[1])),
}
for _name, _function in OF_ONE.items():
    lower_complex(f"aten::{_name}")(lambda self, function=_function: join(*function(split(self))))


@lower_complex("aten::reciprocal", replaces=True)
def _reciprocals(self: Any) -> Any:
    # torch's exporter squares the divisor, which overflows.
    return join(*_reciprocal(split(self)))


@lower_complex("aten::pow.Tensor_Scalar")
def _pow_number(self: Any, exponent: complex) -> Any:
    x = split(self)
    if isinstance(exponent, int) and 0 < abs(exponent) <= 8:
        result = x
        for _ in range(abs(exponent) - 1):
            result = multiply(result, x)
        return join(*(result if exponent > 0 else _reciprocal(result)))
    return join(*(_sqrt(x) if exponent == 0.5 else _power(x, parts(exponent, x[0]))))


@lower_complex("aten::pow.Tensor_Tensor")
@lower_complex("aten::pow.Scalar")
def _pow(self: Any, exponent: Any) -> Any:
    beside = (self if isinstance(self, Pairs) else exponent).value
    return join(*_power(parts(self, beside), parts(exponent, beside)))


def _power(x: Parts, y: Parts) -> Parts:
    """Return exp(y log(x)), and 0 or 1 where x is 0."""
    zero, one = like(0.0, x[0]), like(1.0, x[0])
    is_zero = onnx_ops.Equal(onnx_ops.Max(*map(onnx_ops.Abs, x)), zero)
    real, imaginary = _exp(multiply(_log((_where(is_zero, one, x[0]), x[1])), y))
    none = onnx_ops.Equal(onnx_ops.Max(*map(onnx_ops.Abs, y)), zero)
    return _where(is_zero, _where(none, one, zero), real), _where(is_zero, zero, imaginary)


def _added(combined: Callable[[Parts, Parts], Parts]) -> Callable[..., Any]:
    """Return a translation that adds what two tensors give, times a number, to another tensor."""

    def translation(self: Any, tensor1: Any, tensor2: Any, *, value: complex = 1) -> Any:
        beside = next(item for item in (self, tensor1, tensor2) if isinstance(item, Pairs)).value
        start, y, z, factor = (parts(item, beside) for item in (self, tensor1, tensor2, value))
        return join(*map(_add, start, combined(multiply(factor, y), z)))

    return translation


lower_complex("aten::addcmul")(_added(multiply))
lower_complex("aten::addcdiv")(_added(divide))


# Functions whose results are not complex.


def _both(test: Callable[[Any], Any], joined: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: joined(*map(test, split(self)))


def _is_finite(x: Any) -> Any:
    return onnx_ops.Not(onnx_ops.Or(onnx_ops.IsNaN(x), _is_infinite(x)))


def _is_infinite(x: Any) -> Any:
    return onnx_ops.Equal(onnx_ops.Abs(x), like(math.inf, x))


@lower_complex("aten::abs", replaces=True)
def absolute(self: Any) -> Any:
    """Return the absolute values; torch's exporter emits a ReduceL2, in which squares overflow and underflow."""
    if dtype_of(self.value) == torch.float64:
        found = _modulus(split(self))
    else:
        wide = onnx_ops.ReduceL2(cast(self.value, torch.float64), constant([-1]), keepdims=0)
        found = onnx_ops.CastLike(wide, self.value)
    return _where(_has_infinity(self), like(math.inf, self.value), found)  # beside NaN too


# torch's exporter gives -pi to negative numbers without an imaginary part, and 0 to NaN.
lower_complex("aten::angle", replaces=True)(lambda self: _angle(split(self)))
_is_nan = lower_complex("aten::isnan")(_both(onnx_ops.IsNaN, onnx_ops.Or))
_has_infinity = lower_complex("aten::isinf")(_both(_is_infinite, onnx_ops.Or))
lower_complex("aten::isfinite")(_both(_is_finite, onnx_ops.And))


@lower_complex("aten::isclose")
def _isclose(self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    x, y = split(self), split(other)
    apart = _modulus((_sub(x[0], y[0]), _sub(x[1], y[1])))
    allowed = _add(like(atol, apart), _mul(like(rtol, apart), _modulus(y)))
    close = onnx_ops.Or(_eq(self, other), onnx_ops.And(_is_finite(apart), onnx_ops.LessOrEqual(apart, allowed)))
    return onnx_ops.Or(close, onnx_ops.And(_is_nan(self), _is_nan(other))) if equal_nan else close


@lower("aten::nan_to_num", replaces=True)
@lower_complex("aten::nan_to_num")
def _nan_to_num(self: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    # torch's exporter takes float64 beyond float32 for infinite.
    if not dtype_of(plain(self)).is_floating_point:
        return onnx_ops.Identity(self)
    largest = torch.finfo(dtype_of(plain(self))).max
    above, below = largest if posinf is None else posinf, -largest if neginf is None else neginf

    def finite(x: Any) -> Any:
        x = _where(onnx_ops.IsNaN(x), like(nan or 0.0, x), x)
        x = _where(onnx_ops.Equal(x, like(math.inf, x)), like(float(above), x), x)
        return _where(onnx_ops.Equal(x, like(-math.inf, x)), like(float(below), x), x)

    return by_parts(finite, self)


def truth(value: Any) -> Any:
    """Return where numbers, complex or real, are not 0."""
    if not isinstance(value, Pairs):
        return onnx_ops.Cast(value, to=onnx_ir.DataType.BOOL)
    return onnx_ops.Or(*(onnx_ops.Cast(part, to=onnx_ir.DataType.BOOL) for part in split(value)))


@lower_complex("aten::eq.Scalar")
@lower_complex("aten::eq.Tensor")
def _eq(self: Any, other: Any) -> Any:
    beside = (self if isinstance(self, Pairs) else other).value
    return onnx_ops.And(*map(onnx_ops.Equal, parts(self, beside), parts(other, beside)))


@lower_complex("aten::ne.Scalar")
@lower_complex("aten::ne.Tensor")
def _ne(self: Any, other: Any) -> Any:
    return onnx_ops.Not(_eq(self, other))


lower_complex("aten::logical_not")(lambda self: onnx_ops.Not(truth(self)))
for _name, _emit in {"and": onnx_ops.And, "or": onnx_ops.Or, "xor": onnx_ops.Xor}.items():
    lower_complex(f"aten::logical_{_name}")(lambda self, other, emit=_emit: emit(truth(self), truth(other)))


@lower_complex("aten::_to_copy")
def _to_copy(self: Any, dtype: Any = None, **_: Any) -> Any:
    if dtype in (onnx_ir.DataType.BOOL, torch.bool):
        return truth(self)
    if dtype is None:
        return onnx_ops.Identity(self.value)
    if dtype == onnx_ir.DataType.UNDEFINED:
        return NotImplemented
    wanted = named_dtype(dtype)
    # torch drops the imaginary parts.
    return cast(self.value, wanted.to_real()) if wanted.is_complex else cast(split(self)[0], wanted)


lower_complex("prims::convert_element_type")(lambda a, dtype: _to_copy(a, dtype))


def _with_number(combined: Callable[[Parts, Parts], Parts]) -> Callable[..., Any]:
    """Return a translation for a complex tensor and a complex number."""
    return lambda self, other: join(*combined(split(self), parts(other, self.value)))


lower_complex("aten::mul.Scalar")(_with_number(multiply))
lower_complex("aten::div.Scalar")(_with_number(divide))


@lower_complex("aten::div.Tensor", replaces=True)
def _quotient(self: Any, other: Any) -> Any:
    both = isinstance(self, Pairs) and isinstance(other, Pairs)
    return join(*divide(split(self), split(other))) if both else NotImplemented
