"""Arguments as torch takes them: dimensions counted from the end, of scalars too, and numbers that come as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyops._schema.specs import Dim
from pyops.errors import ShapeInferenceError


def axis_of(dim: int, ndim: int) -> int:
    """`dim`, from 0 to `ndim` - 1, or a ShapeInferenceError; a scalar has the dimensions 0 and -1."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise ShapeInferenceError(f"dim is {dim} for {ndim} dimensions; it is within {-count} and {count - 1}")
    return dim % count


def axes_of(dims: Sequence[int], ndim: int) -> tuple[int, ...]:
    """`dims`, each from 0 to `ndim` - 1 and named once, or a ShapeInferenceError; none is all of them."""
    axes = tuple(axis_of(dim, ndim) for dim in dims or range(max(ndim, 1)))
    if len(set(axes)) < len(axes):
        raise ShapeInferenceError(f"dim is {list(axes)}; each dimension is reduced once")
    return axes


def reduced_shape(shape: Sequence[Dim], dims: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    """What is left of a shape when dimensions are reduced; none reduces all."""
    axes = axes_of(dims, len(shape))
    if keepdim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def differ(one: Dim, other: Dim) -> bool:
    """Whether two sizes are known to be different."""
    return isinstance(one, int) and isinstance(other, int) and one != other


def scalar(name: str, x: Any) -> Any:
    """The one number of an array, as a number of Python's; a ValueError that names it if there are none or several."""
    if x.size != 1:
        raise ValueError(f"{name} is {list(x.shape)}; it is one number")
    return x.reshape(()).item()
