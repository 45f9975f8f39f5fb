"""Lowering of pooling, padding and transposed convolutions that ONNX Runtime or torch's exporter does not support.

ONNX Runtime rejects a transposed convolution whose output padding is as large as a stride.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pyops.kernels import pooling

from .._torch_private.exporter import own_translation
from .table import constant, kernels, lower, onnx_ops


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


@lower("aten::replication_pad1d", replaces=True)
@lower("aten::replication_pad2d", replaces=True)
@lower("aten::replication_pad3d", replaces=True)
def _replication_pad(self: Any, padding: Sequence[Any]) -> Any:
    if not any(isinstance(size, int) and size < 0 for size in padding):
        return NotImplemented
    last = len(self.shape) - 1
    for back, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        self = _extended(self, last - back, before, after)
    return self


@lower("aten::pad", replaces=True)
def _pad(self: Any, pad: Sequence[Any], mode: str = "constant", value: float | None = None) -> Any:
    return _replication_pad(self, pad) if mode == "replicate" else NotImplemented


def _extended(x: Any, axis: int, before: Any, after: Any) -> Any:
    """Return the values from `before` positions ahead of the first to `after` past the last; edges are repeated."""
    size = onnx_ops.Gather(onnx_ops.Shape(x), constant(axis))
    end = onnx_ops.Add(size, after)
    positions = onnx_ops.Range(onnx_ops.Neg(_scalar(before)), end, constant(1))
    return onnx_ops.Gather(x, onnx_ops.Clip(positions, constant(0), onnx_ops.Sub(size, constant(1))), axis=axis)


def _scalar(size: Any) -> Any:
    return constant(size) if isinstance(size, int) else size


def _spread(numbers: Sequence[int], rank: int) -> list[int] | None:
    """Return `numbers` as one number per dimension, or None if there are none; torch accepts a single one for all."""
    return (list(numbers) * rank)[:rank] or None


def _avg_pool(rank: int) -> Callable[..., Any]:
    def translation(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] | None = None,
        padding: Sequence[int] | int | None = None,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        # ONNX's AveragePool has every argument but divisor_override.
        if divisor_override is None:
            return NotImplemented
        return kernels.AvgPool(
            self,
            kernel_size=_spread(kernel_size, rank),
            stride=_spread(stride or (), rank),
            padding=_spread([padding] if isinstance(padding, int) else padding or (), rank),
            ceil_mode=ceil_mode,
            divisor_override=divisor_override,
        )

    return translation


lower("aten::_adaptive_avg_pool3d")(pooling.adaptive_avg_pool)
for _rank in (2, 3):
    lower(f"aten::avg_pool{_rank}d", replaces=True)(_avg_pool(_rank))
    lower(f"aten::adaptive_max_pool{_rank}d")(pooling.adaptive_max_pool)
    lower(f"aten::fractional_max_pool{_rank}d")(pooling.fractional_max_pool)
