"""Lowering of complex constants to pairs, where torch's exporter emits ONNX's complex types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from .table import Pairs, constant, lower, onnx_ops, vector

_PARTS: dict[Any, type[np.floating[Any]]] = {
    torch.complex64: np.float32,
    torch.complex128: np.float64,
    onnx_ir.DataType.COMPLEX64: np.float32,  # torch's exporter passes a dtype argument as ONNX's enum
    onnx_ir.DataType.COMPLEX128: np.float64,
}


@lower("aten::zeros", replaces=True)
@lower("aten::empty.memory_format", replaces=True)
def _zeros(size: Sequence[Any], *, dtype: Any = None, **_: Any) -> Any:
    return _filled(size, 0, dtype)


@lower("aten::ones", replaces=True)
def _ones(size: Sequence[Any], *, dtype: Any = None, **_: Any) -> Any:
    return _filled(size, 1, dtype)


@lower("aten::full", replaces=True)
def _full(size: Sequence[Any], fill_value: Any, *, dtype: Any = None, **_: Any) -> Any:
    if dtype is None and isinstance(fill_value, complex):
        dtype = torch.get_default_dtype().to_complex()
    return _filled(size, fill_value, dtype)


@lower("aten::new_zeros", replaces=True, takes_complex=True)
def _new_zeros(self: Any, size: Sequence[Any], *, dtype: Any = None, **_: Any) -> Any:
    return _filled(size, 0, dtype, self)


@lower("aten::new_ones", replaces=True, takes_complex=True)
def _new_ones(self: Any, size: Sequence[Any], *, dtype: Any = None, **_: Any) -> Any:
    return _filled(size, 1, dtype, self)


@lower("aten::new_full", replaces=True, takes_complex=True)
def _new_full(self: Any, size: Sequence[Any], fill_value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _filled(size, fill_value, dtype, self)


@lower("aten::zeros_like", replaces=True, takes_complex=True)
def _zeros_like(self: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _filled(None, 0, dtype, self)


@lower("aten::ones_like", replaces=True, takes_complex=True)
def _ones_like(self: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _filled(None, 1, dtype, self)


@lower("aten::full_like", replaces=True, takes_complex=True)
def _full_like(self: Any, fill_value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _filled(None, fill_value, dtype, self)


def _filled(size: Sequence[Any] | None, number: Any, dtype: Any, like: Any = None) -> Any:
    """Return a complex tensor of one number, with the dtype and size of `like` where they are not given."""
    if isinstance(like, Pairs) and dtype is None:
        assert like.value.dtype is not None
        part: Any = like.value.dtype.numpy()
    else:
        part = _PARTS.get(dtype)
    if part is None or isinstance(number, onnx_ir.Value):
        return NotImplemented
    if size is not None:
        shape = vector([*size, 2])
    elif isinstance(like, Pairs):
        shape = onnx_ops.Shape(like.value)
    else:
        shape = onnx_ops.Concat(onnx_ops.Shape(like), constant([2]), axis=0)
    return onnx_ops.Expand(constant(np.array([number.real, number.imag], part)), shape)
