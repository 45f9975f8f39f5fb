"""Counts of elements in bins. A bin contains its lower edge, but not its upper edge.

The last bin contains its upper edge, too. NaNs, and elements outside of all bins, are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import onnx_op
from ..shapes import TensorSpec, new_dim
from ._arrays import widened
from ._declarations import Float, Wide


@onnx_op("pyops::Histc")
def histc(input: NDArray[Float], *, bins: int = 100) -> NDArray[Float]:
    """Count the elements in each of several bins of equal width between the smallest and the largest element.

    As ``torch.histc(input, bins)``; its ``min`` and ``max`` are not supported.

    Parameters
    ----------
    input : array of float16, bfloat16, float32 or float64
        Any shape.
    bins : int
        The number of bins.

    Returns
    -------
    array of the dtype of `input`
        (bins,). Where all elements are equal, the edges are 1 below and above them.

    Raises
    ------
    ValueError
        An element is not finite, or there is no bin.
    """
    points = widened(input)[..., None]
    return _count(points, _even_edges(points, [bins], None, "Histc", margin=1)).astype(input.dtype)


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
        The smallest size of the result.

    Returns
    -------
    array of the dtype of `weights`
        (max(largest of `input` + 1, minlength),): one sum for each number from 0 on.

    Raises
    ------
    ValueError
        A number is negative, or `weights` is of another shape.
    """
    return np.bincount(input, weights, minlength).astype(weights.dtype)


@histc.register_shape_inference
def _(input: TensorSpec, *, bins: int = 100) -> TensorSpec:
    return input.like(shape=(bins,))


@bincount.register_shape_inference
def _(input: TensorSpec, weights: TensorSpec, *, minlength: int = 0) -> TensorSpec:
    return weights.like(shape=(new_dim(),))


@onnx_op("pyops::HistogramddBinEdges")
def histogramdd_bin_edges(
    input: NDArray[Wide], *, bins: list[int], range: np.ndarray | None = None
) -> tuple[NDArray[Wide], ...]:
    """Return the edges of bins of equal width for each coordinate of points.

    As the second result of ``torch.histogramdd(input, bins, range=range)``, and for d = 1 of ``torch.histogram``.

    Parameters
    ----------
    input : array of float32 or float64
        (..., d): points.
    bins : list of int
        The number of bins for each of the d coordinates.
    range : array of float64, optional
        (2 * d,): the lowest and the highest edge for each coordinate. If it is absent, they are the smallest and the
        largest element, or 0 and 1 if there is none. Where both are equal, they are moved to a distance of 1.

    Returns
    -------
    arrays of the dtype of `input`
        d arrays, (bins + 1,) each.

    Raises
    ------
    ValueError
        A range is reversed or not finite, or there is no bin.
    """
    return tuple(_even_edges(input, bins, range, "HistogramddBinEdges"))


@onnx_op("pyops::HistogramddFromBinTensors")
def histogramdd_from_bin_tensors(
    input: NDArray[Wide], weight: NDArray[Wide] | None = None, *bins: NDArray[Wide], density: bool = False
) -> NDArray[Wide]:
    """Count the points in each bin of a grid with given edges.

    As the first result of ``torch.histogramdd(input, bins, weight=weight, density=density)``, and for d = 1 of
    ``torch.histogram``.

    Parameters
    ----------
    input : array of float32 or float64
        (..., d): points.
    weight : array of the dtype of `input`, optional
        (...): what each point counts, 1 if absent.
    *bins : array of the dtype of `input`
        d arrays, (number of bins + 1,) each: the edges, in ascending order.
    density : bool
        Whether the counts are divided by their sum and by the bins' volumes.

    Returns
    -------
    array of the dtype of `input`
        The number of bins of each coordinate.

    Raises
    ------
    ValueError
        `weight` is of another shape.
    """
    return _count(input, bins, weight, density)


@histogramdd_bin_edges.register_shape_inference
def _(input: TensorSpec, *, bins: list[int], range: np.ndarray | None = None) -> tuple[TensorSpec, ...]:
    return tuple(input.like(shape=(count + 1,)) for count in bins)


@histogramdd_from_bin_tensors.register_shape_inference
def _(input: TensorSpec, weight: TensorSpec | None = None, *bins: TensorSpec, density: bool = False) -> TensorSpec:
    return input.like(shape=[item.shape[0] - 1 for item in bins])


def _even_edges(points: Any, bins: Sequence[int], limits: Any, op: str, margin: float = 0.5) -> list[Any]:
    """Return edges of equally wide bins for each coordinate of (..., d) points; the margin separates equal limits."""
    if limits is not None and limits.size != 2 * len(bins):
        raise ValueError(
            f"{op}: range has {limits.size} numbers; it must have {2 * len(bins)}, the lowest and the "
            "highest edge for each coordinate"
        )
    rows = _rows(points, len(bins))
    if limits is None:
        limits = np.stack([rows.min(axis=0), rows.max(axis=0)], 1) if len(rows) else [(0, 1)] * len(bins)
    edges = []
    for (begin, end), count in zip(np.reshape(limits, (-1, 2)).astype(points.dtype), bins, strict=True):
        if not np.isfinite([begin, end]).all() or begin > end:
            raise ValueError(f"{op}: the range from {begin} to {end} is reversed or not finite; pass another as range")
        if count < 1:
            raise ValueError(f"{op}: bins is {count}; it must be at least 1")
        apart = points.dtype.type(margin if begin == end else 0)
        edges.append(_linspace(begin - apart, end + apart, count + 1))
    return edges


def _linspace(begin: Any, end: Any, count: int) -> Any:
    """Compute edges as torch does, from both ends, so that elements on an edge fall into torch's bin."""
    steps = np.arange(count, dtype=begin.dtype)
    with np.errstate(all="ignore"):
        step = (end - begin) / begin.dtype.type(count - 1)
        return np.where(steps < count // 2, begin + step * steps, end - step * (count - 1 - steps))


def _count(points: Any, edges: Sequence[Any], weight: Any = None, density: bool = False) -> Any:
    """Count (..., d) points in each bin of a grid, or compute their density."""
    if weight is not None and weight.shape != points.shape[:-1]:
        raise ValueError(f"Histogram: weight has shape {list(weight.shape)}; it must be {list(points.shape[:-1])}")
    # As numpy.histogramdd does it, which refuses edges that do not ascend; torch accepts them.
    rows, bins = _rows(points, len(edges)), [len(item) - 1 for item in edges]
    places, inside = np.zeros(len(rows), np.int64), np.ones(len(rows), bool)
    for column, item, size in zip(rows.T, edges, bins, strict=True):
        inside &= (column >= item[0]) & (column <= item[-1])
        places = places * size + np.clip(np.searchsorted(item, column, "right") - 1, 0, size - 1)
    weights = None if weight is None else weight.reshape(-1)[inside]
    hist = np.bincount(places[inside], weights, minlength=math.prod(bins)).astype(points.dtype).reshape(bins)
    if density:
        with np.errstate(all="ignore"):
            hist = hist / hist.sum() / math.prod(np.ix_(*map(np.diff, edges)))
    return hist


def _rows(points: Any, count: int) -> Any:
    """Return points (..., count) as (n, count)."""
    if points.shape[-1:] != (count,):
        raise ValueError(f"Histogram: the points have shape {list(points.shape)}; it must be (..., {count})")
    return points.reshape(-1, count)
