"""The edges of bins along each coordinate of points, and the points that are counted between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyops.errors import ShapeInferenceError


def even_edges(points: Any, bins: Sequence[int], limits: Any, op: str, margin: float = 0.5) -> list[Any]:
    """The edges along each coordinate of (n, d) points; the margin parts those that are equal."""
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
    """As torch computes it, from both ends, so that elements on an edge fall into torch's bin."""
    steps = np.arange(count, dtype=begin.dtype)
    with np.errstate(all="ignore"):
        step = (end - begin) / begin.dtype.type(count - 1)
        return np.where(steps < count // 2, begin + step * steps, end - step * (count - 1 - steps))


def count_points(points: Any, edges: Sequence[Any], weight: Any, density: bool) -> Any:
    """What (n, d) points count in each bin of a grid, or how densely."""
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
    if weight is not None and weight.shape != shape:
        raise ValueError(f"Histogram: weight is {list(weight.shape)}; one for each element is {list(shape)}")
    return weight


def check_edges(shape: tuple[Any, ...]) -> None:
    if len(shape) != 1 or (isinstance(shape[0], int) and shape[0] < 2):
        raise ShapeInferenceError(f"Histogram: the edges are {list(shape)}; they are (n,), and n is at least 2")
