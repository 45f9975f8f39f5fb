"""Views of a tensor: the tensor itself, and that without or with more of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir

from .table import Pairs, constant, lower, onnx_ops, vector


@lower("prims::view_of", takes_complex=True)
def _view_of(a: Any) -> Any:
    return onnx_ops.Identity(a.value if isinstance(a, Pairs) else a)


# A dimension that is dynamic is not of size 1 to torch.export, which settles the ranks of all values.


@lower("aten::squeeze.dim", replaces=True)
def _squeeze_dim(self: Any, dim: int) -> Any:
    # Torch's exporter takes for granted that it is of size 1.
    return NotImplemented if not len(self.shape) or self.shape[dim] == 1 else onnx_ops.Identity(self)


@lower("aten::squeeze.dims")
def _squeeze_dims(self: Any, dim: Sequence[int]) -> Any:
    axes = sorted({item % len(self.shape) for item in dim if self.shape[item] == 1}) if len(self.shape) else []
    return onnx_ops.Squeeze(self, constant(axes)) if axes else onnx_ops.Identity(self)


@lower("aten::expand", replaces=True)
def _expand(self: Any, size: Sequence[Any], *, implicit: bool = False) -> Any:
    # A size that data tells may be -1, for the tensor's own, which is ONNX's 1.
    if all(isinstance(item, int) or _is_of_shapes(item) for item in size):
        return NotImplemented
    return onnx_ops.Expand(self, onnx_ops.Abs(vector(size)))


def _is_of_shapes(size: onnx_ir.Value) -> bool:
    """Whether a size is computed from those of tensors alone."""
    node = size.producer()
    return node is not None and (
        node.op_type in ("Shape", "Size", "Constant") or all(map(_is_of_shapes, filter(None, node.inputs)))
    )
