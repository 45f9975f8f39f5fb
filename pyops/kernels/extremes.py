"""The largest and the smallest elements of dimensions, NaN where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops.decorator import onnx_op
from pyops.shapes import Spec

from ._axes import axes_of, reduced_shape
from ._element_types import RealOrBool


@onnx_op("pyops::Amax", device_types=("cpu", "cuda"))
def amax(input: NDArray[RealOrBool], *, dim: Sequence[int] = (), keepdim: bool = False) -> NDArray[RealOrBool]:
    """Give the largest element of dimensions.

    ``torch.amax(input, dim, keepdim)``.

    Parameters
    ----------
    input
        Any shape; a scalar counts as one element.
    dim
        The dimensions to reduce, -1 the last; all of them if it is empty.
    keepdim
        Whether they stay, of size 1.

    Returns
    -------
    NDArray
        Shaped like `input` without `dim`; NaN where one of the elements is.

    Raises
    ------
    ValueError
        There are no elements to choose from.
    """
    return _extreme("max", input, dim or None, keepdim, "Amax")


@onnx_op("pyops::Amin", device_types=("cpu", "cuda"))
def amin(input: NDArray[RealOrBool], *, dim: Sequence[int] = (), keepdim: bool = False) -> NDArray[RealOrBool]:
    """Give the smallest element of dimensions.

    ``torch.amin(input, dim, keepdim)``.

    Parameters
    ----------
    input
        Any shape; a scalar counts as one element.
    dim
        The dimensions to reduce, -1 the last; all of them if it is empty.
    keepdim
        Whether they stay, of size 1.

    Returns
    -------
    NDArray
        Shaped like `input` without `dim`; NaN where one of the elements is.

    Raises
    ------
    ValueError
        There are no elements to choose from.
    """
    return _extreme("min", input, dim or None, keepdim, "Amin")


def _extreme(name: str, x: Any, dims: Sequence[int] | None, keepdim: bool, op: str) -> Any:
    axes = axes_of(dims, x.ndim)
    shape = reduced_shape(x.shape, dims, keepdim)
    if not x.size and 0 not in shape:
        raise ValueError(
            f"{op}: nothing is the {name} of no elements, and {list(x.shape)} has none in dimensions {list(axes)}; "
            "pass others as dim"
        )
    with np.errstate(invalid="ignore"):  # NaN in bfloat16 is reported as an error
        found = getattr(array_namespace(x), name)(x.reshape(x.shape or (1,)), axis=axes)
    return found.reshape(shape)


@amax.register_shape_inference
@amin.register_shape_inference
def _(input: Spec, *, dim: Sequence[int] = (), keepdim: bool = False) -> Spec:
    return input.like(shape=reduced_shape(input.shape, dim or None, keepdim))
