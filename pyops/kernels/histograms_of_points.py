"""How many points of several coordinates fall into each bin of a grid, which are those of `histograms` in each one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec
from pyops.errors import ShapeInferenceError

from ._element_types import Wide
from .histograms import check_edges, checked_weight, count_points, even_edges


@onnx_op("pyops::HistogramddBinEdges")
def histogramdd_bin_edges(
    input: NDArray[Wide], *, bins: list[int], range: np.ndarray | None = None
) -> tuple[NDArray[Wide], ...]:
    """Return the edges of equal bins for each coordinate of points.

    As the second result of ``torch.histogramdd(input, bins, range=range)``.

    Parameters
    ----------
    input : array of float32 or float64
        (..., d): points.
    bins : list of int
        How many for each of the d coordinates.
    range : tensor of float64, optional
        The lowest and the highest edge for each coordinate, as float64 (2 * d,). As for
        `histograms.histogram_bin_ct` if it is absent.

    Returns
    -------
    arrays of the dtype of `input`
        d arrays, (bins + 1,) each.

    Raises
    ------
    ValueError
        A range is not finite or reversed, or there is no bin.
    """
    _check_coordinates(input.shape, len(bins))
    return tuple(even_edges(input.reshape(-1, len(bins)), bins, range, "HistogramddBinEdges"))


@onnx_op("pyops::HistogramddFromBinCts")
def histogramdd_from_bin_cts(
    input: NDArray[Wide],
    weight: NDArray[Wide] | None = None,
    *,
    bins: list[int],
    range: np.ndarray | None = None,
    density: bool = False,
) -> NDArray[Wide]:
    """Count the points in each bin of a grid whose bins have equal widths along each coordinate.

    As the first result of ``torch.histogramdd(input, bins, range=range, weight=weight, density=density)``.

    Parameters
    ----------
    input : array of float32 or float64
        (..., d): points.
    weight : array of the dtype of `input`, optional
        (...): what each point counts, 1 if absent.
    bins : list of int
        How many for each of the d coordinates.
    range : tensor of float64, optional
        The lowest and the highest edge for each coordinate, as float64 (2 * d,). As for
        `histograms.histogram_bin_ct` if it is absent.
    density : bool
        Whether the counts are divided by their sum and by the bins' volumes.

    Returns
    -------
    array of the dtype of `input`
        `bins`.

    Raises
    ------
    ValueError
        A range is not finite or reversed, there is no bin, or `weight` is of another shape.
    """
    _check_coordinates(input.shape, len(bins))
    points = input.reshape(-1, len(bins))
    edges = even_edges(points, bins, range, "HistogramddFromBinCts")
    return count_points(points, edges, checked_weight(input.shape[:-1], weight), density)


@onnx_op("pyops::HistogramddFromBinTensors")
def histogramdd_from_bin_tensors(
    input: NDArray[Wide], weight: NDArray[Wide] | None = None, *bins: NDArray[Wide], density: bool = False
) -> NDArray[Wide]:
    """Count the points in each bin of a grid with given edges.

    As the first result of ``torch.histogramdd(input, bins, weight=weight, density=density)``.

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
        There is no bin, or `weight` is of another shape.
    """
    _check_coordinates(input.shape, len(bins))
    for edges in bins:
        check_edges(edges.shape)
    return count_points(input.reshape(-1, len(bins)), bins, checked_weight(input.shape[:-1], weight), density)


def _check_coordinates(shape: tuple[Any, ...], count: int) -> None:
    if len(shape) < 2 or (isinstance(shape[-1], int) and shape[-1] != count):
        raise ShapeInferenceError(f"Histogram: the points are {list(shape)}; with {count} bins they are (..., {count})")


@histogramdd_bin_edges.register_shape_inference
def _(input: TensorSpec, *, bins: list[int], range: np.ndarray | None = None) -> tuple[TensorSpec, ...]:
    return tuple(input.like(shape=(count + 1,)) for count in bins)


@histogramdd_from_bin_cts.register_shape_inference
def _(input: TensorSpec, weight: TensorSpec | None = None, *, bins: list[int], **others: Any) -> TensorSpec:
    return input.like(shape=bins)


@histogramdd_from_bin_tensors.register_shape_inference
def _(input: TensorSpec, weight: TensorSpec | None = None, *bins: TensorSpec, density: bool = False) -> TensorSpec:
    return input.like(shape=[item.shape[0] - 1 for item in bins])
