"""Lowering of elementwise functions: arithmetic, shifts, special functions, polynomials and float representation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch

from pyops import Op
from pyops.kernels import pointwise, special

from .._lowering.node_emission import emit
from .._torch.tensors import numpy_dtype
from .arithmetic import with_number
from .operands import (
    by_torch,
    cast,
    constant,
    dtype_of,
    join_zeros,
    kernels,
    like,
    named_dtype,
    onnx_ops,
    promote,
    promoted,
    typed_constant,
    widened,
)
from .precision import exp_minus_one, log_of_one_plus
from .row_table import lower


def _by_number(node: Callable[..., Any]) -> Callable[..., Any]:
    def translation(self: Any, other: Any) -> Any:
        # By a number or a scalar of another type, torch multiplies float16 in float32; its exporter rounds it before.
        if promoted(self, other) != torch.float16 or not any(map(_is_far, (self, other))):
            return NotImplemented
        operands = (
            cast(item, torch.float32) if isinstance(item, onnx_ir.Value) else constant(np.float32(item))
            for item in (self, _unrounded(other))
        )
        return onnx_ops.Cast(node(*operands), to=onnx_ir.DataType.FLOAT16)

    return translation


def _is_far(value: Any) -> bool:
    """Return whether torch's exporter rounded what may be beyond float16."""
    number, limits = _unrounded(value), torch.finfo(torch.float16)
    if isinstance(number, onnx_ir.Value):
        return number is not value and number.shape == ()
    return bool(limits.max < abs(number) < math.inf or 0 < abs(number) < limits.tiny)


def _unrounded(value: Any) -> Any:
    """Return the number or the scalar that torch's exporter rounded to float16, and anything else unchanged."""
    return value.meta.get("number", value) if isinstance(value, onnx_ir.Value) else value


@lower("prims::convert_element_type", replaces=True)
def _convert(a: Any, dtype: Any) -> Any:
    is_number = named_dtype(dtype) == torch.float16 and a.shape == ()
    if not is_number and dtype_of(a) not in (torch.float16, torch.bfloat16):
        return NotImplemented
    result = by_torch("prims::convert_element_type", a, dtype)
    result.meta["number"] = a  # with which torch computes, before it rounds
    return result


def _comparison(torch_op: str) -> Callable[..., Any]:
    def translation(self: Any, other: Any) -> Any:
        # torch rounds a number to float16. Its exporter compares in float32, and ONNX Runtime rounds by explicit casts.
        operands = [_unrounded(item) for item in (self, other)]
        if operands == [self, other]:
            return NotImplemented
        return by_torch(torch_op, *map(widened, promote(*operands)))

    return translation


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    lower(f"aten::{_name}", replaces=True)(_comparison(f"aten::{_name}.Tensor"))


for _name, _node in {"mul": onnx_ops.Mul, "div": onnx_ops.Div}.items():
    lower(f"aten::{_name}.Tensor", replaces=True)(_by_number(_node))


@lower("aten::add.Tensor", replaces=True)
def _add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    of_booleans = isinstance(self, onnx_ir.Value) and dtype_of(self) == torch.bool and alpha == 1
    return onnx_ops.Or(self, other) if of_booleans else NotImplemented


OF_INTEGERS: dict[str, Callable[..., Any]] = {}
"""What the TorchScript exporter translates wrongly, by torch's names; for the other exporter, parts of it are rows."""


