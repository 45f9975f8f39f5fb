"""How many elements fall into each bin: each one counts the elements from its lower edge to below its upper edge.

The last bin has its upper edge, too. NaNs, and what is outside, count nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec, new_dim
from pyops.errors import ShapeInferenceError

from ._element_types import Float, Wide, widened


class Histogram(NamedTuple, Generic[Wide]):
    """The bins' counts, and their edges."""

    hist: NDArray[Wide]
    bin_edges: NDArray[Wide]


@onnx_op("pyops::HistogramBinCt")
def histogram_bin_ct(
    input: NDArray[Wide],
    weight: NDArray[Wide] | None = None,
    *,
    bins: int = 100,
    range: np.ndarray | None = None,
    density: bool = False,
) -> Histogram[Wide]:
    """Count the elements in each of several bins of equal width.

    As ``torch.histogram(input, bins, range=range, weight=weight, density=density)``.

    Parameters
    ----------
    input : array of float32 or float64
        Any shape.
    weight : array of the dtype of `input`, optional
        Shaped like `input`: what each element counts, 1 if absent.
    bins : int
        How many.
    range : tensor of float64, optional
        The lowest and the highest edge, as float64 (2,). If it is absent they are the smallest and
        the largest element, or 0 and 1 if there is none. Where both are equal, they are moved apart by 1.
    density : bool
        Whether the counts are divided by their sum and by the bins' widths.

    Returns
    -------
    hist : array of the dtype of `input`
        (bins,).
    bin_edges : array of the dtype of `input`
        (bins + 1,).

    Raises
    ------
    ValueError
        The range is not finite or reversed, there is no bin, or `weight` is of another shape.
    """
    points = input.reshape(-1, 1)
    edges = even_edges(points, [bins], range, "HistogramBinCt")
    return Histogram(count_points(points, edges, checked_weight(input.shape, weight), density), edges[0])


@onnx_op("pyops::HistogramBinsTensor")
def histogram_bins_tensor(
    input: NDArray[Wide], bins: NDArray[Wide], weight: NDArray[Wide] | None = None, *, density: bool = False
) -> Histogram[Wide]:
    """Count the elements between neighbouring edges.

    As ``torch.histogram(input, bins, weight=weight, density=density)``.

    Parameters
    ----------
    input : array of float32 or float64
        Any shape.
    bins : array of the dtype of `input`
        (number of bins + 1,): the edges, in ascending order.
    weight : array of the dtype of `input`, optional
        Shaped like `input`: what each element counts, 1 if absent.
    density : bool
        Whether the counts are divided by their sum and by the bins' widths.

    Returns
    -------
    hist : array of the dtype of `input`
        (number of bins,).
    bin_edges : array of the dtype of `input`
        `bins`.

    Raises
    ------
    ValueError
        There is no bin, or `weight` is of another shape.
    """
    check_edges(bins.shape)
    return Histogram(
        count_points(input.reshape(-1, 1), [bins], checked_weight(input.shape, weight), density), bins.copy()
    )


@onnx_op("pyops::Histc")
def histc(input: NDArray[Float], *, bins: int = 100) -> NDArray[Float]:
    """Count the elements in each of several bins of equal width between the smallest and the largest element.

    As ``torch.histc(input, bins)``, without the edges.

    Parameters
    ----------
    input : array of float16, bfloat16, float32 or float64
        Any shape.
    bins : int
        How many.

    Returns
    -------
    array of the dtype of `input`
        (bins,). Where all elements are equal, the edges are 1 below and above them.

    Raises
    ------
    ValueError
        An element is not finite, or there is no bin.
    """
    points = widened(input).reshape(-1, 1)
    edges = even_edges(points, [bins], None, "Histc", margin=1)
    return count_points(points, edges, None, False).astype(input.dtype)


@onnx_op("pyops::Bincount")
def bincount(input: NDArray[np.int64], weights: NDArray[Wide], *, minlength: int = 0) -> NDArray[Wide]:
    """Sum the weights of each number.

    As ``torch.bincount(input, weights, minlength)``.

    Parameters
    ----------
    input : array of int64
        (n,): numbers from 0 on.
    weights : array of float32 or float64
        (n,).
    minlength : int
        How many numbers there are at least.

    Returns
    -------
    array of the dtype of `weights`
        One sum for each number up to the largest of `input`.

    Raises
    ------
    ValueError
        A number is negative, or `weights` is of another shape.
    """
    if input.ndim != 1 or weights.shape != input.shape:
        raise ValueError(f"Bincount: input is {list(input.shape)} and weights {list(weights.shape)}; both are (n,)")
    if input.size and int(input.min()) < 0:
        raise ValueError(f"Bincount: input has {input.min()}; it counts numbers from 0 on")
    return np.bincount(input, weights, minlength).astype(weights.dtype)


