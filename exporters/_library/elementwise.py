"""Lowering of elementwise functions: arithmetic, shifts, special functions, polynomials and float representation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir
import torch

from pyops._ops.op import Op
from pyops.kernels import pointwise, special

from .._lowering.nodes import emit
from .._torch_private.exporter import own_translation
from .parts import join, split
from .promotion import dtype_of, promote, promoted, typed_constant
from .table import Pairs, kernels, like, lower, onnx_ops


@lower("aten::divide.Tensor", replaces=True)
def _divide(self: Any, other: Any) -> Any:
    return onnx_ops.Div(*promote(self, other, floating=True))


@lower("aten::multiply.Tensor", replaces=True)
def _multiply(self: Any, other: Any) -> Any:
    return onnx_ops.Mul(*promote(self, other)) if _differ(self, other) else NotImplemented


@lower("aten::subtract.Tensor", replaces=True)
def _subtract(self: Any, other: Any, *, alpha: Any = None) -> Any:
    if alpha not in (None, 1) or not _differ(self, other):
        return NotImplemented
    return onnx_ops.Sub(*promote(self, other))


@lower("aten::__lshift__.Scalar", replaces=True)
@lower("aten::bitwise_left_shift", replaces=True)
def _left_shift(self: Any, other: Any) -> Any:
    return _shifted_bytes(self, other, "LEFT")


@lower("aten::__rshift__.Scalar", replaces=True)
@lower("aten::bitwise_right_shift", replaces=True)
def _right_shift(self: Any, other: Any) -> Any:
    return _shifted_bytes(self, other, "RIGHT")


@lower("aten::__lshift__.Tensor")
def _left_shift_of_tensors(self: Any, other: Any) -> Any:
    return _shifted(self, other, "LEFT", torch.ops.aten.bitwise_left_shift.Tensor)


@lower("aten::__rshift__.Tensor")
def _right_shift_of_tensors(self: Any, other: Any) -> Any:
    return _shifted(self, other, "RIGHT", torch.ops.aten.bitwise_right_shift.Tensor)


def _shifted(x: Any, count: Any, direction: str, signed: Any) -> Any:
    result, own = _shifted_bytes(x, count, direction), own_translation(signed)
    return own(*promote(x, count)) if result is NotImplemented and own is not None else result


def _shifted_bytes(x: Any, count: Any, direction: str) -> Any:
    # torch's exporter shifts uint8 as int8.
    if promoted(x, count) != torch.uint8:
        return NotImplemented
    fixed = isinstance(count, int)
    if fixed:
        count = count if 0 <= count < 8 else 8
    bits, places = promote(x, count)
    shifted = onnx_ops.BitShift(bits, places, direction=direction)
    if fixed and count < 8:
        return shifted
    # ONNX does not define a shift by more places than there are bits.
    return onnx_ops.Where(
        onnx_ops.Less(places, typed_constant(8, torch.uint8)), shifted, typed_constant(0, torch.uint8)
    )


def _differ(self: Any, other: Any) -> bool:
    if isinstance(other, (int, float)):
        return promoted(self, other) != dtype_of(self)
    return dtype_of(self) != dtype_of(other)


AnyOp = Op[..., Any]


def _promoted(op: AnyOp, floating: bool) -> Callable[..., Any]:
    return lambda *operands: emit(op, promote(*operands, floating=floating), {})


# torch computes these in its default dtype if every argument is an integer.
OF_FLOATS: dict[str, AnyOp] = {
    "lgamma.default": special.lgamma,
    "digamma": special.digamma,
    "erfinv": special.erfinv,
    "i0": special.i0,
    "igamma": special.igamma,
    "igammac": special.igammac,
    "hypot": pointwise.hypot,
    "copysign.Tensor": pointwise.copysign,
    "copysign.Scalar": pointwise.copysign,
}
# The other special functions have only names with this prefix in torch.
OF_FLOATS |= {
    f"special_{name}": op
    for name, op in vars(special).items()
    if isinstance(op, Op) and op not in (special.erfcx, special.log_ndtr, special.polygamma, *OF_FLOATS.values())
}
for _name, _op in OF_FLOATS.items():
    lower(f"aten::{_name}")(_promoted(_op, floating=True))

# The errors of torch's own translations of these exceed rounding.
lower("aten::special_erfcx", replaces=True)(_promoted(special.erfcx, floating=True))
lower("aten::special_log_ndtr", replaces=True)(_promoted(special.log_ndtr, floating=True))

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


@lower("aten::_to_copy", replaces=True)
def _to_copy(self: Any, *, dtype: Any = None, **_: Any) -> Any:
    # torch's exporter supports the other complex types, but has no ONNX type for complex32.
    if dtype != onnx_ir.DataType.UNDEFINED:
        return NotImplemented
    real = onnx_ops.Cast(self, to=onnx_ir.DataType.FLOAT16)
    return join(real, onnx_ops.Expand(like(0.0, real), onnx_ops.Shape(real)))


@lower("aten::silu", takes_complex=True)
def _silu(self: Any) -> Any:
    if not isinstance(self, Pairs):
        return NotImplemented  # torch's exporter supports real ones
    real, imaginary = split(self)
    zero, one = like(0, real), like(1, real)
    # z / (1 + exp(-z)), or z * exp(z) / (exp(z) + 1) where exp(-z) would overflow.
    negative = onnx_ops.Less(real, zero)
    decay = onnx_ops.Exp(onnx_ops.Neg(onnx_ops.Abs(real)))
    turning, factor = onnx_ops.Where(negative, one, decay), onnx_ops.Where(negative, decay, one)
    c = onnx_ops.Add(factor, onnx_ops.Mul(turning, onnx_ops.Cos(imaginary)))
    d = onnx_ops.Mul(turning, onnx_ops.Sin(imaginary))
    scale = onnx_ops.Div(factor, onnx_ops.Add(onnx_ops.Mul(c, c), onnx_ops.Mul(d, d)))
    return join(
        onnx_ops.Mul(scale, onnx_ops.Sub(onnx_ops.Mul(real, c), onnx_ops.Mul(imaginary, d))),
        onnx_ops.Mul(scale, onnx_ops.Add(onnx_ops.Mul(imaginary, c), onnx_ops.Mul(real, d))),
    )


@lower("aten::rrelu_with_noise_functional")
def _rrelu(
    self: Any,
    noise: Any,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    dtype = dtype_of(self)
    zero, one = typed_constant(0, dtype), typed_constant(1, dtype)
    if training:
        # ONNX Runtime draws only these two types.
        drawn = onnx.TensorProto.DOUBLE if dtype == torch.float64 else onnx.TensorProto.FLOAT
        slopes = onnx_ops.RandomUniformLike(self, dtype=drawn, low=lower, high=upper)
        noise = onnx_ops.Where(onnx_ops.LessOrEqual(self, zero), onnx_ops.CastLike(slopes, self), one)
        return onnx_ops.Mul(self, noise), noise
    slope = typed_constant((lower + upper) / 2, dtype)
    return onnx_ops.Where(onnx_ops.Greater(self, zero), self, onnx_ops.Mul(self, slope)), noise
