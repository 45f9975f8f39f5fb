"""Complex tensors in operators that treat real and imaginary parts alike, such as those that move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir
import torch

from .promotion import typed_constant
from .table import Pairs, onnx_ops


def by_parts(emit: Callable[..., Any], *values: Any) -> Any:
    """What nodes make of values, or if they are complex of their real and of their imaginary parts, in pairs.

    Parameters
    ----------
    emit : callable
        Takes one graph value for each of `values` and returns one.
    *values : onnx_ir.Value or Pairs
        All real or all complex.

    Returns
    -------
    onnx_ir.Value
        NotImplemented where some are real and some complex.
    """
    if not any(isinstance(value, Pairs) for value in values):
        return emit(*values)
    if not all(isinstance(value, Pairs) for value in values):
        return NotImplemented
    last = onnx_ops.Constant(value_ints=[-1])
    parts = (emit(*(_part(value.value, index) for value in values)) for index in (0, 1))
    return onnx_ops.Concat(*(onnx_ops.Unsqueeze(part, last) for part in parts), axis=-1)


def _part(pairs: onnx_ir.Value, index: int) -> Any:
    part = onnx_ops.Gather(pairs, typed_constant(index, torch.int64), axis=-1)
    part.dtype = pairs.dtype  # ops are asked for the types that they take
    return part
