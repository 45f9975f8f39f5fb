"""Sampling volumes, random numbers of float16, and dropout of all; the rest of these is torch's exporter's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir

from pyops.kernels import sampling

from .table import constant, like, lower, onnx_ops, vector

lower("aten::grid_sampler_3d")(sampling.grid_sample)


@lower("aten::rand", replaces=True)
def _rand(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    if dtype != onnx_ir.DataType.FLOAT16:
        return NotImplemented
    # ONNX Runtime draws none of float16, and rounding to it would give 1. Torch draws from these too.
    steps = onnx_ops.Floor(onnx_ops.Mul(_drawn(onnx_ops.RandomUniformLike, size), constant(np.float32(2**11))))
    return onnx_ops.Cast(onnx_ops.Div(steps, constant(np.float32(2**11))), to=dtype)


@lower("aten::randn", replaces=True)
def _randn(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    if dtype != onnx_ir.DataType.FLOAT16:
        return NotImplemented
    return onnx_ops.Cast(_drawn(onnx_ops.RandomNormalLike, size), to=dtype)


@lower("aten::native_dropout", replaces=True)
def _dropout(input: Any, p: float, train: bool | None) -> Any:
    if p != 1 or train is False:
        return NotImplemented
    # ONNX Runtime does not drop everything; torch keeps NaN.
    kept = onnx_ops.Expand(constant(False), onnx_ops.Shape(input))
    return onnx_ops.Mul(input, like(0.0, input)), kept


def _drawn(like: Callable[..., Any], size: Any) -> Any:
    return like(onnx_ops.ConstantOfShape(vector(size)), dtype=onnx_ir.DataType.FLOAT)
