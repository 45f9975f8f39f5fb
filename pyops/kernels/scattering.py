"""Copies of an input in which other elements stand at given places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import Dim, TensorSpec

from ._arrays import axis_of
from ._declarations import RealOrBool


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
    if index.size and not -input.size <= int(index.min()) <= int(index.max()) < input.size:
        raise IndexError(f"Put: index has one that is none of an input of {input.size} elements")
    flat = input.flatten()
    if accumulate:
        with np.errstate(all="ignore"):
            np.add.at(flat, index.reshape(-1), source.reshape(-1))
    else:
        flat[index.reshape(-1)] = source.reshape(-1)
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
    expected = _diagonal_shape(input.shape, offset, dim1, dim2)
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
    # In Python's integers, which do not overflow.
    reach = [(count - 1) * step for count, step in zip(size, stride, strict=True)]
    first = (storage_offset or 0) + sum(min(steps, 0) for steps in reach)
    last = (storage_offset or 0) + sum(max(steps, 0) for steps in reach)
    if src.size and not 0 <= first <= last < input.size:
        raise IndexError(
            f"AsStridedScatter: size {size}, stride {stride} and storage_offset {storage_offset or 0} reach from place "
            f"{first} to place {last} of an input of {input.size} elements"
        )
    if not src.size:
        return input
    places = np.array(storage_offset or 0)
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
    if any(count < 0 for count in size):
        raise ValueError(f"Resize: size is {size}; sizes are from 0 on")
    xp = array_namespace(input)
    kept = input.reshape(-1)[: math.prod(size)]
    return xp.concat([kept, xp.zeros(math.prod(size) - kept.size, dtype=input.dtype)]).reshape(size)


def _diagonal_shape(shape: Sequence[Dim], offset: int, dim1: int, dim2: int) -> tuple[Dim, ...]:
    axes = axis_of(dim1, len(shape)), axis_of(dim2, len(shape))
    if len(shape) < 2 or axes[0] == axes[1]:
        raise ValueError(f"DiagonalScatter: dim1={dim1} and dim2={dim2} of {list(shape)} are not two dimensions")
    rows, columns = (shape[axis] for axis in axes)
    length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    return (*(size for axis, size in enumerate(shape) if axis not in axes), length)


@put.register_shape_inference
@diagonal_scatter.register_shape_inference
@as_strided_scatter.register_shape_inference
def _(input: TensorSpec, *written: TensorSpec, **places: Any) -> TensorSpec:
    return input


@resize.register_shape_inference
def _(input: TensorSpec, *, size: list[int]) -> TensorSpec:
    return input.like(shape=size)
