"""Lowering of batch normalization to ONNX's own nodes.

In training mode torch's exporter normalizes by the wrong statistics; in evaluation mode it returns batch statistics
where torch returns none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from .._torch.operators import find_overload
from .._torch_private.exporter import own_translation
from .table import constant, like, lower, onnx_ops

# torch normalizes other types in float32 and returns float32 statistics, which is left to its exporter.
_WIDE = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.DOUBLE)


@lower("aten::_native_batch_norm_legit.no_stats", replaces=True)
def _without_statistics(input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    return _trained(input, weight, bias, eps)[:3] if training and input.dtype in _WIDE else NotImplemented


@lower("aten::native_batch_norm", replaces=True)
def _native(input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, *rest: Any) -> Any:
    return _without_statistics(input, weight, bias, *rest)


@lower("aten::_native_batch_norm_legit_functional", replaces=True)
def _functional(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if input.dtype not in _WIDE:
        return NotImplemented
    if not training:
        target = find_overload("aten::_native_batch_norm_legit_functional")
        own = target and own_translation(target)
        if own is None:
            return NotImplemented
        normalized, _, _, *running = own(input, weight, bias, running_mean, running_var, training, momentum, eps)
        nothing = np.empty(0, input.dtype.numpy())
        return normalized, constant(nothing), constant(nothing), *running
    normalized, mean, inverse, variance = _trained(input, weight, bias, eps)
    count = onnx_ops.Div(onnx_ops.Size(input), onnx_ops.Size(mean))
    unbiased = onnx_ops.Div(
        onnx_ops.Mul(variance, onnx_ops.CastLike(count, input)),
        onnx_ops.CastLike(onnx_ops.Sub(count, constant(1)), input),
    )
    moved = (_moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum))
    return normalized, mean, inverse, *moved


def _trained(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """Return the values normalized by batch statistics; and mean, inverse standard deviation, variance per channel."""
    rank = len(x.shape)
    axes = constant([axis for axis in range(rank) if axis != 1])
    mean = onnx_ops.ReduceMean(x, axes)
    centred = onnx_ops.Sub(x, mean)
    variance = onnx_ops.ReduceMean(onnx_ops.Mul(centred, centred), axes)
    inverse = onnx_ops.Reciprocal(onnx_ops.Sqrt(onnx_ops.Add(variance, like(eps, x))))
    normalized = _scaled(onnx_ops.Mul(centred, inverse), weight, bias, rank)
    flat = [onnx_ops.Reshape(item, constant([-1])) for item in (mean, inverse, variance)]
    return normalized, *flat


def _scaled(x: Any, weight: Any, bias: Any, rank: int) -> Any:
    if weight is not None:
        x = onnx_ops.Mul(x, _per_channel(weight, rank))
    return x if bias is None else onnx_ops.Add(x, _per_channel(bias, rank))


def _per_channel(values: Any, rank: int) -> Any:
    return onnx_ops.Reshape(values, constant([-1] + [1] * (rank - 2)))


def _moved(running: Any, now: Any, momentum: float) -> Any:
    kept = onnx_ops.Mul(running, like(1 - momentum, running))
    return onnx_ops.Add(kept, onnx_ops.Mul(onnx_ops.CastLike(now, running), like(momentum, running)))
