"""Copies of an input in which other elements stand at given places, or are reduced into what is there."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._arrays import axis_of
from ._declarations import Index, Real, RealOrBool, first_spec
from .reductions import UFUNCS, identity_of


@onnx_op("pyops::Put")
def put(
    input: NDArray[RealOrBool],
    index: NDArray[np.int64],
    source: NDArray[RealOrBool],
    *,
    accumulate: bool = False,
) -> NDArray[RealOrBool]:
    """Replace elements of the input at flat indices.

    As ``torch.put(input, index, source, accumulate)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    index : array of int64
        Any shape: places in the input row by row, -1 the last.
    source : array of the dtype of `input`
        As many elements as `index`.
    accumulate : bool
        Whether they are added to what is there. Otherwise the last one of those for one place counts.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`.

    Raises
    ------
    IndexError
        There is no such place.
    ValueError
        `index` and `source` differ in their number of elements.
    """
    if index.size != source.size:
        raise ValueError(f"Put: index has {index.size} elements and source {source.size}; they go together")
    flat, places, elements = input.flatten(), index.reshape(-1), source.reshape(-1)
    if accumulate:
        with np.errstate(all="ignore"):
            np.add.at(flat, places, elements)
    else:
        flat[places] = elements
    return flat.reshape(input.shape)


@onnx_op("pyops::DiagonalScatter", device_types=("cpu", "cuda"))
def diagonal_scatter(
    input: NDArray[RealOrBool], src: NDArray[RealOrBool], *, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> NDArray[RealOrBool]:
    """Replace a diagonal of two dimensions of the input.

    As ``torch.diagonal_scatter(input, src, offset, dim1, dim2)``.

    Parameters
    ----------
    input : array of real numbers or bool
        At least two dimensions.
    src : array of the dtype of `input`
        Shaped like that diagonal: the other dimensions, and the diagonal as the last.
    offset : int
        Which diagonal: above the main one (0) if it is positive, else below.
    dim1, dim2 : int
        The rows' and the columns' dimension.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`.

    Raises
    ------
    ValueError
        `src` is of another shape, or `dim1` is `dim2`.
    """
    expected = np.diagonal(np.broadcast_to(False, input.shape), offset, dim1, dim2).shape
    if src.shape != expected:
        raise ValueError(f"DiagonalScatter: src is {list(src.shape)} and the diagonal {list(expected)}")
    xp = array_namespace(input)
    result = xp.asarray(input, copy=True)
    places = xp.arange(expected[-1])
    matrices = xp.moveaxis(result, (dim1, dim2), (-2, -1))
    matrices[..., places + max(-offset, 0), places + max(offset, 0)] = src
    return result


@onnx_op("pyops::AsStridedScatter")
def as_strided_scatter(
    input: NDArray[RealOrBool],
    src: NDArray[RealOrBool],
    *,
    size: list[int],
    stride: list[int],
    storage_offset: int | None = None,
) -> NDArray[RealOrBool]:
    """Replace elements of the input at strided places of its memory, which is contiguous here.

    As ``torch.as_strided_scatter(input, src, size, stride, storage_offset)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    src : array of the dtype of `input`
        `size`.
    size, stride : list of int
        By which element (i, j, ...) of `src` goes to place
        ``storage_offset + i * stride[0] + j * stride[1] + ...`` of the input row by row.
    storage_offset : int, optional
        The first place; 0 if absent.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`.

    Raises
    ------
    ValueError
        `src` is not of that size, `stride` has not one number for each of it, or two elements go to one place.
    IndexError
        A place is beyond the input.
    """
    if list(src.shape) != size or len(stride) != len(size):
        raise ValueError(f"AsStridedScatter: src is {list(src.shape)}, size is {size} and stride {stride}")
    if not src.size:
        return input
    # In Python's integers, which do not overflow.
    offset = storage_offset or 0
    reach = [(count - 1) * step for count, step in zip(size, stride, strict=True)]
    first, last = (offset + sum(limit(steps, 0) for steps in reach) for limit in (min, max))
    if not 0 <= first <= last < input.size:
        raise IndexError(
            f"AsStridedScatter: size {size}, stride {stride} and storage_offset {offset} reach from place {first} to "
            f"place {last} of an input of {input.size} elements"
        )
    places = np.array(offset)
    for count, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(count) * step
    if len(np.unique(places)) < places.size:
        raise ValueError(f"AsStridedScatter: size {size} and stride {stride} write to one place twice")
    flat = input.flatten()
    flat[places] = src
    return flat.reshape(input.shape)


@onnx_op("pyops::Resize", device_types=("cpu", "cuda"))
def resize(input: NDArray[RealOrBool], *, size: list[int]) -> NDArray[RealOrBool]:
    """Return the first elements, row by row, in another shape, which may have more or fewer elements.

    As ``torch.Tensor.resize_(*size)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    size : list of int
        The shape.

    Returns
    -------
    array of the dtype of `input`
        `size`. Elements for which the input has none are 0; torch leaves them uninitialised.

    Raises
    ------
    ValueError
        A size is negative.
    """
    xp = array_namespace(input)
    kept = input.reshape(-1)[: math.prod(size)]
    return xp.concat([kept, xp.zeros(math.prod(size) - kept.size, dtype=input.dtype)]).reshape(size)


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


for _op in (put, diagonal_scatter, as_strided_scatter, index_reduce, scatter_reduce):
    _op.register_shape_inference(first_spec)


@resize.register_shape_inference
def _(input: TensorSpec, *, size: list[int]) -> TensorSpec:
    return input.like(shape=size)


def _reduce_at(op: str, x: Any, where: list[Any], source: Any, axis: int, reduce: str, include_self: bool) -> Any:
    index, size = where[axis], x.shape[axis]
    if index.size and not 0 <= index.min() <= index.max() < size:
        wrong = index.min() if index.min() < 0 else index.max()
        raise IndexError(f"{op}: index has {wrong}, and the dimension {size} elements, which count from 0")
    reduce, places = reduce.removeprefix("a"), tuple(where)
    result = x.copy()
    with np.errstate(all="ignore"):
        if not include_self:
            result[places] = identity_of(reduce, x.dtype)
        UFUNCS[reduce].at(result, places, source)
        if reduce != "mean":
            return result
        counts = np.full(x.shape, int(include_self))
        np.add.at(counts, places, 1)
        divide = np.floor_divide if x.dtype.kind in "iu" else np.true_divide
        return divide(result, np.maximum(counts, 1)).astype(x.dtype)
