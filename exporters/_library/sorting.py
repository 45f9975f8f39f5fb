"""Lowering of sorting, with NaN above everything as in torch; ONNX does not define where TopK puts a NaN."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir
import torch

from .._torch_private.exporter import own_translation
from .promotion import cast, dtype_of, typed_constant
from .table import constant, lower, onnx_ops

# Wider types, with room for infinity and NaN above the largest number; and uint8 because ONNX Runtime does not sort
# booleans.
_KEYS = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.bool: torch.uint8,
}


@lower("aten::topk", replaces=True)
def _topk(self: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not len(self.shape):
        return onnx_ops.Identity(self), typed_constant(0, torch.int64)
    if not _is_keyed(self):
        return NotImplemented
    count = constant([k]) if isinstance(k, int) else onnx_ops.Reshape(k, constant([1]))
    return _first(self, count, axis=dim, largest=int(largest), sorted=int(sorted))


@lower("aten::sort", replaces=True)
def _sort(self: Any, dim: int = -1, descending: bool = False) -> Any:
    if not len(self.shape) or not _is_keyed(self):
        return NotImplemented
    return _first(self, _size(self, dim), axis=dim, largest=int(descending))


@lower("aten::sort.stable")
def _stable_sort(self: Any, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    # TopK is stable: of equal elements, it puts the lower index first.
    result = _sort(self, dim, descending)
    own = own_translation(torch.ops.aten.sort.default)
    return own(self, dim, descending) if result is NotImplemented and own is not None else result


def _is_keyed(x: Any) -> bool:
    return dtype_of(x) in (torch.float64, *_KEYS)


def _first(x: Any, count: Any, *, axis: int, **order: int) -> Any:
    """Return the first elements in an order, and their indices, of a tensor that is not a scalar."""
    if dtype_of(x) == torch.float64:
        indices = _places_of_doubles(x, count, axis=axis, **order)
    else:
        _, indices = onnx_ops.TopK(_key(x), count, axis=axis, **order)
    return onnx_ops.GatherElements(x, indices, axis=axis), indices


def _key(x: Any) -> Any:
    """Return numbers of a wider type that sort in torch's order."""
    dtype = dtype_of(x)
    wide = cast(x, _KEYS[dtype])
    if not dtype.is_floating_point:
        return wide
    # Infinity becomes a large finite number, so that NaN can become infinity.
    large = typed_constant(2 * torch.finfo(dtype).max, _KEYS[dtype])
    return onnx_ops.Where(onnx_ops.IsNaN(x), typed_constant(math.inf, _KEYS[dtype]), onnx_ops.Min(wide, large))


def _places_of_doubles(x: Any, count: Any, *, axis: int, largest: int, sorted: int = 1) -> Any:
    """Return the indices of the first elements of a float64 tensor, with NaN above infinity.

    NaN are moved to one end first, and a second, stable sort treats them as infinite.
    """
    flags = onnx_ops.Cast(onnx_ops.IsNaN(x), to=onnx_ir.DataType.UINT8)
    _, apart = onnx_ops.TopK(flags, _size(x, axis), axis=axis, largest=largest)
    ordered = onnx_ops.GatherElements(x, apart, axis=axis)
    key = onnx_ops.Where(onnx_ops.IsNaN(ordered), typed_constant(math.inf, torch.float64), ordered)
    _, places = onnx_ops.TopK(key, count, axis=axis, largest=largest, sorted=sorted)
    return onnx_ops.GatherElements(apart, places, axis=axis)


def _size(x: Any, axis: int) -> Any:
    size = x.shape[axis]
    return constant([size]) if isinstance(size, int) else onnx_ops.Gather(onnx_ops.Shape(x), constant([axis]), axis=0)
