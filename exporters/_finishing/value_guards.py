"""Guards in exported models: standard nodes that raise an error if a specialized value differs in a run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from pyops._tolerances import TOLERANCES

from .._library.operands import cast, constant, dtype_of, onnx_ops
from .._lowering.translations import register_translation
from .._torch.private.operators import OpOverload, called_overload
from .._torch.tensors import numpy_dtype

_NAME = "pyops_guard::guard"
_NO_AXIS = 1000  # more than a tensor can have


@torch.library.custom_op(_NAME, mutates_args=())
def _in_torch(x: torch.Tensor, asked: torch.Tensor, kind: str, expected: str, line: str) -> torch.Tensor:
    """Return x: a captured program has the value of the example."""
    return x.clone()


@_in_torch.register_fake
def _(x: torch.Tensor, asked: torch.Tensor, kind: str, expected: str, line: str) -> torch.Tensor:
    return torch.empty_like(x)


def guard() -> OpOverload:
    """Return the torch operator by which a captured graph guards a value.

    It takes the tensor that it returns, the tensor that Python code asked for, the kind of the decision, the
    specialized value in JSON, and the line of the code.
    """
    found = called_overload(torch.ops.pyops_guard.guard)
    assert found is not None
    return found


@register_translation(_NAME)
def _(x: Any, asked: Any, kind: str, expected: str, line: str) -> Any:
    # Every runtime checks an axis, on the CPU, which cannot be said of the indices of Gather. No optimizer knows that
    # the axis is 0, and neither node copies the tensor.
    axis = onnx_ops.Mul(_violated(asked, kind, json.loads(expected)), constant([_NO_AXIS]))
    expanded = onnx_ops.Unsqueeze(x, axis)
    short = expected if len(expected) <= _LONGEST else f"{expected[: _LONGEST - 3]}..."
    expanded.producer().name = f"expected {_KINDS[kind]} {short} as in the export, {line}"
    return onnx_ops.Squeeze(expanded, constant([0]))


_KINDS = {"branch": "the condition", "number": "the number", "size": "the shape", "values": "the tensor"}
_LONGEST = 100


def _violated(asked: Any, kind: str, expected: Any) -> Any:
    """Return an int64 tensor of one element, which is 0 if a tensor has the expected truth, shape or values."""
    if kind == "size":
        return onnx_ops.ReduceMax(onnx_ops.Abs(onnx_ops.Sub(onnx_ops.Shape(asked), constant(expected))))
    dtype = torch.bool if kind == "branch" else dtype_of(asked)
    wanted = np.array(expected, numpy_dtype(dtype)).reshape(-1)
    if not wanted.size:
        return constant([0])
    flat = onnx_ops.Reshape(asked, constant([-1]))
    flat.dtype = asked.dtype
    if dtype.is_floating_point:
        wrong = _differs(cast(flat, torch.float64), wanted.astype(np.float64), *TOLERANCES[wanted.dtype.name])
    elif kind == "branch":
        wrong = onnx_ops.Xor(cast(flat, torch.bool), constant(wanted))
    else:
        wrong = onnx_ops.Not(onnx_ops.Equal(cast(flat, torch.int64), constant(wanted.astype(np.int64))))
    return onnx_ops.ReduceMax(onnx_ops.Cast(wrong, to=7))


def _differs(x: Any, expected: Any, rtol: float, atol: float) -> Any:
    """Return where x differs by more than what ONNX Runtime and torch may round differently."""
    is_nan = np.isnan(expected)
    allowed = np.where(np.isfinite(expected), atol + rtol * np.abs(expected), -1.0)
    distance = onnx_ops.Abs(onnx_ops.Sub(x, constant(expected)))
    right = onnx_ops.Or(onnx_ops.Equal(x, constant(expected)), onnx_ops.LessOrEqual(distance, constant(allowed)))
    if is_nan.any():
        right = onnx_ops.Or(right, onnx_ops.And(onnx_ops.IsNaN(x), constant(is_nan)))
    return onnx_ops.Not(right)
