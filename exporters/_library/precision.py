"""Lowering of functions that torch's exporter, or ONNX Runtime, computes with fewer digits than torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir
import torch

from .operands import cast, constant, dtype_of, like, named_dtype, onnx_ops, typed_constant
from .row_table import lower

# For float64, torch's exporter has constants or nodes of float32 in what follows.


def double(number: float) -> Any:
    """Return a float64 constant."""
    return typed_constant(number, torch.float64)


# Near 0, a quotient corrects for the rounding of exp(x) and of 1 + x; torch's exporter leaves it.


def exp_minus_one(x: Any) -> Any:
    """Return exp(x) - 1 of floats."""
    power = onnx_ops.Exp(x)
    above = onnx_ops.Sub(power, like(1.0, x))
    return _near_zero(x, power, onnx_ops.Mul(above, onnx_ops.Div(x, onnx_ops.Log(power))), above)


def log_of_one_plus(x: Any) -> Any:
    """Return log(1 + x) of floats."""
    total = onnx_ops.Add(x, like(1.0, x))
    logarithm = onnx_ops.Log(total)
    corrected = onnx_ops.Mul(logarithm, onnx_ops.Div(x, onnx_ops.Sub(total, like(1.0, x))))
    return _near_zero(x, total, corrected, logarithm)


def _near_zero(x: Any, near_one: Any, corrected: Any, otherwise: Any) -> Any:
    one = like(1.0, x)
    found = onnx_ops.Where(onnx_ops.Equal(near_one, one), x, corrected)
    return onnx_ops.Where(onnx_ops.Less(onnx_ops.Abs(x), one), found, otherwise)


@lower("aten::arange.start_step", replaces=True)
def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **_: Any) -> Any:
    if dtype is None or named_dtype(dtype) != torch.float64:
        return NotImplemented
    limits = [item if isinstance(item, onnx_ir.Value) else double(item) for item in (start, end, step)]
    return onnx_ops.Range(*(cast(item, torch.float64) for item in limits))


def log_softmax(x: Any, axis: int) -> Any:
    """Return log(softmax(x)); ONNX Runtime's node is -inf beside an infinity in float64, where torch's is NaN."""
    if dtype_of(x) != torch.float64:
        return onnx_ops.LogSoftmax(x, axis=axis)
    apart = onnx_ops.Sub(x, onnx_ops.ReduceMax(x, constant([axis])))
    return onnx_ops.Sub(apart, onnx_ops.ReduceLogSum(onnx_ops.Exp(apart), constant([axis])))


@lower("aten::_log_softmax", replaces=True)
def _log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return log_softmax(self, dim) if dtype_of(self) == torch.float64 and self.shape else NotImplemented


@lower("aten::layer_norm", replaces=True)
def _layer_norm(
    input: Any, normalized_shape: Sequence[Any], weight: Any = None, bias: Any = None, eps: float = 1e-05, **_: Any
) -> Any:
    # The epsilon of ONNX's LayerNormalization is float32, and ONNX Runtime's takes no tensor without elements.
    if dtype_of(input) != torch.float64 and 0 not in input.shape:
        return NotImplemented
    axes = constant([-1 - index for index in range(len(normalized_shape))])
    centred = onnx_ops.Sub(input, onnx_ops.ReduceMean(input, axes))
    variance = onnx_ops.ReduceMean(onnx_ops.Mul(centred, centred), axes)
    result = onnx_ops.Div(centred, onnx_ops.Sqrt(onnx_ops.Add(variance, like(eps, input))))
    result = result if weight is None else onnx_ops.Mul(result, weight)
    return result if bias is None else onnx_ops.Add(result, bias)
