"""Searches by value: elements, their positions, and where values belong in sorted sequences."""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import onnx_op
from ..errors import ShapeInferenceError
from ..shapes import TensorSpec, new_dim
from ._arrays import axis_of, differ
from ._declarations import Real, RealOrBool


@onnx_op("pyops::Searchsorted", device_types=("cpu", "cuda"))
def searchsorted(
    sorted_sequence: NDArray[Real],
    input: NDArray[Real],
    sorter: NDArray[np.int64] | None = None,
    *,
    right: bool = False,
) -> NDArray[np.int64]:
    """Find the index in a sorted sequence before which each value can be inserted.

    As ``torch.searchsorted(sorted_sequence, input, right=right, sorter=sorter)``, and for one sequence as
    ``torch.bucketize(input, sorted_sequence, right=right)``; with ``out_int32`` the result is cast.

    Parameters
    ----------
    sorted_sequence : array of real numbers
        (..., n), each row in ascending order; or (n,) for all values.
    input : array of the dtype of `sorted_sequence`
        (..., m), with the leading dimensions of `sorted_sequence`; any shape where that is (n,).
    sorter : array of int64, optional
        Shaped like `sorted_sequence`: the indices that sort each row, if they are not sorted.
    right : bool
        False: the first such index, of the first element that is not less than the value. True: the last one, of the
        first element that is greater.

    Returns
    -------
    array of int64
        Shaped like `input`, from 0 to n. NaN is greater than everything.

    Raises
    ------
    ShapeInferenceError
        The shapes of sequences and values do not match.
    ValueError
        `sorter` does not have the shape of the sequences.
    IndexError
        `sorter` has an index that is out of range.
    """
    _check_shapes(sorted_sequence.shape, input.shape)
    sequence = sorted_sequence
    if sorter is not None:
        if sorter.shape != sequence.shape:
            raise ValueError(f"Searchsorted: sorter has shape {list(sorter.shape)}; it must be {list(sequence.shape)}")
        sequence = array_namespace(sequence).take_along_axis(sequence, sorter, axis=-1)
    return _search(sequence, input, right)


def _search(rows: Any, values: Any, right: bool) -> Any:
    """Search (..., n) rows for (..., m) values, or one row (n,) for any values.

    By binary search, step by step as in torch, so that NaNs and unsorted sequences give torch's results, too. All
    values take each step together.
    """
    if rows.ndim == 1:
        return _search(rows[None], values.reshape(1, -1), right).reshape(values.shape)
    xp = array_namespace(rows)
    begin = xp.zeros(values.shape, dtype=np.int64)
    size = rows.shape[-1]
    if not size or not values.size:
        return begin
    end = xp.full(values.shape, size, dtype=np.int64)
    for _ in range(size.bit_length()):
        middle = (begin + end) >> 1
        # Where the search has ended, the middle may be beyond the last element.
        found = xp.take_along_axis(rows, xp.minimum(middle, size - 1), axis=-1)
        behind = (begin < end) & ~(found > values if right else found >= values)
        end = xp.where(behind, end, xp.where(begin < end, middle, end))
        begin = xp.where(behind, middle + 1, begin)
    return begin