def _unless(excluded: Callable[[torch.dtype], bool], translation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: NotImplemented if excluded(promoted(self, other)) else translation(self, other)


def _shifted(torch_op: str) -> Callable[..., Any]:
    """Return a translation of shifts; torch's exporter shifts uint8 as int8, and selects between short integers."""

    def translation(self: Any, other: Any) -> Any:
        dtype = promoted(self, other)
        wide = torch.int64 if dtype == torch.int64 else torch.int32
        shifted = by_torch(torch_op, *(cast(item, wide) for item in promote(self, other)))
        shifted.dtype = onnx_ir.DataType.from_numpy(numpy_dtype(wide))
        return cast(shifted, dtype)

    return translation


for _side in ("left", "right"):
    _shift = _shifted(f"aten::bitwise_{_side}_shift.Tensor")
    for _name in (f"aten::__{_side[0]}shift__", f"aten::bitwise_{_side}_shift"):
        OF_INTEGERS[_name] = _shift
        lower(_name, replaces=True)(_unless(lambda dtype: dtype.itemsize >= 4, _shift))
    # torch's exporter has no translation of these.
    lower(f"aten::__{_side[0]}shift__.Tensor")(_shift)


AnyOp = Op[..., Any]


def _promoted(op: AnyOp, floating: bool) -> Callable[..., Any]:
    return lambda **operands: emit(op, promote(*operands.values(), floating=floating), {})


# torch computes these in its default dtype if every argument is an integer.
OF_FLOATS: dict[str, AnyOp] = {
    "lgamma.default": special.lgamma,
    "digamma": special.digamma,
    "erfinv": special.erfinv,
    "i0": special.i0,
    "special_modified_bessel_i0": special.i0,
    "special_i1": special.i1,
    "special_modified_bessel_i1": special.i1,
    "igamma": special.igamma,
    "igammac": special.igammac,
    "hypot": pointwise.hypot,
    "copysign.Tensor": pointwise.copysign,
    "copysign.Scalar": pointwise.copysign,
}
_OTHERWISE = (special.erf, special.erfc, special.erfcx, special.polygamma)
# The other special functions have only names with this prefix in torch.
OF_FLOATS |= {
    f"special_{name}": op
    for name, op in vars(special).items()
    if isinstance(op, Op) and op not in (*_OTHERWISE, *OF_FLOATS.values())
}
for _name, _op in OF_FLOATS.items():
    lower(f"aten::{_name}")(_promoted(_op, floating=True))


def of_doubles(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a translation for float64, for which ONNX Runtime does not have every function."""
    return lambda self: kernel(self) if dtype_of(self) == torch.float64 else NotImplemented


# The errors of torch's own translation exceed rounding.
lower("aten::special_erfcx", replaces=True)(_promoted(special.erfcx, floating=True))

OF_NUMBERS: dict[str, AnyOp] = {
    "fmax": pointwise.fmax,
    "fmin": pointwise.fmin,
    "gcd.default": pointwise.gcd,
    "lcm": pointwise.lcm,
    "nextafter": pointwise.nextafter,
}
for _name, _op in OF_NUMBERS.items():
    lower(f"aten::{_name}")(_promoted(_op, floating=False))

lower("aten::frexp.Tensor")(pointwise.frexp)


@lower("aten::polygamma")
def _polygamma(n: int, self: Any) -> Any:
    return kernels.Polygamma(*promote(self, floating=True), n=n)


@lower("aten::signbit", replaces=True)
def _signbit(self: Any) -> Any:
    # torch's exporter emits x < 0, which is false for -0.
    return kernels.Signbit(self) if dtype_of(self).is_floating_point else NotImplemented


@lower("aten::sign", replaces=True)
def _sign(self: Any) -> Any:
    # The sign of NaN is 0 in torch, and NaN in ONNX Runtime.
    if not dtype_of(self).is_floating_point:
        return NotImplemented
    return onnx_ops.Where(onnx_ops.IsNaN(self), like(0.0, self), onnx_ops.Sign(self))


@lower("aten::_to_copy", replaces=True)
def _to_copy(self: Any, dtype: Any = None, **_: Any) -> Any:
    # torch's exporter supports the other complex types, but has no ONNX type for complex32.
    if dtype != onnx_ir.DataType.UNDEFINED:
        return NotImplemented
    return join_zeros(onnx_ops.Cast(self, to=onnx_ir.DataType.FLOAT16))


@lower("aten::atan2", replaces=True)
def _atan2(self: Any, other: Any) -> Any:
    # torch's exporter misses signed zeros, infinities and NaN, and ONNX Runtime has no Atan of float64.
    return atan2(*promote(self, other, floating=True))


def atan2(y: Any, x: Any) -> Any:
    """Return the angles from -pi to pi of the points (x, y)."""
    dtype = dtype_of(y)
    if dtype.itemsize < 4:
        return cast(atan2(*(cast(item, torch.float32) for item in (y, x))), dtype)
    height, width = onnx_ops.Abs(y), onnx_ops.Abs(x)
    is_steep = onnx_ops.Greater(height, width)
    small, large = onnx_ops.Where(is_steep, width, height), onnx_ops.Where(is_steep, height, width)
    # Of two zeros or two infinities, the quotient is NaN.
    slope = onnx_ops.Where(onnx_ops.Equal(height, width), onnx_ops.Sign(height), onnx_ops.Div(small, large))
    angle = _atan(slope, dtype)
    angle = onnx_ops.Where(is_steep, onnx_ops.Sub(like(math.pi / 2, y), angle), angle)
    angle = onnx_ops.Where(is_negative(x), onnx_ops.Sub(like(math.pi, y), angle), angle)
    angle = onnx_ops.Where(is_negative(y), onnx_ops.Neg(angle), angle)
    angle.dtype = y.dtype
    return angle


def _atan(slope: Any, dtype: torch.dtype) -> Any:
    """Return the arc tangent of slopes from 0 to 1."""
    if dtype == torch.float32:
        return onnx_ops.Atan(slope)
    narrow = onnx_ops.Atan(onnx_ops.Cast(slope, to=onnx_ir.DataType.FLOAT))
    rough = onnx_ops.Cast(narrow, to=onnx_ir.DataType.DOUBLE)
    # Add the tangent of what is missing: that is a rounding error of float32, and so small that it equals its tangent.
    sine, cosine = onnx_ops.Sin(rough), onnx_ops.Cos(rough)
    above = onnx_ops.Sub(onnx_ops.Mul(slope, cosine), sine)
    return onnx_ops.Add(rough, onnx_ops.Div(above, onnx_ops.Add(cosine, onnx_ops.Mul(slope, sine))))


def is_negative(x: Any) -> Any:
    """Return where numbers have a negative sign, -0 included."""
    zero = like(0.0, x)
    return onnx_ops.Or(onnx_ops.Less(x, zero), onnx_ops.Less(onnx_ops.Reciprocal(x), zero))


def _in_float32(function: Callable[..., Any], *values: Any, floating: bool = False) -> Any:
    """Call a function with values of the element type given by `promoted`, in float32 where that has 16 bits."""
    dtype = promoted(*values, floating=floating)
    wide = torch.float32 if dtype.itemsize < 4 else dtype
    graph_values = [
        typed_constant(value, wide) if isinstance(value, (int, float)) else cast(cast(value, dtype), wide)
        for value in values
    ]
    result = function(*graph_values)
    result.dtype = onnx_ir.DataType.from_numpy(numpy_dtype(wide))
    return cast(result, dtype)


def _of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: _in_float32(function, self, floating=True)


_DIGITS = {"expm1": exp_minus_one, "log1p": log_of_one_plus, "erfc": kernels.Erfc}
for _name, _function in _DIGITS.items():
    lower(f"aten::{_name}.default", replaces=True)(_of_floats(_function))


@lower("aten::log_sigmoid", replaces=True)
def _log_sigmoid(self: Any) -> Any:
    # torch's exporter emits the logarithm of a Sigmoid, which is 0 from -18 down.
    return _in_float32(lambda x: onnx_ops.Neg(_softplus(onnx_ops.Neg(x), dtype_of(x))), self)


def _softplus(x: Any, dtype: torch.dtype) -> Any:
    """Return log(1 + exp(x)); ONNX Runtime has Softplus only for float32."""
    if dtype == torch.float32:
        return onnx_ops.Softplus(x)
    power = onnx_ops.Exp(onnx_ops.Neg(onnx_ops.Abs(x)))
    return onnx_ops.Add(onnx_ops.Max(x, typed_constant(0, dtype)), log_of_one_plus(power))


@lower("aten::logit", replaces=True)
def _logit(self: Any, eps: float | None = None) -> Any:
    # torch's exporter clamps NaN to 1 - eps.
    if eps is None:
        return NotImplemented
    low, high, one = (like(number, self) for number in (eps, 1 - eps, 1.0))
    clamped = onnx_ops.Where(onnx_ops.Less(self, low), low, self)
    clamped = onnx_ops.Where(onnx_ops.Greater(clamped, high), high, clamped)
    return onnx_ops.Log(onnx_ops.Div(clamped, onnx_ops.Sub(one, clamped)))


def _remainder(self: Any, other: Any) -> Any:
    # torch's exporter emits x - y * floor(x / y), which has no digits left where the quotient is large.
    if promoted(self, other).is_floating_point:
        return _in_float32(_float_remainder, self, other)
    return onnx_ops.Mod(*promote(self, other))


def _floor_divide(self: Any, other: Any) -> Any:
    # torch's exporter emits floor(x / y), where the quotient may be rounded to the next integer.
    if promoted(self, other).is_floating_point:
        divisor = _unrounded(other)

        def quotient(x: Any, y: Any) -> Any:
            # torch does not round a divisor without dimensions to 16 bits.
            is_exact = isinstance(divisor, onnx_ir.Value) and divisor.shape == ()
            return _float_quotient(x, cast(divisor, dtype_of(x)) if is_exact else y)

        return cast(_in_float32(quotient, _unrounded(self), divisor), promoted(self, other))
    return by_torch("aten::floor_divide", *promote(self, other))


for _name, _division in {"aten::remainder": _remainder, "aten::floor_divide": _floor_divide}.items():
    OF_INTEGERS[_name] = _division
    lower(_name, replaces=True)(_unless(lambda dtype: not dtype.is_floating_point, _division))


@lower("aten::remainder.Scalar", replaces=True)
def _remainder_of_number(self: Any, other: Any) -> Any:
    if isinstance(other, onnx_ir.Value):
        return _remainder(*with_number(self, other))
    return _remainder(self, other) if promoted(self, other).is_floating_point else NotImplemented


@lower("aten::div.Tensor_mode", replaces=True)
@lower("aten::div.Scalar_mode", replaces=True)
def _divide_in_mode(self: Any, other: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode == "floor":
        return _floor_divide(self, other)
    # torch's exporter divides integers in float32.
    if rounding_mode is None or promoted(self, other).is_floating_point:
        return NotImplemented
    return onnx_ops.Div(*promote(self, other))


OF_INTEGERS |= dict.fromkeys(("aten::div.Tensor_mode", "aten::div.Scalar_mode"), _divide_in_mode)


def _float_remainder(x: Any, y: Any) -> Any:
    rest = onnx_ops.Mod(x, y, fmod=1)
    return onnx_ops.Where(_are_opposite(rest, y), onnx_ops.Add(rest, y), rest)


def _float_quotient(x: Any, y: Any) -> Any:
    zero, half, one = (like(number, x) for number in (0.0, 0.5, 1.0))
    rest = onnx_ops.Mod(x, y, fmod=1)
    # An integer, except for rounding errors.
    nearly = onnx_ops.Div(onnx_ops.Sub(x, rest), y)
    nearly = onnx_ops.Where(_are_opposite(rest, y), onnx_ops.Sub(nearly, one), nearly)
    whole = onnx_ops.Floor(nearly)
    is_below = onnx_ops.Greater(onnx_ops.Sub(nearly, whole), half)
    whole = onnx_ops.Where(is_below, onnx_ops.Add(whole, one), whole)
    quotient = onnx_ops.Div(x, y)
    # A zero has the sign of the quotient.
    whole = onnx_ops.Where(onnx_ops.Equal(nearly, zero), onnx_ops.Mul(quotient, zero), whole)
    return onnx_ops.Where(onnx_ops.Equal(y, zero), quotient, whole)


def _are_opposite(rest: Any, y: Any) -> Any:
    """Return where a remainder is not zero and does not have the sign of the divisor."""
    zero = like(0.0, rest)
    signs_differ = onnx_ops.Xor(onnx_ops.Less(rest, zero), onnx_ops.Less(y, zero))
    return onnx_ops.And(onnx_ops.Not(onnx_ops.Equal(rest, zero)), signs_differ)


@lower("aten::rrelu_with_noise_functional")
def _rrelu(self: Any, noise: Any, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, **_: Any) -> Any:
    dtype = dtype_of(self)
    zero, one = typed_constant(0, dtype), typed_constant(1, dtype)
    if training:
        # ONNX Runtime draws random numbers only in these two types.
        drawn = onnx.TensorProto.DOUBLE if dtype == torch.float64 else onnx.TensorProto.FLOAT
        slopes = onnx_ops.RandomUniformLike(self, dtype=drawn, low=lower, high=upper)
        noise = onnx_ops.Where(onnx_ops.LessOrEqual(self, zero), onnx_ops.CastLike(slopes, self), one)
        return onnx_ops.Mul(self, noise), noise
    slope = typed_constant((lower + upper) / 2, dtype)
    return onnx_ops.Where(onnx_ops.Greater(self, zero), self, onnx_ops.Mul(self, slope)), noise


def floor_of_quotient(size: Any, other: Any) -> Any:
    """Emit the floor of a quotient of sizes, as ``size // other``."""
    size, other = (constant(item) if isinstance(item, int) else item for item in (size, other))
    return onnx_ops.Div(onnx_ops.Sub(size, onnx_ops.Mod(size, other)), other)
