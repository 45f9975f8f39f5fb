"""Elements that are selected by their rank along a dimension, and their positions.

Where several elements are equal to the selected one, torch's index depends on the steps of its partial sort, and
differs between devices; each op here documents which one it takes.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import Op, onnx_op
from ..shapes import TensorSpec
from ._arrays import axis_of, reduced_shape, scalar
from ._declarations import Real, RealOrBool, variant


class Selected(NamedTuple, Generic[RealOrBool]):
    """Elements, and their positions along the dimension that was reduced."""

    values: NDArray[RealOrBool]
    indices: NDArray[np.int64]


def _median(name: str, skip_nan: bool, **words: str) -> Op[..., Selected[Any]]:
    op_type = name.capitalize()

    @onnx_op(f"pyops::{op_type}", device_types=("cpu", "cuda"))
    @variant(name, name=name, **words)
    def kernel(input: NDArray[Real], *, dim: int | None = None, keepdim: bool = False) -> Selected[Real]:
        """Return the median of the elements{but} along a dimension (the lower one of two), and its index.

        As ``torch.{name}(input, dim, keepdim)``, and the values alone as ``torch.{name}(input)``.

        Parameters
        ----------
        input : array of real numbers
            Any shape; a scalar counts as one element.
        dim : int, optional
            The dimension to reduce, -1 the last; all elements, row by row, if it is absent.
        keepdim : bool
            Whether the reduced dimension stays, with size 1.

        Returns
        -------
        values : array of the dtype of `input`
            Shaped like `input` without `dim`. NaN where {which} is NaN. Without `dim` and without elements, NaN or, for
            integers, the smallest number of the dtype.
        indices : array of int64
            Among equal elements, the one that a stable sort puts at the median's rank. {index}.

        Raises
        ------
        ValueError
            The dimension has no elements.
        """
        xp = array_namespace(input)
        if dim is None:
            input, dim = input.reshape(-1), 0
            if not input.size:
                dtype: Any = input.dtype
                input = xp.full(1, np.iinfo(dtype).min if dtype.kind in "iu" else np.nan, dtype=dtype)
        whole, axis = _selectable(input, dim, op_type)
        missing = whole != whole
        count = (~missing).sum(axis=axis, keepdims=True)
        order = xp.argsort(_sortable(whole), axis=axis, stable=True)
        found = xp.take_along_axis(order, xp.maximum(count - 1, 0) // 2, axis=axis)
        if not skip_nan:
            found = xp.where(missing.any(axis=axis, keepdims=True), missing.argmax(axis=axis, keepdims=True), found)
        return _selected(input, whole, axis, found, keepdim)

    return kernel


median = _median("median", skip_nan=False, but="", which="an element", index="The first NaN, if there is one")
nanmedian = _median(
    "nanmedian", skip_nan=True, but=" but NaNs", which="every element", index="0 where every element is NaN"
)


@onnx_op("pyops::Kthvalue", device_types=("cpu", "cuda"))
def kthvalue(input: NDArray[Real], k: NDArray[np.int64], *, dim: int = -1, keepdim: bool = False) -> Selected[Real]:
    """Return the k-th smallest element along a dimension, and its index.

    As ``torch.kthvalue(input, k, dim, keepdim)``.

    Parameters
    ----------
    input : array of real numbers
        Any shape; a scalar counts as one element. NaNs are larger than all numbers.
    k : array of int64
        A scalar, counted from 1.
    dim : int
        The dimension to reduce, -1 the last.
    keepdim : bool
        Whether the reduced dimension stays, with size 1.

    Returns
    -------
    values : array of the dtype of `input`
        Shaped like `input` without `dim`.
    indices : array of int64
        Among equal elements, the one that a stable sort puts at rank k.

    Raises
    ------
    ValueError
        `k` is not from 1 to the size of the dimension, or the dimension has no elements.
    """
    whole, axis = _selectable(input, dim, "Kthvalue")
    rank, size = scalar("Kthvalue: k", k), whole.shape[axis]
    if not 1 <= rank <= size:
        raise ValueError(f"Kthvalue: k is {rank}; it must be from 1 to {size}, the size of dimension {dim}")
    xp = array_namespace(whole)
    order = xp.argsort(_sortable(whole), axis=axis, stable=True)
    return _selected(input, whole, axis, xp.take(order, xp.asarray([rank - 1]), axis=axis), keepdim)


@onnx_op("pyops::Mode")
def mode(input: NDArray[RealOrBool], *, dim: int = -1, keepdim: bool = False) -> Selected[RealOrBool]:
    """Return the most frequent element along a dimension (the smallest one of several), and its index.

    As ``torch.mode(input, dim, keepdim)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape; a scalar counts as one element. No NaN equals another.
    dim : int
        The dimension to reduce, -1 the last.
    keepdim : bool
        Whether the reduced dimension stays, with size 1.

    Returns
    -------
    values : array of the dtype of `input`
        Shaped like `input` without `dim`.
    indices : array of int64
        The index of the element's last occurrence.

    Raises
    ------
    ValueError
        The dimension has no elements.
    """
    whole, axis = _selectable(input, dim, "Mode")
    rows = np.moveaxis(_sortable(whole), axis, -1)
    order = np.argsort(rows, axis=-1, kind="stable")
    ordered = np.take_along_axis(rows, order, -1)
    positions = np.arange(rows.shape[-1])
    begins = np.ones(ordered.shape, bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    # How many equal elements precede each position; the first longest run ends where that is largest.
    lengths = positions - np.maximum.accumulate(np.where(begins, positions, 0), axis=-1)
    last = np.take_along_axis(order, np.argmax(lengths, axis=-1, keepdims=True), -1)
    return _selected(input, whole, axis, np.moveaxis(last, -1, axis), keepdim)


def _selectable(x: Any, dim: int, op: str) -> tuple[Any, int]:
    """Return the elements, a scalar as one of them, and the axis along which one is selected."""
    whole, axis = x.reshape(x.shape or (1,)), axis_of(dim, x.ndim)
    if not whole.shape[axis]:
        raise ValueError(
            f"{op}: dimension {dim} of {list(x.shape)} has no elements to select from; it needs at least one"
        )
    return whole, axis


def _selected(x: Any, whole: Any, axis: int, position: Any, keepdim: bool) -> Selected[Any]:
    """Take the elements at positions along the axis, where these have size 1, in the shape that the op returns."""
    values = array_namespace(whole).take_along_axis(whole, position, axis=axis)
    shape = reduced_shape(x.shape, [axis], keepdim)
    return Selected(values.reshape(shape), position.astype(np.int64).reshape(shape))


def _sortable(x: Any) -> Any:
    """Cast bfloat16, whose NaNs NumPy does not sort last, to float32."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


@median.register_shape_inference
@nanmedian.register_shape_inference
@mode.register_shape_inference
@kthvalue.register_shape_inference
def _(input: TensorSpec, *k: Any, dim: int | None = -1, keepdim: bool = False) -> tuple[TensorSpec, TensorSpec]:
    shape, axis = ((1,), 0) if dim is None else (input.shape, dim)
    values = input.like(shape=reduced_shape(shape, [axis], keepdim))
    return values, values.like(dtype=np.int64)
