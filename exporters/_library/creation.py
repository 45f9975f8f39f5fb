"""Lowering of new tensors: complex constants, for which torch's exporter emits ONNX's complex types; random float16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from .operands import Pairs, constant, named_dtype, onnx_ops, typed_constant, vector
from .row_table import lower

_PARTS: dict[Any, type[np.floating[Any]]] = {
    torch.complex64: np.float32,
    torch.complex128: np.float64,
    onnx_ir.DataType.COMPLEX64: np.float32,  # torch's exporter passes a dtype argument as ONNX's enum
    onnx_ir.DataType.COMPLEX128: np.float64,
}


def _filled(number: int) -> Callable[..., Any]:
    """Return a translation to a complex tensor of one number, which an argument `fill_value` replaces."""

    def translation(
        self: Any = None, size: Sequence[Any] | None = None, fill_value: Any = number, dtype: Any = None, **_: Any
    ) -> Any:
        if dtype is None and self is None and isinstance(fill_value, complex):
            dtype = torch.get_default_dtype().to_complex()
        if dtype is None and isinstance(self, Pairs):
            assert self.value.dtype is not None
            part: Any = self.value.dtype.numpy()
        else:
            part = _PARTS.get(dtype)
        if part is None or isinstance(fill_value, onnx_ir.Value):
            return NotImplemented
        if size is not None:
            shape = vector([*size, 2])
        elif isinstance(self, Pairs):
            shape = onnx_ops.Shape(self.value)
        else:
            shape = onnx_ops.Concat(onnx_ops.Shape(self), constant([2]), axis=0)
        return onnx_ops.Expand(constant(np.array([fill_value.real, fill_value.imag], part)), shape)

    return translation


lower("aten::empty.memory_format", replaces=True)(_filled(0))
for _name, _number in {"zeros": 0, "ones": 1, "full": 0}.items():
    lower(f"aten::{_name}", replaces=True)(_filled(_number))
    lower(f"aten::new_{_name}", replaces=True, takes_complex=True)(_filled(_number))
    lower(f"aten::{_name}_like", replaces=True, takes_complex=True)(_filled(_number))


@lower("aten::scalar_tensor", replaces=True)
def _scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    if isinstance(s, onnx_ir.Value):
        return NotImplemented
    is_rounded = torch.tensor(s).half().item() != s
    takes = dtype == onnx_ir.DataType.FLOAT16 or (dtype == onnx_ir.DataType.FLOAT and is_rounded)
    if takes and device is None:  # a number in another call
        result = typed_constant(torch.tensor(s).to(named_dtype(dtype)).item(), named_dtype(dtype))
        result.meta["number"] = s  # with which torch computes, before it rounds
        return result
    return _filled(0)(size=(), fill_value=s, dtype=dtype)


@lower("aten::rand.default", replaces=True)
def _rand(size: Any, *, dtype: Any = None, **_: Any) -> Any:
    if dtype != onnx_ir.DataType.FLOAT16:
        return NotImplemented
    # ONNX Runtime draws no float16 numbers, and rounding a float32 could give 1. torch also draws multiples of 2**-11.
    steps = onnx_ops.Floor(onnx_ops.Mul(_drawn(onnx_ops.RandomUniformLike, size), constant(np.float32(2**11))))
    return onnx_ops.Cast(onnx_ops.Div(steps, constant(np.float32(2**11))), to=dtype)


@lower("aten::randn.default", replaces=True)
def _randn(size: Any, *, dtype: Any = None, **_: Any) -> Any:
    if dtype != onnx_ir.DataType.FLOAT16:
        return NotImplemented
    return onnx_ops.Cast(_drawn(onnx_ops.RandomNormalLike, size), to=dtype)


def _drawn(like: Callable[..., Any], size: Any) -> Any:
    return like(onnx_ops.ConstantOfShape(vector(size)), dtype=onnx_ir.DataType.FLOAT)
