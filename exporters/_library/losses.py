"""Lowering of losses, to nodes of ONNX where a formula gives them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir
import torch.nn.modules.linear_cross_entropy  # defines its operators

from .operands import constant, dtype_of, kernels, like, onnx_ops, promote, transposed
from .precision import log_softmax
from .row_table import lower

_NONE, _MEAN, _SUM = 0, 1, 2


@lower("aten::ctc_loss.Tensor")
@lower("aten::ctc_loss.IntList")
def _ctc(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, **given: Any) -> Any:
    lengths = (
        onnx_ops.Cast(item, to=onnx_ir.DataType.INT64) if isinstance(item, onnx_ir.Value) else constant(list(item))
        for item in (input_lengths, target_lengths)
    )
    return kernels.CtcLoss(log_probs, targets, *lengths, **given)


@lower("aten::cross_entropy_loss", replaces=True)
def _cross_entropy(
    self: Any, target: Any, weight: Any = None, reduction: int = _MEAN, label_smoothing: float = 0.0, **given: Any
) -> Any:
    """Lower what SoftmaxCrossEntropyLoss cannot: probabilities, smoothing, no batch, and infinity in float64."""
    rank = len(self.shape)
    of_classes = len(target.shape) < rank
    if of_classes and rank > 1 and not label_smoothing and dtype_of(self) != torch.float64:
        return NotImplemented
    return _loss(self, target, weight, reduction, label_smoothing, **given)


@lower("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def _linear_cross_entropy(
    input: Any, linear_weight: Any, target: Any, linear_bias: Any, weight: Any, ignore_index: int, **_: Any
) -> Any:
    return _loss(_linear(input, linear_weight, linear_bias), target, weight, _NONE, 0.0, ignore_index)


@lower("torch_nn::_linear_cross_entropy_batch_chunked")
def _linear_cross_entropy_and_gradients(
    input: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any,
    weight: Any,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    **given: Any,
) -> Any:
    logits = _linear(input, linear_weight, linear_bias)
    code = ("none", "mean", "sum").index(reduction)
    loss = _loss(logits, target, weight, code, label_smoothing, ignore_index)
    # Gradients that were not requested are empty. The others are NaN, since only a backward pass reads them.
    ranks = {"compute_input_grad": 2, "compute_linear_weight_grad": 2, "compute_linear_bias_grad": 1}
    return loss, *(like(np.full((int(given[name]),) * rank, np.nan), input) for name, rank in ranks.items())


@lower("aten::multilabel_margin_loss_forward", replaces=True)
def _multilabel_margin(self: Any, target: Any, reduction: int) -> Any:
    """Lower the loss in which targets end at the first negative one; torch's decomposition counts the others, too."""
    if not len(self.shape):  # one class, as in a vector of one
        x, of_vector = (onnx_ops.Unsqueeze(item, constant([0])) for item in (self, target))
        x.shape = onnx_ir.Shape([1])
        loss, is_target = _multilabel_margin(x, of_vector, reduction)
        return loss, onnx_ops.Squeeze(is_target, constant([0]))
    ended = onnx_ops.CumSum(onnx_ops.Cast(target < like(0, target), to=onnx_ir.DataType.INT32), constant(-1))
    valid = onnx_ops.Equal(ended, like(0, ended))
    of_target = onnx_ops.GatherElements(self, onnx_ops.Where(valid, target, like(0, target)), axis=-1)
    valid, target, of_target = (onnx_ops.Unsqueeze(item, constant([-1])) for item in (valid, target, of_target))
    count = _size(self, -1)
    hits = onnx_ops.And(valid, onnx_ops.Equal(target, onnx_ops.Range(constant(0), count, constant(1))))
    is_target = onnx_ops.ReduceMax(onnx_ops.CastLike(hits, self), constant([-2]), keepdims=0)
    zero = like(0.0, self)
    others = onnx_ops.Where(is_target > zero, like(-math.inf, self), self)
    margins = like(1.0, self) - of_target + onnx_ops.Unsqueeze(others, constant([-2]))
    counted = onnx_ops.Where(onnx_ops.And(valid, margins > zero), margins, zero)
    losses = onnx_ops.ReduceSum(counted, constant([-2, -1]), keepdims=0) / onnx_ops.CastLike(count, self)
    return _reduced(losses, onnx_ops.CastLike(onnx_ops.Size(losses), losses), reduction), is_target


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    product = onnx_ops.MatMul(x, transposed(weight))
    logits = product if bias is None else product + bias
    logits.dtype, logits.shape = x.dtype, onnx_ir.Shape([None, None])
    return logits


