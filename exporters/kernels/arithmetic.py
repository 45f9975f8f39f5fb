"""Arithmetic by other names, of which torch's exporter forgets to promote the arguments, and bytes shifted."""

from __future__ import annotations

from typing import Any

import torch

from .._torch_private.exporter import own_translation
from .promotion import dtype_of, promote, promoted, typed_constant
from .table import lower, onnx_ops


@lower("aten::divide.Tensor", replaces=True)
def _divide(self: Any, other: Any) -> Any:
    return onnx_ops.Div(*promote(self, other, floating=True))


@lower("aten::multiply.Tensor", replaces=True)
def _multiply(self: Any, other: Any) -> Any:
    return onnx_ops.Mul(*promote(self, other)) if _differ(self, other) else NotImplemented


@lower("aten::subtract.Tensor", replaces=True)
def _subtract(self: Any, other: Any, *, alpha: Any = None) -> Any:
    if alpha not in (None, 1) or not _differ(self, other):
        return NotImplemented
    return onnx_ops.Sub(*promote(self, other))


@lower("aten::__lshift__.Scalar", replaces=True)
@lower("aten::bitwise_left_shift", replaces=True)
def _left_shift(self: Any, other: Any) -> Any:
    return _shifted_bytes(self, other, "LEFT")


@lower("aten::__rshift__.Scalar", replaces=True)
@lower("aten::bitwise_right_shift", replaces=True)
def _right_shift(self: Any, other: Any) -> Any:
    return _shifted_bytes(self, other, "RIGHT")


@lower("aten::__lshift__.Tensor")
def _left_shift_of_tensors(self: Any, other: Any) -> Any:
    return _shifted(self, other, "LEFT", torch.ops.aten.bitwise_left_shift.Tensor)


@lower("aten::__rshift__.Tensor")
def _right_shift_of_tensors(self: Any, other: Any) -> Any:
    return _shifted(self, other, "RIGHT", torch.ops.aten.bitwise_right_shift.Tensor)


def _shifted(x: Any, count: Any, direction: str, signed: Any) -> Any:
    result, own = _shifted_bytes(x, count, direction), own_translation(signed)
    return own(*promote(x, count)) if result is NotImplemented and own is not None else result


def _shifted_bytes(x: Any, count: Any, direction: str) -> Any:
    # Torch's exporter makes int8 of them.
    if promoted(x, count) != torch.uint8:
        return NotImplemented
    fixed = isinstance(count, int)
    if fixed:
        count = count if 0 <= count < 8 else 8
    bits, places = promote(x, count)
    shifted = onnx_ops.BitShift(bits, places, direction=direction)
    if fixed and count < 8:
        return shifted
    # ONNX does not say what more places than there are bits give.
    return onnx_ops.Where(
        onnx_ops.Less(places, typed_constant(8, torch.uint8)), shifted, typed_constant(0, torch.uint8)
    )


def _differ(self: Any, other: Any) -> bool:
    if isinstance(other, (int, float)):
        return promoted(self, other) != dtype_of(self)
    return dtype_of(self) != dtype_of(other)
