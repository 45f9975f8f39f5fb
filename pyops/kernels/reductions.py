"""Dimensions reduced to their largest or smallest element, or to a hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._ops.op import Op
from pyops._schema.specs import TensorSpec

from ._arrays import axes_of, reduced_shape
from ._declarations import RealOrBool, variant


def _extreme(name: str, function: str, which: str) -> Op[..., NDArray[Any]]:
    @onnx_op(f"pyops::{name.capitalize()}", device_types=("cpu", "cuda"))
    @variant(name, name=name, which=which)
    def kernel(input: NDArray[RealOrBool], *, dim: Sequence[int] = (), keepdim: bool = False) -> NDArray[RealOrBool]:
        """Return the {which} element along dimensions.

        As ``torch.{name}(input, dim, keepdim)``.

        Parameters
        ----------
        input : array of real numbers or bool
            Any shape; a scalar counts as one element.
        dim : list of int
            The dimensions to reduce, -1 the last; all of them if it is empty.
        keepdim : bool
            Whether they stay, of size 1.

        Returns
        -------
        array of the dtype of `input`
            Shaped like `input` without `dim`; NaN where one of the elements is.

        Raises
        ------
        ValueError
            There are no elements to choose from.
        """
        axes = axes_of(dim, input.ndim)
        shape = reduced_shape(input.shape, axes, keepdim)
        if not input.size and 0 not in shape:
            raise ValueError(
                f"{name.capitalize()}: nothing is the {function} of no elements, and {list(input.shape)} has none in "
                f"dimensions {list(axes)}; pass others as dim"
            )
        with np.errstate(invalid="ignore"):  # NaN in bfloat16 is reported as an error
            found = getattr(array_namespace(input), function)(input.reshape(input.shape or (1,)), axis=axes)
        return found.reshape(shape)

    return kernel


amax = _extreme("amax", "max", "largest")
amin = _extreme("amin", "min", "smallest")


@amax.register_shape_inference
@amin.register_shape_inference
def _(input: TensorSpec, *, dim: Sequence[int] = (), keepdim: bool = False) -> TensorSpec:
    return input.like(shape=reduced_shape(input.shape, dim, keepdim))


@onnx_op("pyops::HashTensor")
def hash_tensor(
    input: NDArray[RealOrBool], *, dim: Sequence[int] = (), keepdim: bool = False, mode: int = 0
) -> NDArray[np.uint64]:
    """Combine the bits of all elements along dimensions by exclusive or.

    As ``torch.hash_tensor(input, dim, keepdim=keepdim)``: floating-point elements as float64, others as int64.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape; a scalar counts as one element.
    dim : list of int
        The dimensions to reduce, -1 the last; all of them if it is empty.
    keepdim : bool
        Whether they stay, of size 1.
    mode : int
        0, exclusive or, is the only one that there is.

    Returns
    -------
    array of uint64
        Shaped like `input` without `dim`.

    Raises
    ------
    ValueError
        `mode` is another one.
    """
    if mode:
        raise ValueError(f"HashTensor: mode is {mode}; there is only 0, exclusive or")
    wide = input.astype(np.int64 if input.dtype.kind in "iub" else np.float64).view(np.uint64)
    combined = np.bitwise_xor.reduce(wide.reshape(input.shape or (1,)), axis=axes_of(dim, input.ndim))
    return combined.reshape(reduced_shape(input.shape, dim, keepdim))


@hash_tensor.register_shape_inference
def _(input: TensorSpec, *, dim: Sequence[int] = (), keepdim: bool = False, **mode: int) -> TensorSpec:
    return input.like(shape=reduced_shape(input.shape, dim, keepdim), dtype=np.uint64)