@histogram_bin_ct.register_shape_inference
def _(
    input: TensorSpec, weight: TensorSpec | None = None, *, bins: int = 100, **others: Any
) -> tuple[TensorSpec, TensorSpec]:
    return input.like(shape=(bins,)), input.like(shape=(bins + 1,))


@histogram_bins_tensor.register_shape_inference
def _(
    input: TensorSpec, bins: TensorSpec, weight: TensorSpec | None = None, *, density: bool = False
) -> tuple[TensorSpec, TensorSpec]:
    check_edges(bins.shape)
    return bins.like(shape=(bins.shape[0] - 1,)), bins


@histc.register_shape_inference
def _(input: TensorSpec, *, bins: int = 100) -> TensorSpec:
    return input.like(shape=(bins,))


@bincount.register_shape_inference
def _(input: TensorSpec, weights: TensorSpec, *, minlength: int = 0) -> TensorSpec:
    return weights.like(shape=(new_dim(),))


def even_edges(points: Any, bins: Sequence[int], limits: Any, op: str, margin: float = 0.5) -> list[Any]:
    """Return the edges of equal bins along each coordinate of (n, d) points; the margin separates equal limits."""
    if limits is not None and limits.size != 2 * len(bins):
        raise ValueError(f"{op}: range has {limits.size} numbers; it has the lowest and the highest of {len(bins)}")
    if limits is not None:
        low, high = limits.reshape(-1, 2).T
    elif len(points):
        low, high = points.min(axis=0), points.max(axis=0)
    else:
        low, high = np.zeros(len(bins)), np.ones(len(bins))
    low, high = low.astype(points.dtype), high.astype(points.dtype)
    for begin, end, count in zip(low, high, bins, strict=True):
        if not np.isfinite([begin, end]).all() or begin > end:
            raise ValueError(f"{op}: the range from {begin} to {end} is not finite or reversed; pass another as range")
        if count < 1:
            raise ValueError(f"{op}: bins is {count}; there is at least one")
    same = low == high
    low, high = np.where(same, low - margin, low), np.where(same, high + margin, high)
    return [
        _linspace(begin, end, count + 1).astype(points.dtype) for begin, end, count in zip(low, high, bins, strict=True)
    ]


def _linspace(begin: Any, end: Any, count: int) -> Any:
    """Compute edges as torch does, from both ends, so that elements on an edge fall into torch's bin."""
    steps = np.arange(count, dtype=begin.dtype)
    with np.errstate(all="ignore"):
        step = (end - begin) / begin.dtype.type(count - 1)
        return np.where(steps < count // 2, begin + step * steps, end - step * (count - 1 - steps))


def count_points(points: Any, edges: Sequence[Any], weight: Any, density: bool) -> Any:
    """Count (n, d) points in each bin of a grid, or compute their density."""
    # By numpy.histogramdd's method, which refuses edges that do not ascend; torch does not.
    shape = [len(item) - 1 for item in edges]
    places = np.zeros(len(points), np.int64)
    inside = np.ones(len(points), bool)
    for column, item, size in zip(points.T, edges, shape, strict=True):
        inside &= (column >= item[0]) & (column <= item[-1])
        places = places * size + np.clip(np.searchsorted(item, column, "right") - 1, 0, size - 1)
    weights = None if weight is None else weight.reshape(-1)[inside]
    hist = np.bincount(places[inside], weights, minlength=math.prod(shape)).astype(points.dtype).reshape(shape)
    if density:
        with np.errstate(all="ignore"):
            hist = hist / hist.sum() / math.prod(np.ix_(*map(np.diff, edges)))
    return hist


def checked_weight(shape: tuple[int, ...], weight: Any) -> Any:
    """Return the weights; a ValueError unless there is one for each element."""
    if weight is not None and weight.shape != shape:
        raise ValueError(f"Histogram: weight is {list(weight.shape)}; one for each element is {list(shape)}")
    return weight


def check_edges(shape: tuple[Any, ...]) -> None:
    """Raise a ShapeInferenceError unless the edges are one-dimensional and at least two."""
    if len(shape) != 1 or (isinstance(shape[0], int) and shape[0] < 2):
        raise ShapeInferenceError(f"Histogram: the edges are {list(shape)}; they are (n,), and n is at least 2")
