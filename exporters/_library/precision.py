"""Lowering of functions that torch's exporter, or ONNX Runtime, computes with fewer digits than torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir
import torch

from .table import lower
from .values import by_torch, cast, constant, dtype_of, like, named_dtype, onnx_ops, promote, typed_constant


def _cast_first(name: str) -> Callable[..., Any]:
    """Return a translation that casts the argument; torch's exporter casts the result."""

    def translation(self: Any, dim: int, dtype: Any = None) -> Any:
        return NotImplemented if dtype is None else by_torch(name, cast(self, named_dtype(dtype)), dim)

    return translation


lower("aten::softmax.int", replaces=True)(_cast_first("aten::softmax.int"))
lower("aten::log_softmax.int", replaces=True)(_cast_first("aten::log_softmax.int"))


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


@lower("aten::sinc", replaces=True)
def _sinc(self: Any) -> Any:
    if dtype_of(self) != torch.float64:
        return NotImplemented
    angle = onnx_ops.Mul(self, double(math.pi))
    return onnx_ops.Where(onnx_ops.Equal(self, double(0)), double(1), onnx_ops.Div(onnx_ops.Sin(angle), angle))


def gelu_by_tanh(x: Any) -> Any:
    """Return the approximation of GELU of float64 numbers."""
    cube = onnx_ops.Mul(onnx_ops.Mul(x, x), x)
    inner = onnx_ops.Mul(double(math.sqrt(2 / math.pi)), onnx_ops.Add(x, onnx_ops.Mul(double(0.044715), cube)))
    return onnx_ops.Mul(onnx_ops.Mul(double(0.5), x), onnx_ops.Add(onnx_ops.Tanh(inner), double(1)))


def _add_scaled(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return a translation that scales in the type of the tensors; torch's exporter rounds the scale to float32."""

    def translation(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
        start, first, second = promote(self, tensor1, tensor2)
        if dtype_of(start) != torch.float64:
            return NotImplemented
        return onnx_ops.Add(start, combine(onnx_ops.Mul(double(value), first), second))

    return translation


lower("aten::addcmul", replaces=True)(_add_scaled(onnx_ops.Mul))
lower("aten::addcdiv", replaces=True)(_add_scaled(onnx_ops.Div))


@lower("aten::addmm", replaces=True)
def _addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    # The factors of ONNX's Gemm are float32.
    if dtype_of(self) != torch.float64 or {beta, alpha} == {1}:
        return NotImplemented
    product = onnx_ops.Mul(double(alpha), onnx_ops.MatMul(mat1, mat2))
    return onnx_ops.Add(onnx_ops.Mul(double(beta), self), product) if beta else product


@lower("aten::arange.start_step", replaces=True)
def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **_: Any) -> Any:
    if dtype is None or named_dtype(dtype) != torch.float64:
        return NotImplemented
    limits = [item if isinstance(item, onnx_ir.Value) else double(item) for item in (start, end, step)]
    return onnx_ops.Range(*(cast(item, torch.float64) for item in limits))


@lower("aten::layer_norm", replaces=True)
def _layer_norm(
    input: Any, normalized_shape: Sequence[Any], weight: Any = None, bias: Any = None, eps: float = 1e-05, **_: Any
) -> Any:
    if dtype_of(input) != torch.float64:
        return NotImplemented
    axes = constant([-1 - index for index in range(len(normalized_shape))])
    centred = onnx_ops.Sub(input, onnx_ops.ReduceMean(input, axes))
    variance = onnx_ops.ReduceMean(onnx_ops.Mul(centred, centred), axes)
    result = onnx_ops.Div(centred, onnx_ops.Sqrt(onnx_ops.Add(variance, double(eps))))
    result = result if weight is None else onnx_ops.Mul(result, weight)
    return result if bias is None else onnx_ops.Add(result, bias)
