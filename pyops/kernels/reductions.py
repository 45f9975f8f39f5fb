"""Dimensions reduced to their largest or smallest element or to a hash, and the running results along one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._ops.op import Op
from pyops._schema.specs import TensorSpec

from ._arrays import axes_of, axis_of, reduced_shape
from ._declarations import Real, RealOrBool, first_spec, variant


def _extreme(name: str, extreme: Callable[[Any], Any], which: str) -> Op[..., NDArray[Any]]:
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
        with np.errstate(invalid="ignore"):  # NaN in bfloat16 is reported as an error
            found = extreme(array_namespace(input))(input.reshape(input.shape or (1,)), axis=axes_of(dim, input.ndim))
        return found.reshape(reduced_shape(input.shape, dim, keepdim))

    return kernel


amax = _extreme("amax", attrgetter("max"), "largest")
amin = _extreme("amin", attrgetter("min"), "smallest")


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


class Running(NamedTuple, Generic[RealOrBool]):
    """The extreme element so far, and its position along the dimension."""

    values: NDArray[RealOrBool]
    indices: NDArray[np.int64]


def _running(name: str, extreme: np.ufunc, which: str) -> Op[..., Running[Any]]:
    @onnx_op(f"pyops::{name.capitalize()}")
    @variant(name, name=name, which=which)
    def kernel(input: NDArray[RealOrBool], *, dim: int) -> Running[RealOrBool]:
        """Return the {which} element so far along a dimension, and its index.

        As ``torch.{name}(input, dim)``.

        Parameters
        ----------
        input : array of real numbers or bool
            Any shape; a scalar counts as one element.
        dim : int
            The dimension to go along, -1 the last.

        Returns
        -------
        values : array of the dtype of `input`
            Shaped like `input`. NaN from the first NaN on.
        indices : array of int64
            Shaped like `input`: of the last one so far among equal elements, and among NaNs.
        """
        axis = axis_of(dim, input.ndim)
        whole = input.reshape(input.shape or (1,))
        positions = np.arange(whole.shape[axis]).reshape([-1 if i == axis else 1 for i in range(whole.ndim)])
        with np.errstate(invalid="ignore"):  # NaN in bfloat16 is reported as an error
            so_far = extreme.accumulate(whole, axis)
        takes_over = (whole == so_far) | (whole != whole)
        indices = np.maximum.accumulate(np.where(takes_over, positions, 0), axis)
        # Taken from the input, so that of zeros the sign is that of the element that the index names.
        values = np.take_along_axis(whole, indices, axis)
        return Running(values.reshape(input.shape), indices.reshape(input.shape))

    return kernel


cummax = _running("cummax", np.maximum, "largest")
cummin = _running("cummin", np.minimum, "smallest")


@cummax.register_shape_inference
@cummin.register_shape_inference
def _(input: TensorSpec, *, dim: int) -> tuple[TensorSpec, TensorSpec]:
    return input, input.like(dtype=np.int64)


@onnx_op("pyops::Cumprod")
def cumprod(input: NDArray[Real], *, dim: int) -> NDArray[Real]:
    """Multiply all elements so far along a dimension.

    As ``torch.cumprod(input, dim)``, but for its dtypes: torch's result of integers is int64, so that
    they are int64 before they come here.

    Parameters
    ----------
    input : array of real numbers
        Any shape; a scalar counts as one element.
    dim : int
        The dimension to go along, -1 the last.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`. Products of float32 are computed in float64, of the shorter ones in
        float32; those of integers wrap around.
    """
    wider = {2: np.float32, 4: np.float64}.get(input.dtype.itemsize) if input.dtype.kind in "fV" else None
    whole = input.reshape(input.shape or (1,))
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.multiply.accumulate(whole, axis_of(dim, input.ndim), dtype=wider or input.dtype)
        return product.astype(input.dtype).reshape(input.shape)


cumprod.register_shape_inference(first_spec)
