"""Elements or slices without those that equal another one."""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec, new_dim
from pyops.errors import ShapeInferenceError

from ._arguments import axis_of
from ._element_types import RealOrBool


class Unique(NamedTuple, Generic[RealOrBool]):
    """What is unique, where it went, and how often it was there."""

    output: NDArray[RealOrBool]
    inverse_indices: NDArray[np.int64]
    counts: NDArray[np.int64]


@onnx_op("pyops::UniqueConsecutive")
def unique_consecutive(
    input: NDArray[RealOrBool], *, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Unique[RealOrBool]:
    """The first of each run of equal elements that follow each other.

    As ``torch.unique_consecutive(input, return_inverse, return_counts, dim)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    return_inverse, return_counts : bool
        Whether to compute them; they are empty otherwise.
    dim : int, optional
        The dimension whose slices are compared; all elements, row by row, if it is absent.

    Returns
    -------
    output : array of the dtype of `input`
        (number kept,), or with `dim` shaped like `input` but for that dimension. No NaN equals another.
    inverse_indices : array of int64
        Shaped like `input`, or with `dim` (size of it,): the index in `output` that stands for each.
    counts : array of int64
        (number kept,): how many each one stands for.

    Raises
    ------
    ShapeInferenceError
        Slices without elements are to be compared, or there is no such dimension.
    """
    if dim is None:
        kept, inverse, counts = _runs(input.reshape(-1, 1))
        output, inverse = input.reshape(-1)[kept], inverse.reshape(input.shape)
    else:
        axis = _slices_of(input.shape, dim)
        slices = np.moveaxis(input, axis, 0)
        kept, inverse, counts = _runs(slices.reshape(len(slices), math.prod(slices.shape[1:])))
        output = np.compress(kept, input, axis)
    nothing = np.zeros(0, np.int64)
    return Unique(output, inverse if return_inverse else nothing, counts if return_counts else nothing)


def _runs(rows: Any) -> tuple[Any, Any, Any]:
    """Which rows differ from the one before, the number of such rows up to each, and the lengths of the runs."""
    kept = np.ones(len(rows), bool)
    kept[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    counts = np.diff(np.flatnonzero(kept), append=len(rows))
    return kept, np.cumsum(kept, dtype=np.int64) - 1, counts.astype(np.int64)


def _slices_of(shape: tuple[Any, ...], dim: int) -> int:
    if not shape:
        raise ShapeInferenceError(f"UniqueConsecutive: dim is {dim} and the input a scalar, which has no dimensions")
    axis = axis_of(dim, len(shape))
    if any(isinstance(size, int) and not size for position, size in enumerate(shape) if position != axis):
        raise ShapeInferenceError(
            f"UniqueConsecutive: slices of {list(shape)} along dimension {dim} have no elements to compare"
        )
    return axis


@unique_consecutive.register_shape_inference
def _(
    input: TensorSpec, *, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    count = new_dim()
    kept: tuple[Any, ...] = (count,)
    inverse = input.shape
    if dim is not None:
        axis = _slices_of(input.shape, dim)
        kept, inverse = (*input.shape[:axis], count, *input.shape[axis + 1 :]), (input.shape[axis],)
    indices = input.like(shape=inverse if return_inverse else (0,), dtype=np.int64)
    return input.like(shape=kept), indices, indices.like(shape=(count if return_counts else 0,))
