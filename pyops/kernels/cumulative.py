"""Results of all elements up to each, along a dimension."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops.decorator import onnx_op
from pyops.shapes import Spec

from ._axes import axis_of
from ._element_types import Real, RealOrBool


class Running(NamedTuple, Generic[RealOrBool]):
    """The extreme element so far, and its position along the dimension."""

    values: NDArray[RealOrBool]
    indices: NDArray[np.int64]


@onnx_op("pyops::Cummax")
def cummax(input: NDArray[RealOrBool], *, dim: int) -> Running[RealOrBool]:
    """Give the largest element so far along a dimension, and its index.

    ``torch.cummax(input, dim)``.

    Parameters
    ----------
    input
        Any shape; a scalar counts as one element.
    dim
        The dimension to go along, -1 the last.

    Returns
    -------
    values
        Shaped like `input`. NaN from the first NaN on.
    indices
        Shaped like `input`: of the last one so far among equal elements, and among NaNs.
    """
    return _running(np.maximum, input, dim)


@onnx_op("pyops::Cummin")
def cummin(input: NDArray[RealOrBool], *, dim: int) -> Running[RealOrBool]:
    """Give the smallest element so far along a dimension, and its index.

    ``torch.cummin(input, dim)``.

    Parameters
    ----------
    input
        Any shape; a scalar counts as one element.
    dim
        The dimension to go along, -1 the last.

    Returns
    -------
    values
        Shaped like `input`. NaN from the first NaN on.
    indices
        Shaped like `input`: of the last one so far among equal elements, and among NaNs.
    """
    return _running(np.minimum, input, dim)


@onnx_op("pyops::Cumprod")
def cumprod(input: NDArray[Real], *, dim: int) -> NDArray[Real]:
    """Give the product of all elements so far along a dimension.

    ``torch.cumprod(input, dim)``, but for its dtypes: torch's result of integers is int64, so that
    they are int64 before they come here.

    Parameters
    ----------
    input
        Any shape; a scalar counts as one element.
    dim
        The dimension to go along, -1 the last.

    Returns
    -------
    NDArray
        Shaped like `input`. Products of float32 are computed in float64, of the shorter ones in
        float32; those of integers wrap around.
    """
    wider = {2: np.float32, 4: np.float64}.get(input.dtype.itemsize) if input.dtype.kind in "fV" else None
    whole = input.reshape(input.shape or (1,))
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.multiply.accumulate(whole, axis_of(dim, input.ndim), dtype=wider or input.dtype)
        return product.astype(input.dtype).reshape(input.shape)


def _running(extreme: Any, x: Any, dim: int) -> Running[Any]:
    axis = axis_of(dim, x.ndim)
    whole = x.reshape(x.shape or (1,))
    positions = np.arange(whole.shape[axis]).reshape([-1 if i == axis else 1 for i in range(whole.ndim)])
    with np.errstate(invalid="ignore"):  # NaN in bfloat16 is reported as an error
        so_far = extreme.accumulate(whole, axis)
    takes_over = (whole == so_far) | (whole != whole)
    indices = np.maximum.accumulate(np.where(takes_over, positions, 0), axis)
    # Taken from the input, so that of zeros the sign is that of the element that the index names.
    values = np.take_along_axis(whole, indices, axis)
    return Running(values.reshape(x.shape), indices.reshape(x.shape))


@cummax.register_shape_inference
@cummin.register_shape_inference
def _(input: Spec, *, dim: int) -> tuple[Spec, Spec]:
    axis_of(dim, input.ndim)
    return input, input.like(dtype=np.int64)


@cumprod.register_shape_inference
def _(input: Spec, *, dim: int) -> Spec:
    axis_of(dim, input.ndim)
    return input
