"""Lowering of functions of float64 numbers that torch's exporter, or ONNX Runtime, computes only for float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir

from .complex_numbers import asinh_of_real, hyperbolic
from .elementwise import atan2, of_doubles
from .operands import kernels, onnx_ops
from .precision import double
from .row_table import lower


def _doubled(x: Any) -> Any:
    x.dtype = onnx_ir.DataType.DOUBLE  # the functions of other modules read it
    return x


def _other_leg(x: Any) -> Any:
    """Return sqrt(1 - x**2)."""
    return _doubled(onnx_ops.Sqrt(onnx_ops.Mul(double(1) - x, double(1) + x)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tan": lambda self: onnx_ops.Div(onnx_ops.Sin(self), onnx_ops.Cos(self)),
    "atan": lambda self: atan2(self, double(1)),
    "acos": lambda self: atan2(_other_leg(self), self),
    "asin": lambda self: atan2(self, _other_leg(self)),
    "sinh": lambda self: onnx_ops.Mul(onnx_ops.Tanh(self), hyperbolic(self)[1]),
    "cosh": lambda self: hyperbolic(self)[1],
    "asinh": asinh_of_real,
    "isinf": onnx_ops.IsInf,
    "erf": kernels.Erf,
    "log2": lambda self: onnx_ops.Div(onnx_ops.Log(self), double(math.log(2))),
    "log10": lambda self: onnx_ops.Div(onnx_ops.Log(self), double(math.log(10))),
    "atanh": lambda self: asinh_of_real(_doubled(onnx_ops.Div(self, _other_leg(self)))),
}


for _name, _function in FUNCTIONS.items():
    lower(f"aten::{_name}", replaces=True)(of_doubles(_function))
