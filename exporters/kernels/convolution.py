"""Transposed convolutions with an output padding as large as a stride, which ONNX Runtime refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._torch_private.exporter import own_translation
from .table import constant, lower, onnx_ops


@lower("aten::convolution", replaces=True)
def _convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    own = own_translation(torch.ops.aten.convolution.default)
    if own is None or not transposed or all(more < step for more, step in zip(output_padding, stride, strict=False)):
        return NotImplemented
    none = [0] * len(stride)
    whole = own(input, weight, None, stride, none, dilation, transposed, none, groups)
    others = [0] * (len(input.shape) - len(stride))
    begins = [-size for size in padding]
    ends = [more - size for more, size in zip(output_padding, padding, strict=True)]
    padded = onnx_ops.Pad(whole, constant([*others, *begins, *others, *ends]))
    return padded if bias is None else onnx_ops.Add(padded, onnx_ops.Reshape(bias, constant([-1] + [1] * len(stride))))
