"""Products of vectors, and sums of products, in ONNX's own nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir
import torch

from .._torch_private.exporter import own_translation
from ..tensors import numpy_dtype
from .promotion import cast, dtype_of
from .table import lower, onnx_ops


@lower("aten::cross", replaces=True)
def _cross(self: Any, other: Any, dim: int | None = None) -> Any:
    # Unless told, torch takes the first dimension of three elements, and its exporter the last dimension.
    own = own_translation(torch.ops.aten.linalg_cross.default)
    first = list(self.shape).index(3)
    if dim is not None or own is None or first == len(self.shape) - 1:
        return NotImplemented
    return own(self, other, dim=first)


@lower("aten::einsum", replaces=True)
def _einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> Any:
    # ONNX Runtime has few types of integers, and torch's exporter forgets that sums of them are int64.
    dtype = dtype_of(tensors[0])
    if dtype.is_floating_point or dtype == torch.int64:
        return NotImplemented
    shapes = [[1 if size == 1 else 2 for size in item.shape] for item in tensors]
    result = torch.einsum(equation, [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]).dtype
    if result == dtype == torch.int32:
        return NotImplemented
    total = onnx_ops.Einsum(*(cast(item, torch.int64) for item in tensors), equation=equation)
    return total if result == torch.int64 else onnx_ops.Cast(total, to=onnx_ir.DataType.from_numpy(numpy_dtype(result)))
