"""Elements that are reduced into the places which indices, or segments, name for them."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec
from pyops.errors import ShapeInferenceError

from ._arrays import axis_of, reduced_ranges
from ._declarations import Float, Index, Real, RealOrBool, first_spec

_UFUNCS = {"sum": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@onnx_op("pyops::IndexReduce")
def index_reduce(
    input: NDArray[Real],
    index: NDArray[Index],
    source: NDArray[Real],
    *,
    dim: int,
    reduce: Literal["prod", "mean", "amax", "amin"],
    include_self: bool = True,
) -> NDArray[Real]:
    """Reduce slices of a source into those slices of the input that an index names.

    As ``torch.index_reduce(input, dim, index, source, reduce, include_self=include_self)``.

    Parameters
    ----------
    input : array of real numbers
        Any shape; a scalar counts as one element.
    index : array of int32 or int64
        (n,), or a scalar for n = 1: for each slice of `source` the slice of `input`, from 0 on.
    source : array of the dtype of `input`
        Shaped like `input`, with n slices along `dim`.
    dim : int
        The dimension of the slices, -1 the last.
    reduce : str
        What becomes of slices for the same one. ``"amax"`` and ``"amin"`` are NaN where one is;
        means of integers are rounded down.
    include_self : bool
        Whether the input's own slice is one of them.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`; slices that no index names are as they were.

    Raises
    ------
    IndexError
        An index is none of the input's.
    ValueError
        The shapes do not match.
    """
    axis: int = axis_of(dim, input.ndim)
    whole: Any = np.atleast_1d(input)
    places, slices = np.atleast_1d(index), np.atleast_1d(source)
    expected = (*whole.shape[:axis], places.size, *whole.shape[axis + 1 :])
    if index.ndim > 1 or slices.shape != expected:
        raise ValueError(
            f"IndexReduce: source is {list(source.shape)}; for an input {list(input.shape)} and an index "
            f"{list(index.shape)} along dimension {dim} it is {list(expected)}"
        )
    where = [slice(None)] * axis + [places]
    return _reduce_at("IndexReduce", whole, where, slices, axis, reduce, include_self).reshape(input.shape)


@onnx_op("pyops::ScatterReduce")
def scatter_reduce(
    input: NDArray[RealOrBool],
    index: NDArray[Index],
    src: NDArray[RealOrBool],
    *,
    dim: int,
    reduce: Literal["sum", "prod", "mean", "amax", "amin"],
    include_self: bool = True,
) -> NDArray[RealOrBool]:
    """Reduce elements of a source into those places of the input that an index names.

    As ``torch.scatter_reduce(input, dim, index, src, reduce, include_self=include_self)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape; a scalar counts as one element.
    index : array of int32 or int64
        As many dimensions as `input`, none but `dim` larger: for each element of `src` its place
        along `dim`, from 0 on.
    src : array of the dtype of `input`
        As many dimensions, none smaller than in `index`; what is beyond that is left out.
    dim : int
        The dimension along which they are placed, -1 the last.
    reduce : str
        What becomes of elements for the same place. ``"amax"`` and ``"amin"`` are NaN where one is;
        means of integers are rounded down.
    include_self : bool
        Whether the input's own element is one of them.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`; elements that no index names are as they were.

    Raises
    ------
    IndexError
        An index is none of the input's.
    ValueError
        The shapes do not match.
    """
    axis: int = axis_of(dim, input.ndim)
    whole: Any = np.atleast_1d(input)
    places, elements = np.atleast_1d(index), np.atleast_1d(src)
    if not places.size:
        return input
    if not whole.ndim == places.ndim == elements.ndim or any(
        count > elements.shape[i] or (i != axis and count > whole.shape[i]) for i, count in enumerate(places.shape)
    ):
        raise ValueError(
            f"ScatterReduce: index is {list(index.shape)}, the input {list(input.shape)} and src {list(src.shape)}; "
            f"index must not be larger than either, but for the input's dimension {dim}"
        )
    used: Any = tuple(map(slice, places.shape))
    where = [*np.ogrid[used]]
    where[axis] = places
    return _reduce_at("ScatterReduce", whole, where, elements[used], axis, reduce, include_self).reshape(input.shape)


@onnx_op("pyops::SegmentReduce")
def segment_reduce(
    data: NDArray[Float],
    lengths: NDArray[Index] | None = None,
    offsets: NDArray[Index] | None = None,
    initial: NDArray[Float] | None = None,
    *,
    reduce: Literal["sum", "mean", "max", "min", "prod"],
    axis: int = 0,
    unsafe: bool = False,
) -> NDArray[Float]:
    """Reduce each segment of a dimension.

    As ``torch.segment_reduce(data, reduce, lengths=lengths, offsets=offsets, axis=axis, initial=initial)``.

    Parameters
    ----------
    data : array of float16, bfloat16, float32 or float64
        At least one dimension.
    lengths : array of int32 or int64, optional
        (*data.shape[:axis], n): how long each segment is.
    offsets : array of the dtype of `lengths`, optional
        (*data.shape[:axis], n + 1): where each one begins, and where the last one ends. One of the
        two is given.
    initial : array of the dtype of `data`, optional
        A scalar with which each segment begins: 0 for sums and means, 1 for products, the infinity
        that loses if it is absent.
    reduce : str
        What becomes of a segment. ``"max"`` and ``"min"`` are NaN where an element is. The mean of a
        segment without elements is `initial`, or NaN.
    axis : int
        The dimension of the segments, which is the last one of `lengths`, or of `offsets`; -1 the last of `data`.
    unsafe : bool
        Whether `lengths` may leave elements over at the end.

    Returns
    -------
    array of the dtype of `data`
        Shaped like `data`, with n elements along `axis`.

    Raises
    ------
    ValueError
        Neither or both are given, or they do not fit `data`.
    """
    axis = _segmented(data.shape, axis)
    counts, begins = _segments(data, lengths, offsets, axis, unsafe)
    if initial is not None and initial.ndim:
        raise ValueError(f"SegmentReduce: initial is {list(initial.shape)}; it is a scalar")
    ufunc, identity = _UFUNCS[reduce], _identity(reduce, data.dtype)
    rows = data.reshape(math.prod(data.shape[: axis + 1]), *data.shape[axis + 1 :])
    starts = (begins + np.arange(len(begins))[:, None] * data.shape[axis]).reshape(-1)
    result = reduced_ranges(ufunc, rows, 0, starts, starts + counts.reshape(-1), identity)
    with np.errstate(all="ignore"):
        result = ufunc(result, result.dtype.type(identity) if initial is None else initial)
        if reduce == "mean":
            divisors = counts.reshape(-1, *[1] * (rows.ndim - 1))
            empty = np.nan if initial is None else result
            result = np.where(divisors == 0, empty, result / np.maximum(divisors, 1)).astype(data.dtype)
    return result.reshape(*data.shape[:axis], counts.shape[-1], *data.shape[axis + 1 :])


def _reduce_at(op: str, x: Any, where: list[Any], source: Any, axis: int, reduce: str, include_self: bool) -> Any:
    index, size = where[axis], x.shape[axis]
    if index.size and not 0 <= index.min() <= index.max() < size:
        wrong = index.min() if index.min() < 0 else index.max()
        raise IndexError(f"{op}: index has {wrong}, and the dimension {size} elements, which count from 0")
    reduce, places = reduce.removeprefix("a"), tuple(where)
    result = x.copy()
    with np.errstate(all="ignore"):
        if not include_self:
            result[places] = _identity(reduce, x.dtype)
        _UFUNCS[reduce].at(result, places, source)
        if reduce != "mean":
            return result
        counts = np.full(x.shape, int(include_self))
        np.add.at(counts, places, 1)
        divide = np.floor_divide if x.dtype.kind in "iu" else np.true_divide
        return divide(result, np.maximum(counts, 1)).astype(x.dtype)


def _identity(reduce: str, dtype: np.dtype[Any]) -> Any:
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.kind == "b":
        return reduce == "min"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if reduce == "max" else np.iinfo(dtype).max
    return -np.inf if reduce == "max" else np.inf


def _segmented(shape: tuple[Any, ...], axis: int) -> int:
    if not shape:
        raise ShapeInferenceError("SegmentReduce: the data are a scalar; they have at least one dimension")
    return axis_of(axis, len(shape))


def _segments(data: Any, lengths: Any, offsets: Any, axis: int, unsafe: bool) -> tuple[Any, Any]:
    """Return each segment's length and beginning, in one row for each place of the dimensions before."""
    given = lengths if offsets is None else offsets
    if (lengths is None) == (offsets is None):
        raise ValueError("SegmentReduce: give either lengths or offsets")
    if given.ndim != axis + 1 or given.shape[:axis] != data.shape[:axis]:
        raise ValueError(
            f"SegmentReduce: lengths or offsets are {list(given.shape)} and the data {list(data.shape)}; their "
            f"dimensions before axis, which is {axis}, are equal, and it is their last"
        )
    rows = given.reshape(math.prod(given.shape[:-1]), given.shape[-1]).astype(np.int64)
    size = data.shape[axis]
    counts, begins = (rows, np.cumsum(rows, 1) - rows) if offsets is None else (np.diff(rows), rows[:, :-1])
    if (counts < 0).any() or (begins < 0).any() or (begins + counts > size).any():
        raise ValueError(f"SegmentReduce: a segment is not within the {size} elements of axis {axis}")
    if offsets is None and not unsafe and (counts.sum(1) != size).any():
        raise ValueError(
            f"SegmentReduce: the lengths of a row do not sum to {size}, the elements of axis {axis}; "
            "make them, or pass unsafe=True"
        )
    return counts, begins


index_reduce.register_shape_inference(first_spec)
scatter_reduce.register_shape_inference(first_spec)


@segment_reduce.register_shape_inference
def _(data: TensorSpec, lengths: Any = None, offsets: Any = None, *_: Any, axis: int = 0, **others: Any) -> TensorSpec:
    axis = _segmented(data.shape, axis)
    count = offsets.shape[-1] - 1 if offsets is not None else lengths.shape[-1] if lengths is not None else 0
    return data.like(shape=(*data.shape[:axis], count, *data.shape[axis + 1 :]))
