"""Lowering of scaled dot product attention on tensors that are not 4-D, to ONNX's own nodes."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir

from .table import constant, like, lower, onnx_ops, transposed


@lower("aten::scaled_dot_product_attention", replaces=True)
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    ranks = {len(item.shape) for item in (query, key, value)}
    width = query.shape[-1]
    if ranks == {4} or dropout_p or enable_gqa or not isinstance(width, int):
        return NotImplemented
    factor = like(1 / math.sqrt(width) if scale is None else scale, query)
    scores = onnx_ops.MatMul(onnx_ops.Mul(query, factor), transposed(key))
    least = like(-math.inf, query)
    if is_causal:
        lower_half = onnx_ops.Trilu(onnx_ops.Expand(like(1.0, query), onnx_ops.Shape(scores, start=-2)), upper=0)
        scores = onnx_ops.Where(onnx_ops.Cast(lower_half, to=onnx_ir.DataType.BOOL), scores, least)
    if attn_mask is not None:
        masked = attn_mask.dtype == onnx_ir.DataType.BOOL
        scores = onnx_ops.Where(attn_mask, scores, least) if masked else onnx_ops.Add(scores, attn_mask)
    if not is_causal and attn_mask is None:
        return onnx_ops.MatMul(onnx_ops.Softmax(scores, axis=-1), value)
    # Where everything is masked, torch returns 0, and Softmax alone would give NaN.
    nothing = onnx_ops.Equal(onnx_ops.ReduceMax(scores, constant([-1])), least)
    zero = like(0.0, query)
    weights = onnx_ops.Softmax(onnx_ops.Where(nothing, zero, scores), axis=-1)
    return onnx_ops.MatMul(onnx_ops.Where(nothing, zero, weights), value)