def _loss(x: Any, target: Any, weight: Any, reduction: int, label_smoothing: float, ignore_index: int = -100) -> Any:
    """Return the loss of a whole batch; torch computes some in chunks only to save memory."""
    if len(target.shape) == len(x.shape):
        return _of_probabilities(x, target, weight, reduction, label_smoothing)
    return _of_classes(x, target, weight, reduction, label_smoothing, ignore_index)


def _of_probabilities(x: Any, target: Any, weight: Any, reduction: int, smoothing: float) -> Any:
    rank = len(x.shape)
    axis = min(1, rank - 1)
    logarithms = log_softmax(x, axis)
    logarithms.dtype = x.dtype
    logarithms, target, *weights = promote(logarithms, target, *([] if weight is None else [weight]))
    if smoothing:
        share = like(smoothing, target) / onnx_ops.CastLike(_size(x, axis), target)
        target = target * like(1 - smoothing, target) + share
    terms = _weighted(logarithms, weights[0] if weights else None, rank) * target
    losses = -onnx_ops.ReduceSum(terms, constant([axis]), keepdims=0)
    count = onnx_ops.Size(losses)
    if not isinstance(x.shape[axis], int) or not x.shape[axis]:
        count *= onnx_ops.Sign(_size(x, axis))  # without classes, torch divides by 0
    return _reduced(losses, onnx_ops.CastLike(count, losses), reduction)


def _of_classes(x: Any, target: Any, weight: Any, reduction: int, smoothing: float, ignore_index: int) -> Any:
    rank = len(x.shape)
    axis = min(1, rank - 1)
    zero = like(0.0, x)
    logarithms = log_softmax(x, axis)
    counted = onnx_ops.Not(onnx_ops.Equal(target, like(ignore_index, target)))
    known = onnx_ops.Where(counted, target, like(0, target))
    places = onnx_ops.Unsqueeze(known, constant([axis]))
    found = onnx_ops.Squeeze(onnx_ops.GatherElements(logarithms, places, axis=axis), constant([axis]))
    one = like(1.0, x)
    weights = onnx_ops.Where(counted, one if weight is None else onnx_ops.Gather(weight, known), zero)
    losses = onnx_ops.Where(counted, -(found * weights), zero)
    if smoothing:
        sums = onnx_ops.ReduceSum(_weighted(logarithms, weight, rank), constant([axis]), keepdims=0)
        uniform = onnx_ops.Where(counted, -sums / onnx_ops.CastLike(_size(x, axis), x), zero)
        losses = losses * like(1 - smoothing, x) + uniform * like(smoothing, x)
    return _reduced(losses, _total(weights), reduction)


def _reduced(losses: Any, count: Any, reduction: int) -> Any:
    if reduction == _NONE:
        return losses
    return _total(losses) if reduction == _SUM else _total(losses) / count


def _weighted(logarithms: Any, weight: Any, rank: int) -> Any:
    if weight is None:
        return logarithms
    return onnx_ops.Mul(logarithms, onnx_ops.Reshape(weight, constant([-1] + [1] * max(rank - 2, 0))))


def _size(x: Any, axis: int) -> Any:
    return onnx_ops.Gather(onnx_ops.Shape(x), constant(axis))


def _total(x: Any) -> Any:
    return onnx_ops.ReduceSum(x, keepdims=0)
