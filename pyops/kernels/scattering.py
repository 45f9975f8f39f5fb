"""Copies of an input in which other elements stand at given places."""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._declarations import RealOrBool, first_spec


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


for _op in (put, diagonal_scatter, as_strided_scatter):
    _op.register_shape_inference(first_spec)


@resize.register_shape_inference
def _(input: TensorSpec, *, size: list[int]) -> TensorSpec:
    return input.like(shape=size)
