"""Sampling an image or a volume at given places."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._arrays import widened
from ._declarations import Float

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2

# The coefficient of cubic convolution.
_A = -0.75


@onnx_op("pyops::GridSample")
def grid_sample(
    x: NDArray[Float],
    grid: NDArray[Float],
    *,
    interpolation_mode: int = 0,
    padding_mode: int = 0,
    align_corners: bool = False,
) -> NDArray[Float]:
    """Sample an image or a volume at the places that a grid gives.

    As ``torch.nn.functional.grid_sample``, with its numbers for the modes. A coordinate of NaN counts as -1 where there
    is padding other than zeros, and so does an infinite one under reflection; torch is not of one mind there.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (batch, channels, *spatial). One, two or three spatial dimensions.
    grid : array of the dtype of `x`
        (batch, *places, dimensions). Places, the coordinate of the last spatial dimension first; -1 and 1 are the two
        ends of each dimension.
    interpolation_mode : int
        0 is linear between the neighbouring values along each dimension, 1 takes the nearest (of two equally near the
        even), 2 is cubic convolution with a = -0.75 (R. G. Keys, IEEE Trans. ASSP 29(6), 1981; two dimensions only).
    padding_mode : int
        What lies outside: 0 is zeros, 1 the value at the border, 2 the image reflected at its ends, again and again.
    align_corners : bool
        Whether -1 and 1 are the centres of the outer values, or the outer edges of their cells. Reflections follow.

    Returns
    -------
    array of the dtype of `x`
        (batch, channels, *places).

    Raises
    ------
    ValueError
        The shapes do not fit, a spatial dimension is empty, or a mode is unknown.
    """
    rank = x.ndim - 2
    _check(x, grid, rank, interpolation_mode, padding_mode)
    values, places = (widened(item) for item in (x, grid))
    sides = []
    with np.errstate(all="ignore"):  # a place may be infinite or NaN
        for axis, size in enumerate(x.shape[2:]):
            padded = functools.partial(_padded, size=size, mode=padding_mode, align_corners=align_corners)
            position = _unnormalized(places[..., rank - 1 - axis], size, align_corners)
            # A cubic's neighbours are padded one by one.
            place = position if interpolation_mode == _CUBIC else padded(position)
            sides.append([(padded(index), weight) for index, weight in _neighbours(place, interpolation_mode)])
        return _weighted_sum(values, sides).astype(x.dtype)


@grid_sample.register_shape_inference
def _(x: TensorSpec, grid: TensorSpec, **modes: Any) -> TensorSpec:
    return x.like(shape=(*x.shape[:2], *grid.shape[1:-1]))


def _check(x: NDArray[Any], grid: NDArray[Any], rank: int, interpolation_mode: int, padding_mode: int) -> None:
    if rank not in (1, 2, 3) or grid.ndim != x.ndim or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise ValueError(
            f"x has shape {x.shape} and grid {grid.shape}; they are (batch, channels, *spatial) and "
            "(batch, *places, dimensions), with one to three spatial dimensions"
        )
    if 0 in x.shape[2:]:
        raise ValueError(f"x has shape {x.shape}; its spatial dimensions must not be empty")
    if interpolation_mode not in (_LINEAR, _NEAREST, _CUBIC) or (interpolation_mode == _CUBIC and rank != 2):
        raise ValueError(
            f"interpolation_mode is {interpolation_mode}, for {rank} spatial dimensions; it is 0 (linear), 1 (nearest) "
            "or, for two dimensions, 2 (cubic)"
        )
    if padding_mode not in (_ZEROS, _BORDER, _REFLECTION):
        raise ValueError(f"padding_mode is {padding_mode}; it is 0 (zeros), 1 (border) or 2 (reflection)")


def _unnormalized(places: NDArray[Any], size: int, align_corners: bool) -> NDArray[Any]:
    """Map places from -1 to 1 to positions from 0 to size - 1."""
    one = places.dtype.type(1)
    return np.asarray((places + one) / 2 * (size - 1) if align_corners else ((places + one) * size - one) / 2)


def _padded(position: NDArray[Any], size: int, mode: int, align_corners: bool) -> NDArray[Any]:
    """Move positions outside to those inside whose values they have; padding of zeros has none."""
    if mode == _ZEROS:
        return position
    if mode == _REFLECTION:
        position = _reflected(position, *((0, size - 1) if align_corners else (-0.5, size)))
    return np.asarray(np.fmin(np.fmax(position, 0), size - 1), position.dtype)


def _reflected(position: NDArray[Any], low: float, span: float) -> NDArray[Any]:
    """Reflect positions at `low` and at `low + span`, again and again."""
    if span == 0:
        return np.zeros_like(position)
    return low + span - np.abs(np.mod(position - low, 2 * span) - span)


def _neighbours(place: NDArray[Any], mode: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return the positions whose values are summed, and their weights."""
    if mode == _NEAREST:
        return [(np.rint(place), np.ones_like(place))]
    below = np.floor(place)
    if mode == _LINEAR:
        return [(below, below + 1 - place), (below + 1, place - below)]
    return [(below + offset, _cubic_weight(np.abs(place - below - offset))) for offset in (-1, 0, 1, 2)]


def _cubic_weight(distance: NDArray[Any]) -> NDArray[Any]:
    near = ((_A + 2) * distance - (_A + 3)) * distance * distance + 1
    far = ((_A * distance - 5 * _A) * distance + 8 * _A) * distance - 4 * _A
    return np.asarray(np.where(distance <= 1, near, far), distance.dtype)


def _weighted_sum(values: NDArray[Any], sides: list[list[tuple[NDArray[Any], NDArray[Any]]]]) -> NDArray[Any]:
    """Sum weight times value over all neighbours, one per dimension; values outside are 0."""
    batch, channels, *spatial = values.shape
    places = sides[0][0][0].shape[1:]
    rows = values.reshape(batch, channels, math.prod(spatial))
    count = math.prod(places)
    total = np.zeros((batch, channels, count), values.dtype)
    for corner in itertools.product(*sides):
        flat: Any = np.zeros((batch, *places), np.intp)
        inside: Any = True
        weight: Any = values.dtype.type(1)
        for (index, part), size in zip(corner, spatial, strict=True):
            within = (index >= 0) & (index <= size - 1)
            flat = flat * size + np.where(within, index, 0).astype(np.intp)
            inside, weight = inside & within, weight * part
        found = np.take_along_axis(rows, flat.reshape(batch, 1, count), -1)
        factor = np.where(inside, weight, 0).astype(values.dtype).reshape(batch, 1, count)
        total += np.where(inside.reshape(batch, 1, count), found * factor, values.dtype.type(0))
    return total.reshape(batch, channels, *places)
