"""Arguments as torch takes them: dimensions counted from the end, of scalars too, and numbers that come as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyops._schema.specs import Dim
from pyops.errors import ShapeInferenceError


def axis_of(dim: int, ndim: int) -> int:
    """Return `dim` counted from 0, or raise a ShapeInferenceError; a scalar has the dimensions 0 and -1."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise ShapeInferenceError(f"dim is {dim} for {ndim} dimensions; it is within {-count} and {count - 1}")
    return dim % count


def axes_of(dims: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return `dims` counted from 0, all of them if none is given; a ShapeInferenceError if one is named twice."""
    axes = tuple(axis_of(dim, ndim) for dim in dims or range(max(ndim, 1)))
    if len(set(axes)) < len(axes):
        raise ShapeInferenceError(f"dim is {list(axes)}; each dimension is reduced once")
    return axes


def reduced_shape(shape: Sequence[Dim], dims: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    """Return the shape that is left when dimensions are reduced, which are all if none is given."""
    axes = axes_of(dims, len(shape))
    if keepdim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def differ(one: Dim, other: Dim) -> bool:
    """Return whether two sizes are known to be different."""
    return isinstance(one, int) and isinstance(other, int) and one != other


def scalar(name: str, x: Any) -> Any:
    """Return the only number of an array as one of Python's; a ValueError with its name if there is not exactly one."""
    if x.size != 1:
        raise ValueError(f"{name} is {list(x.shape)}; it is one number")
    return x.reshape(()).item()
