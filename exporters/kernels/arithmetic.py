"""Other names of arithmetic operators: torch's exporter promotes the arguments of div, and forgets those of divide."""

from __future__ import annotations

from typing import Any

from .promotion import dtype_of, promote, promoted
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


def _differ(self: Any, other: Any) -> bool:
    if isinstance(other, (int, float)):
        return promoted(self, other) != dtype_of(self)
    return dtype_of(self) != dtype_of(other)