def _check_shapes(sequence: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    if not sequence:
        raise ShapeInferenceError("Searchsorted: the sorted sequence is a scalar; it must have at least one dimension")
    if len(sequence) > 1 and (len(sequence) != len(values) or any(map(differ, sequence[:-1], values[:-1]))):
        raise ShapeInferenceError(
            f"Searchsorted: the sequences have shape {list(sequence)} and the values {list(values)}; all dimensions "
            "but the last must be equal, unless there is a single sequence"
        )


@searchsorted.register_shape_inference
def _(sorted_sequence: TensorSpec, input: TensorSpec, sorter: TensorSpec | None = None, **right: Any) -> TensorSpec:
    _check_shapes(sorted_sequence.shape, input.shape)
    return input.like(dtype=np.int64)


@onnx_op("pyops::NonzeroStatic", device_types=("cpu", "cuda"))
def nonzero_static(input: NDArray[RealOrBool], *, size: int, fill_value: int = -1) -> NDArray[np.int64]:
    """Return the indices of a fixed number of elements that are not zero, the first ones.

    As ``torch.nonzero_static(input, size=size, fill_value=fill_value)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    size : int
        The number of elements.
    fill_value : int
        The value of the indices where there are fewer such elements.

    Returns
    -------
    array of int64
        (`size`, number of dimensions), the last index changing fastest. NaN is not zero.

    Raises
    ------
    ValueError
        `size` is negative.
    """
    if size < 0:
        raise ValueError(f"NonzeroStatic: size is {size}; it must be at least 0")
    xp = array_namespace(input)
    found = xp.argwhere(input).astype(np.int64)[:size]
    return xp.concat([found, xp.full((size - len(found), input.ndim), fill_value, dtype=np.int64)])


@onnx_op("pyops::OneHot", device_types=("cpu", "cuda"))
def one_hot(input: NDArray[np.int64], *, num_classes: int = -1) -> NDArray[np.int64]:
    """Return 1 at the index of each class, and 0 elsewhere.

    As ``torch.nn.functional.one_hot(tensor, num_classes)``.

    Parameters
    ----------
    input : array of int64
        Any shape: classes from 0 on.
    num_classes : int
        The number of classes; -1 means one more than the largest of `input`.

    Returns
    -------
    array of int64
        (*input.shape, number of classes).

    Raises
    ------
    ValueError
        A class is negative or not below `num_classes`, or that is -1 and `input` is empty.
    """
    xp = array_namespace(input)
    if num_classes == -1 and not input.size:
        raise ValueError("OneHot: the input is empty, so num_classes must be at least 0; it is -1")
    count = int(input.max()) + 1 if num_classes == -1 else num_classes
    if input.size and not 0 <= int(input.min()) <= int(input.max()) < count:
        raise ValueError(
            f"OneHot: the classes go from {int(input.min())} to {int(input.max())}; they must be at least 0 and "
            f"below num_classes, which is {count}"
        )
    return (input[..., None] == xp.arange(count)).astype(np.int64)


@nonzero_static.register_shape_inference
def _(input: TensorSpec, *, size: int, **fill_value: int) -> TensorSpec:
    return input.like(shape=(size, input.ndim), dtype=np.int64)


@one_hot.register_shape_inference
def _(input: TensorSpec, *, num_classes: int = -1) -> TensorSpec:
    return input.like(shape=(*input.shape, new_dim() if num_classes < 0 else num_classes))


class Unique(NamedTuple, Generic[RealOrBool]):
    """Outputs of `unique_consecutive`."""

    output: NDArray[RealOrBool]
    inverse_indices: NDArray[np.int64]
    counts: NDArray[np.int64]


@onnx_op("pyops::UniqueConsecutive")
def unique_consecutive(
    input: NDArray[RealOrBool], *, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Unique[RealOrBool]:
    """Keep the first of each run of equal elements that follow each other.

    As ``torch.unique_consecutive(input, return_inverse, return_counts, dim)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    return_inverse, return_counts : bool
        Whether to compute `inverse_indices` and `counts`; they are empty otherwise.
    dim : int, optional
        The dimension whose slices are compared; all elements, row by row, if it is absent.

    Returns
    -------
    output : array of the dtype of `input`
        (number kept,), or with `dim` shaped like `input` except in that dimension. No NaN equals another; slices
        without elements do.
    inverse_indices : array of int64
        Shaped like `input`, or with `dim` (its size,): the index in `output` of each element or slice.
    counts : array of int64
        (number kept,): the length of each run.

    Raises
    ------
    ValueError
        There is no such dimension.
    """
    if dim is None:
        kept, inverse, counts = _runs(input.reshape(-1, 1))
        output, inverse = input.reshape(-1)[kept], inverse.reshape(input.shape)
    else:
        axis = axis_of(dim, input.ndim)
        slices = np.moveaxis(input, axis, 0)
        kept, inverse, counts = _runs(slices.reshape(len(slices), math.prod(slices.shape[1:])))
        output = np.compress(kept, input, axis)
    nothing = np.zeros(0, np.int64)
    return Unique(output, inverse if return_inverse else nothing, counts if return_counts else nothing)


def _runs(rows: Any) -> tuple[Any, Any, Any]:
    """Return which rows differ from the one before, the number of such rows up to each, and the runs' lengths."""
    kept = np.ones(len(rows), bool)
    kept[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    counts = np.diff(np.flatnonzero(kept), append=len(rows))
    return kept, np.cumsum(kept, dtype=np.int64) - 1, counts.astype(np.int64)


@unique_consecutive.register_shape_inference
def _(
    input: TensorSpec, *, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    count = new_dim()
    kept: tuple[Any, ...] = (count,)
    inverse = input.shape
    if dim is not None:
        axis = axis_of(dim, input.ndim)
        kept, inverse = (*input.shape[:axis], count, *input.shape[axis + 1 :]), (input.shape[axis],)
    indices = input.like(shape=inverse if return_inverse else (0,), dtype=np.int64)
    return input.like(shape=kept), indices, indices.like(shape=(count if return_counts else 0,))
