"""Where values belong in sorted sequences.

Each value is searched for by halving, as torch does it, so that NaNs and sequences that are not sorted give its
result, too: all values take each step together.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec
from pyops.errors import ShapeInferenceError

from ._arrays import differ
from ._declarations import Real


@onnx_op("pyops::Searchsorted", device_types=("cpu", "cuda"))
def searchsorted(
    sorted_sequence: NDArray[Real],
    input: NDArray[Real],
    sorter: NDArray[np.int64] | None = None,
    *,
    right: bool = False,
    side: Literal["left", "right"] | None = None,
) -> NDArray[np.int64]:
    """Find the index in a sorted sequence before which each value can stand.

    As ``torch.searchsorted(sorted_sequence, input, right=right, side=side, sorter=sorter)``; with
    ``out_int32`` the result is cast.

    Parameters
    ----------
    sorted_sequence : array of real numbers
        (..., n), each row in ascending order; or (n,) for all values.
    input : array of the dtype of `sorted_sequence`
        (..., m), with the leading dimensions of `sorted_sequence`; any shape where that is (n,).
    sorter : array of int64, optional
        Shaped like `sorted_sequence`: the indices that sort each row, where they are not sorted.
    right : bool
        False: the first place, before all elements that are not less than the value. True: the last
        one, before the first element that is greater.
    side : str, optional
        ``"left"`` and ``"right"`` say the same in words.

    Returns
    -------
    array of int64
        Shaped like `input`, from 0 to n. NaN is greater than everything.

    Raises
    ------
    ShapeInferenceError
        The shapes of sequences and values do not match.
    ValueError
        `sorter` is of another shape than the sequences, or `side` and `right` contradict each other.
    IndexError
        `sorter` has an index that is none.
    """
    xp = array_namespace(sorted_sequence)
    if side == "left" and right:
        raise ValueError('Searchsorted: side is "left" and right is True; give one of the two')
    _check_shapes(sorted_sequence.shape, input.shape)
    sequence = sorted_sequence
    if sorter is not None:
        if sorter.shape != sequence.shape:
            raise ValueError(
                f"Searchsorted: sorter is {list(sorter.shape)} and the sequence {list(sequence.shape)}; it is as "
                "argsort(dim=-1) gives it"
            )
        size = sequence.shape[-1]
        if sorter.size and not 0 <= int(sorter.min()) <= int(sorter.max()) < size:
            raise IndexError(f"Searchsorted: sorter has an index that is not within 0 and {size - 1}")
        sequence = xp.take_along_axis(sequence, sorter, axis=-1)
    return _search(sequence, input, right or side == "right")


@onnx_op("pyops::Bucketize", device_types=("cpu", "cuda"))
def bucketize(input: NDArray[Real], boundaries: NDArray[Real], *, right: bool = False) -> NDArray[np.int64]:
    """Find the bucket that each value falls into.

    As ``torch.bucketize(input, boundaries, right=right)``; with ``out_int32`` the result is cast.

    Parameters
    ----------
    input : array of real numbers
        Any shape.
    boundaries : array of the dtype of `input`
        (n,), in ascending order.
    right : bool
        Whether a bucket begins with its lower boundary, and not behind it.

    Returns
    -------
    array of int64
        Shaped like `input`, from 0 to n. NaN is greater than everything.

    Raises
    ------
    ShapeInferenceError
        `boundaries` has other than one dimension.
    """
    _check_boundaries(boundaries.shape)
    return _search(boundaries, input, right)


def _search(rows: Any, values: Any, right: bool) -> Any:
    """Search (..., n) rows for (..., m) values, or one row (n,) for any values."""
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
        # Where the search has ended, the middle may be behind the last one.
        found = xp.take_along_axis(rows, xp.minimum(middle, size - 1), axis=-1)
        behind = (begin < end) & ~(found > values if right else found >= values)
        end = xp.where(behind, end, xp.where(begin < end, middle, end))
        begin = xp.where(behind, middle + 1, begin)
    return begin


def _check_shapes(sequence: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    if not sequence:
        raise ShapeInferenceError("Searchsorted: the sorted sequence is a scalar; it has at least one dimension")
    if len(sequence) > 1 and (len(sequence) != len(values) or any(map(differ, sequence[:-1], values[:-1]))):
        raise ShapeInferenceError(
            f"Searchsorted: the sequences are {list(sequence)} and the values {list(values)}; all dimensions but the "
            "last have to be equal, or the sequence has just one"
        )


def _check_boundaries(shape: tuple[Any, ...]) -> None:
    if len(shape) != 1:
        raise ShapeInferenceError(f"Bucketize: boundaries is {list(shape)}; it has one dimension")


@searchsorted.register_shape_inference
def _(sorted_sequence: TensorSpec, input: TensorSpec, sorter: TensorSpec | None = None, **sides: Any) -> TensorSpec:
    _check_shapes(sorted_sequence.shape, input.shape)
    return input.like(dtype=np.int64)


@bucketize.register_shape_inference
def _(input: TensorSpec, boundaries: TensorSpec, **right: Any) -> TensorSpec:
    _check_boundaries(boundaries.shape)
    return input.like(dtype=np.int64)
