"""Reductions of dimensions, or of segments of one, and running results along a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import Op, onnx_op
from ..errors import ShapeInferenceError
from ..shapes import TensorSpec
from ._arrays import axes_of, axis_of, reduced_ranges, reduced_shape
from ._declarations import Float, Index, Real, RealOrBool, first_spec, in_float32, variant

UFUNCS = {"sum": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
"""The ufunc of each reduction, by torch's name."""


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
            Whether the reduced dimensions stay, with size 1.

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
        Whether the reduced dimensions stay, with size 1.
    mode : int
        Only 0, exclusive or, is supported.

    Returns
    -------
    array of uint64
        Shaped like `input` without `dim`.

    Raises
    ------
    ValueError
        `mode` is not 0.
    """
    if mode:
        raise ValueError(f"HashTensor: mode is {mode}; only 0, exclusive or, is supported")
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
            Shaped like `input`: the last position so far among equal elements, and among NaNs.
        """
        axis = axis_of(dim, input.ndim)
        whole = input.reshape(input.shape or (1,))
        positions = np.arange(whole.shape[axis]).reshape([-1 if i == axis else 1 for i in range(whole.ndim)])
        with np.errstate(invalid="ignore"):  # NaN in bfloat16 is reported as an error
            so_far = extreme.accumulate(whole, axis)
        takes_over = (whole == so_far) | (whole != whole)
        indices = np.maximum.accumulate(np.where(takes_over, positions, 0), axis)
        # Taken from the input, so that a zero has the sign of the element at the index.
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

    As ``torch.cumprod(input, dim)`` except for the dtype of integers, whose result is int64 in torch; an export casts
    them before.

    Parameters
    ----------
    input : array of real numbers
        Any shape; a scalar counts as one element.
    dim : int
        The dimension to go along, -1 the last.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`. Products of float32 are computed in float64, those of narrower types in float32; those of
        integers wrap around.
    """
    wider = {2: np.float32, 4: np.float64}.get(input.dtype.itemsize) if input.dtype.kind in "fV" else None
    whole = input.reshape(input.shape or (1,))
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.multiply.accumulate(whole, axis_of(dim, input.ndim), dtype=wider or input.dtype)
        return product.astype(input.dtype).reshape(input.shape)


@onnx_op("pyops::Logcumsumexp")
def logcumsumexp(input: NDArray[Float], *, dim: int) -> NDArray[Float]:
    """Compute the logarithm of the sum of the exponentials of all elements so far along a dimension.

    As ``torch.logcumsumexp(input, dim)``: finite where the exponentials overflow or are zero.

    Parameters
    ----------
    input : array of float16, bfloat16, float32 or float64
        Any shape; a scalar counts as one element.
    dim : int
        The dimension to go along, -1 the last.

    Returns
    -------
    array of the dtype of `input`
        Shaped like `input`.
    """

    def accumulated(whole: Any) -> Any:
        return np.logaddexp.accumulate(whole, axis_of(dim, input.ndim))

    return in_float32(accumulated, input.reshape(input.shape or (1,))).reshape(input.shape)


cumprod.register_shape_inference(first_spec)
logcumsumexp.register_shape_inference(first_spec)


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
        (*data.shape[:axis], n): the length of each segment.
    offsets : array of the dtype of `lengths`, optional
        (*data.shape[:axis], n + 1): where each one begins, and where the last one ends. One of the
        two is given.
    initial : array of the dtype of `data`, optional
        A scalar with which each segment begins. If it is absent: 0 for sums and means, 1 for products, minus infinity
        for ``"max"`` and infinity for ``"min"``.
    reduce : str
        How a segment is reduced. ``"max"`` and ``"min"`` are NaN where an element is. The mean of a segment without
        elements is `initial`, or NaN.
    axis : int
        The dimension of the segments, the last one of `lengths` or `offsets`; -1 is the last of `data`.
    unsafe : bool
        Whether `lengths` may leave elements over at the end.

    Returns
    -------
    array of the dtype of `data`
        Shaped like `data`, with n elements along `axis`.

    Raises
    ------
    ValueError
        Neither or both of `lengths` and `offsets` are given, or they do not fit `data`.
    """
    axis = _segmented(data.shape, axis)
    counts, begins = _segments(data, lengths, offsets, axis, unsafe)
    if initial is not None and initial.ndim:
        raise ValueError(f"SegmentReduce: initial has shape {list(initial.shape)}; it must be a scalar")
    ufunc, identity = UFUNCS[reduce], identity_of(reduce, data.dtype)
    rows = data.reshape(math.prod(data.shape[: axis + 1]), *data.shape[axis + 1 :])
    starts = (begins + np.arange(len(begins))[:, None] * data.shape[axis]).reshape(-1)
    result = reduced_ranges(ufunc, rows, starts, starts + counts.reshape(-1), identity)
    with np.errstate(all="ignore"):
        result = ufunc(result, result.dtype.type(identity) if initial is None else initial)
        if reduce == "mean":
            divisors = counts.reshape(-1, *[1] * (rows.ndim - 1))
            empty = np.nan if initial is None else result
            result = np.where(divisors == 0, empty, result / np.maximum(divisors, 1)).astype(data.dtype)
    return result.reshape(*data.shape[:axis], counts.shape[-1], *data.shape[axis + 1 :])


@segment_reduce.register_shape_inference
def _(data: TensorSpec, lengths: Any = None, offsets: Any = None, *_: Any, axis: int = 0, **others: Any) -> TensorSpec:
    axis = _segmented(data.shape, axis)
    count = offsets.shape[-1] - 1 if offsets is not None else lengths.shape[-1] if lengths is not None else 0
    return data.like(shape=(*data.shape[:axis], count, *data.shape[axis + 1 :]))


def identity_of(reduce: str, dtype: np.dtype[Any]) -> Any:
    """Return the identity element of a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.kind == "b":
        return reduce == "min"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if reduce == "max" else np.iinfo(dtype).max
    return -np.inf if reduce == "max" else np.inf


def _segmented(shape: tuple[Any, ...], axis: int) -> int:
    if not shape:
        raise ShapeInferenceError("SegmentReduce: the data are a scalar; they must have at least one dimension")
    return axis_of(axis, len(shape))


def _segments(data: Any, lengths: Any, offsets: Any, axis: int, unsafe: bool) -> tuple[Any, Any]:
    """Return each segment's length and beginning, with one row for each position in the dimensions before `axis`."""
    given = lengths if offsets is None else offsets
    if (lengths is None) == (offsets is None):
        raise ValueError("SegmentReduce: give either lengths or offsets")
    if given.ndim != axis + 1 or given.shape[:axis] != data.shape[:axis]:
        raise ValueError(
            f"SegmentReduce: lengths or offsets have shape {list(given.shape)} and the data {list(data.shape)}; the "
            f"dimensions before axis, which is {axis}, must be equal, and axis the last one of lengths or offsets"
        )
    rows = given.reshape(math.prod(given.shape[:-1]), given.shape[-1]).astype(np.int64)
    size = data.shape[axis]
    counts, begins = (rows, np.cumsum(rows, 1) - rows) if offsets is None else (np.diff(rows), rows[:, :-1])
    if (counts < 0).any() or (begins < 0).any() or (begins + counts > size).any():
        raise ValueError(f"SegmentReduce: a segment is not within the {size} elements of axis {axis}")
    if offsets is None and not unsafe and (counts.sum(1) != size).any():
        raise ValueError(
            f"SegmentReduce: the lengths of a row do not sum to {size}, the elements of axis {axis}; "
            "correct them, or pass unsafe=True"
        )
    return counts, begins
