"""Lowering of arithmetic with sizes, of powers of integers, and of bounds."""

from __future__ import annotations

from typing import Any

import onnx_ir
import torch

from .operands import cast, constant, dtype_of, onnx_ops, promote, promoted, typed_constant, widened
from .row_table import lower


def with_number(self: Any, number: onnx_ir.Value) -> list[Any]:
    """Return a tensor and a number that is known only when the model runs, in the type in which torch computes."""
    dtype = promoted(self, 1.0 if dtype_of(number).is_floating_point else 1)
    return [cast(item, dtype) for item in (self, number)]


@lower("aten::mul.Scalar", replaces=True)
def _multiply_by_size(self: Any, other: Any) -> Any:
    # torch's exporter takes only a constant.
    return onnx_ops.Mul(*with_number(self, other)) if isinstance(other, onnx_ir.Value) else NotImplemented


@lower("prims::div", replaces=True)
def _divide_by_size(self: Any, other: Any) -> Any:
    # torch's exporter makes a float32 of a size by which torch divides float64.
    if not all(isinstance(item, onnx_ir.Value) for item in (self, other)) or self.dtype == other.dtype:
        return NotImplemented
    return onnx_ops.Div(*with_number(self, other))


@lower("aten::pow.Tensor_Scalar", replaces=True)
def _power(self: Any, exponent: Any) -> Any:
    if isinstance(exponent, onnx_ir.Value):
        base, number = with_number(self, exponent)
        return onnx_ops.Pow(base, number) if dtype_of(base).is_floating_point else _power_of_tensor(base, number)
    dtype = promoted(self, exponent)
    if dtype.is_floating_point or exponent < 0:
        if abs(exponent) == 0.5 and dtype.itemsize >= 4:  # torch takes the root, of -inf too
            root = onnx_ops.Sqrt(cast(self, dtype))
            return root if exponent > 0 else onnx_ops.Reciprocal(root)
        if dtype.itemsize >= 4 or exponent % 1 == 0:
            return NotImplemented
        # ONNX Runtime does not round a base of float16 before, which may become an infinity.
        return onnx_ops.CastLike(onnx_ops.Pow(*map(widened, promote(self, exponent))), self)
    return cast(_integer_power(cast(self, torch.int64), exponent), dtype)


@lower("aten::pow.Tensor_Tensor", replaces=True)
def _power_of_tensor(self: Any, exponent: Any) -> Any:
    dtype = promoted(self, exponent)
    if dtype.is_floating_point:
        operands = cast(self, dtype), cast(exponent, dtype)
        return NotImplemented if operands == (self, exponent) else onnx_ops.Pow(*operands)
    return cast(_power_of_integers(cast(self, torch.int64), cast(exponent, torch.int64)), dtype)


@lower("aten::pow.Scalar", replaces=True)
def _power_of_number(self: Any, exponent: Any) -> Any:
    dtype = promoted(self, exponent)
    if dtype.is_floating_point:
        return NotImplemented
    return _power_of_tensor(typed_constant(self, dtype), cast(exponent, dtype))


# ONNX Runtime computes powers of integers as those of doubles, which have 53 bits and saturate.


def _integer_power(x: Any, exponent: int) -> Any:
    """Return a constant power of int64 numbers, by squaring."""
    result = onnx_ops.Expand(constant(1), onnx_ops.Shape(x))
    while exponent:
        result = onnx_ops.Mul(result, x) if exponent % 2 else result
        x, exponent = onnx_ops.Mul(x, x), exponent // 2
    result.dtype = onnx_ir.DataType.INT64
    return result


def _power_of_integers(x: Any, exponent: Any) -> Any:
    """Return powers of int64 numbers; exponents of more than six bits are right for even numbers, 1 and -1."""
    zero, one, two = (constant(number) for number in (0, 1, 2))
    rest = onnx_ops.Abs(exponent)
    rest = onnx_ops.Min(rest, onnx_ops.Add(constant(64), onnx_ops.Mod(rest, two)))
    result, square = one, x
    for _ in range(7):
        is_odd = onnx_ops.Equal(onnx_ops.Mod(rest, two), one)
        result = onnx_ops.Mul(result, onnx_ops.Where(is_odd, square, one))
        rest, square = onnx_ops.Div(rest, two), onnx_ops.Mul(square, square)
    vanishes = onnx_ops.And(onnx_ops.Less(exponent, zero), onnx_ops.Not(onnx_ops.Equal(onnx_ops.Abs(x), one)))
    found: Any = onnx_ops.Where(vanishes, zero, result)
    found.dtype = onnx_ir.DataType.INT64
    return found


@lower("aten::clamp.default", replaces=True)
@lower("aten::clamp_min", replaces=True)
@lower("aten::clamp_max", replaces=True)
def _clamp(self: Any, min: Any = None, max: Any = None) -> Any:
    # With one bound, ONNX Runtime's Clip returns the largest finite number for infinity.
    bound, node = (max, onnx_ops.Min) if min is None else (min, onnx_ops.Max)
    is_number = not isinstance(bound, onnx_ir.Value)
    dtype = promoted(self, bound) if is_number else dtype_of(self)
    if (min is not None and max is not None) or not dtype.is_floating_point:
        return NotImplemented
    return node(cast(self, dtype), typed_constant(bound, dtype) if is_number else cast(bound, dtype))
