"""Padding with the values at the border where other borders are cut: ONNX's Pad refuses to cut all there was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .table import constant, lower, onnx_ops


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
    """The values at these positions, of which those outside count as the nearest inside."""
    size = onnx_ops.Gather(onnx_ops.Shape(x), constant(axis))
    end = onnx_ops.Add(size, after)
    positions = onnx_ops.Range(onnx_ops.Neg(_scalar(before)), end, constant(1))
    return onnx_ops.Gather(x, onnx_ops.Clip(positions, constant(0), onnx_ops.Sub(size, constant(1))), axis=axis)


def _scalar(size: Any) -> Any:
    return constant(size) if isinstance(size, int) else size
