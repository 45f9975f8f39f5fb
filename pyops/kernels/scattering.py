"""Copies of an input in which elements at given positions are replaced, or reduced with other elements."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import onnx_op
from ._arrays import axis_of
from ._declarations import Index, RealOrBool, first_spec
from .reductions import UFUNCS, identity_of


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
        The new diagonal: the other dimensions, and the diagonal as the last one.
    offset : int
        Which diagonal: 0 is the main one; positive ones are above it, negative ones below.
    dim1, dim2 : int
        The dimensions of the rows and of the columns.

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
        raise ValueError(f"DiagonalScatter: src has shape {list(src.shape)}; the diagonal has {list(expected)}")
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
    """Replace elements of the input at strided positions of its memory, which is contiguous here.

    As ``torch.as_strided_scatter(input, src, size, stride, storage_offset)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    src : array of the dtype of `input`
        Of shape `size`.
    size, stride : list of int
        Element (i, j, ...) of `src` goes to position ``storage_offset + i * stride[0] + j * stride[1] + ...`` of the
        input, counted row by row.
    storage_offset : int, optional
        The first position; 0 if absent.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`.

    Raises
    ------
    ValueError
        `src` does not have the shape `size`, `stride` has another length than `size`, or two elements go to one
        position.
    IndexError
        A position is beyond the input.
    """
    if list(src.shape) != size or len(stride) != len(size):
        raise ValueError(
            f"AsStridedScatter: src has shape {list(src.shape)}; it must be size, which is {size}, and "
            f"stride, which is {stride}, must have as many numbers"
        )
    if not src.size:
        return input
    # In Python's integers, which do not overflow.
    offset = storage_offset or 0
    reach = [(count - 1) * step for count, step in zip(size, stride, strict=True)]
    first, last = (offset + sum(limit(steps, 0) for steps in reach) for limit in (min, max))
    if not 0 <= first <= last < input.size:
        raise IndexError(
            f"AsStridedScatter: size {size}, stride {stride} and storage_offset {offset} reach from position {first} "
            f"to {last} of an input of {input.size} elements"
        )
    places = np.array(offset)
    for count, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(count) * step
    if len(np.unique(places)) < places.size:
        raise ValueError(f"AsStridedScatter: size {size} and stride {stride} write to one position twice")
    flat = input.flatten()
    flat[places] = src
    return flat.reshape(input.shape)


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
    """Reduce elements of a source into the positions of the input that an index gives.

    As ``torch.scatter_reduce(input, dim, index, src, reduce, include_self=include_self)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape; a scalar counts as one element.
    index : array of int32 or int64
        As many dimensions as `input`, none but `dim` larger: for each element of `src` its position along `dim`, from 0
        on.
    src : array of the dtype of `input`
        As many dimensions, none smaller than in `index`; what is beyond those sizes is ignored.
    dim : int
        The dimension of the positions, -1 the last.
    reduce : str
        How elements for the same position are reduced. ``"amax"`` and ``"amin"`` are NaN where one is; means of
        integers are rounded down.
    include_self : bool
        Whether the input's own element is one of them.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`; elements that no index gives are unchanged.

    Raises
    ------
    IndexError
        An index is outside of the input.
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
            f"ScatterReduce: index has shape {list(index.shape)}, the input {list(input.shape)} and src "
            f"{list(src.shape)}; index must not be larger than either, except in the input's dimension {dim}"
        )
    size = whole.shape[axis]
    if not 0 <= places.min() <= places.max() < size:
        wrong = places.min() if places.min() < 0 else places.max()
        raise IndexError(f"ScatterReduce: index has {wrong}; it must be from 0 to {size - 1} in dimension {dim}")
    used: Any = tuple(map(slice, places.shape))
    where: Any = tuple(places if i == axis else grid for i, grid in enumerate(np.ogrid[used]))
    operation = reduce.removeprefix("a")
    result = whole.copy()
    with np.errstate(all="ignore"):
        if not include_self:
            result[where] = identity_of(operation, input.dtype)
        UFUNCS[operation].at(result, where, elements[used])
        if reduce == "mean":
            counts = np.full(whole.shape, int(include_self))
            np.add.at(counts, where, 1)
            divide = np.floor_divide if input.dtype.kind in "iu" else np.true_divide
            result = divide(result, np.maximum(counts, 1)).astype(input.dtype)
    return result.reshape(input.shape)


for _op in (diagonal_scatter, as_strided_scatter, scatter_reduce):
    _op.register_shape_inference(first_spec)
