"""Type promotion of numbers and graph values, as in torch."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx_ir
import torch

from .._torch.tensors import numpy_dtype, torch_dtype
from .table import constant, onnx_ops


def promote(*values: Any, floating: bool = False) -> list[Any]:
    """Return numbers and graph values as graph values of the element type given by `promoted`."""
    dtype = promoted(*values, floating=floating)
    return [typed_constant(value, dtype) if isinstance(value, (int, float)) else cast(value, dtype) for value in values]


def promoted(*values: Any, floating: bool = False) -> torch.dtype:
    """Return the element type in which torch computes with graph values and numbers.

    A scalar tensor affects it only if it is of a higher kind than the tensors with dimensions: a float among integers,
    an integer among booleans. So does a number among tensors.

    Parameters
    ----------
    floating : bool
        Return torch's default dtype if every argument is an integer.
    """
    tensors = [value for value in values if isinstance(value, onnx_ir.Value)]
    scalars = [dtype_of(value) for value in tensors if value.shape is not None and not len(value.shape)]
    others = [dtype_of(value) for value in tensors if value.shape is None or len(value.shape)]
    numbers = [torch.result_type(value, value) for value in values if isinstance(value, (int, float))]
    dtype = torch.bool
    for level in (others, scalars, numbers):
        found = functools.reduce(torch.promote_types, level, torch.bool)
        dtype = found if _kind(found) > _kind(dtype) else dtype
    return torch.get_default_dtype() if floating and not dtype.is_floating_point else dtype


def _kind(dtype: torch.dtype) -> int:
    return 2 if dtype.is_floating_point else int(dtype != torch.bool)


def cast(value: onnx_ir.Value, dtype: torch.dtype) -> Any:
    """Return a graph value cast to a dtype."""
    if dtype_of(value) == dtype:
        return value
    to = onnx_ir.DataType.from_numpy(numpy_dtype(dtype))
    result: Any = onnx_ops.Cast(value, to=to)
    result.dtype, result.shape = to, value.shape  # torch's own translations read them
    return result


def typed_constant(number: float, dtype: torch.dtype) -> Any:
    """Return a scalar constant of a torch dtype."""
    return constant(np.array(number, numpy_dtype(dtype)))


def dtype_of(value: onnx_ir.Value) -> torch.dtype:
    """Return the torch dtype of a graph value."""
    assert value.dtype is not None  # torch's exporter sets it for every value
    return torch_dtype(value.dtype.numpy())


def named_dtype(dtype: Any) -> torch.dtype:
    """Return the torch dtype of a dtype argument, which torch's exporter passes as ONNX's enum."""
    return dtype if isinstance(dtype, torch.dtype) else torch_dtype(onnx_ir.DataType(dtype).numpy())
