"""The largest values, and their positions, of the windows of an image or a volume.

A window is the product of one range of positions per dimension, so it can be reduced along one dimension after the
other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import onnx_op
from ..shapes import TensorSpec
from ._declarations import Float

# Per dimension, the positions in each window: shape (planes or 1, windows, positions). Windows of fewer positions
# repeat their last, which changes no maximum.
Positions = NDArray[np.intp]


@onnx_op("pyops::AdaptiveMaxPool")
def adaptive_max_pool(x: NDArray[Float], *, output_size: list[int]) -> tuple[NDArray[Float], NDArray[np.int64]]:
    """Return the largest value of each window, and its position; windows of about equal size cover the whole image.

    Window i of m along a dimension of size n holds the positions from floor(i n / m) to ceil((i + 1) n / m) - 1.

    As ``torch.nn.functional.adaptive_max_pool1d``, ``adaptive_max_pool2d`` and ``adaptive_max_pool3d``.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (..., *spatial). As many spatial dimensions as `output_size` has values, after the channels and an optional
        batch.
    output_size : list of int
        The number of windows along each spatial dimension.

    Returns
    -------
    values : array of the dtype of `x`
        (..., *output_size). NaN where a window has one.
    indices : array of int64
        (..., *output_size). Positions in the flattened spatial dimensions: of equal values the first, of NaNs the last.

    Raises
    ------
    ValueError
        A spatial dimension is empty, or `x` has too few dimensions.
    """
    rank = len(output_size)
    _check_spatial(x, output_size, "output_size")
    bounds = map(_adaptive_bounds, x.shape[x.ndim - rank :], output_size)
    return _largest(x, [_windows(starts[None], ends[None]) for starts, ends in bounds])


@onnx_op("pyops::FractionalMaxPool")
def fractional_max_pool(
    x: NDArray[Float], random_samples: NDArray[Float], *, kernel_size: list[int], output_size: list[int]
) -> tuple[NDArray[Float], NDArray[np.int64]]:
    r"""Return the largest value of each window, and its position; the windows begin at pseudo-random distances.

    Along a dimension of size n, window i of m begins at
    :math:`\lfloor \alpha (i + u) \rfloor - \lfloor \alpha u \rfloor`,
    :math:`\alpha = (n - k) / (m - 1)` for windows of k, and the last at n - k (B. Graham, "Fractional Max-Pooling",
    https://arxiv.org/abs/1412.6071).

    As ``torch.nn.functional.fractional_max_pool2d`` and ``fractional_max_pool3d``, whose random numbers are an input
    here.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (batch, channels, *spatial) or (channels, *spatial). Two or three spatial dimensions, as many as `kernel_size`
        has values.
    random_samples : array of the dtype of `x`
        (batch, channels, dimensions). u, from 0 to 1, for each plane and dimension. Three dimensions are in their
        order; of two, the last one comes first, as in torch. A batch of 1 where `x` has none.
    kernel_size, output_size : list of int
        The size of a window, and the number of windows, along each spatial dimension.

    Returns
    -------
    values : array of the dtype of `x`
        (..., *output_size). NaN where a window has one.
    indices : array of int64
        (..., *output_size). Positions in the flattened spatial dimensions: of equal values the first, of NaNs the last.

    Raises
    ------
    ValueError
        The arguments do not fit the tensor.
    """
    rank = len(kernel_size)
    _check_spatial(x, kernel_size, "kernel_size")
    if len(output_size) != rank:
        raise ValueError(f"kernel_size is {kernel_size} and output_size {output_size}; they must have the same length")
    planes: tuple[int, ...] = x.shape[: x.ndim - rank]
    if random_samples.size != math.prod(planes) * rank:
        raise ValueError(
            f"random_samples has shape {random_samples.shape}; x has shape {x.shape}, for which it must be "
            f"{(1, *planes, rank)[-3:]}"
        )
    if not np.isfinite(random_samples.astype(np.float64)).all():
        raise ValueError("random_samples must be from 0 to 1; some are infinite or NaN")
    samples = random_samples.reshape(-1, rank)
    positions = []
    for axis, (size, kernel, windows) in enumerate(zip(x.shape[-rank:], kernel_size, output_size, strict=True)):
        if windows < 1 or kernel < 1 or windows + kernel - 1 > size:
            raise ValueError(f"{windows} windows of {kernel} do not fit a dimension of size {size}")
        sample = samples[:, rank - 1 - axis if rank == 2 else axis]
        starts = _fractional_starts(sample, size, kernel, windows)
        if starts.size and not 0 <= starts.min() <= starts.max() <= size - kernel:
            raise ValueError("random_samples must be from 0 to 1; with some of these, windows are outside of x")
        positions.append(_windows(starts, starts + kernel))
    return _largest(x, positions)


@adaptive_max_pool.register_shape_inference
@fractional_max_pool.register_shape_inference
def _(x: TensorSpec, *samples: Any, output_size: list[int], **kernel_size: Any) -> tuple[TensorSpec, TensorSpec]:
    values = x.like(shape=(*x.shape[: -len(output_size)], *output_size))
    return values, values.like(dtype=np.int64)


def _check_spatial(x: NDArray[Any], sizes: list[int], name: str) -> None:
    """Raise a ValueError unless the input has a non-empty spatial dimension for each size."""
    rank = len(sizes)
    if any(size < 0 for size in sizes):
        raise ValueError(f"{name} is {sizes}; sizes must not be negative")
    if not 0 < rank <= x.ndim or 0 in x.shape[x.ndim - rank :]:
        raise ValueError(
            f"x has shape {x.shape}; its last dimensions, as many as {name} has numbers ({rank}), must not be empty"
        )


def _adaptive_bounds(size: int, windows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where each of the windows that cover a dimension begins and ends."""
    numbers = np.arange(windows)
    return numbers * size // windows, -(-(numbers + 1) * size // windows)


def _fractional_starts(sample: NDArray[Any], size: int, kernel: int, windows: int) -> NDArray[np.intp]:
    """Return where each window begins, shape (planes, windows), computed in the samples' precision as in torch."""
    starts = np.full((len(sample), windows), size - kernel, np.intp)
    if windows > 1:
        sample = sample[:, None]
        alpha = sample.dtype.type(size - kernel) / sample.dtype.type(windows - 1)
        numbers = np.arange(windows - 1).astype(sample.dtype)
        starts[:, :-1] = ((numbers + sample) * alpha).astype(np.intp) - (sample * alpha).astype(np.intp)
    return starts


def _windows(starts: NDArray[np.intp], ends: NDArray[np.intp]) -> Positions:
    size = int((ends - starts).max(initial=0))
    return np.asarray(np.minimum(starts[..., None] + np.arange(size), ends[..., None] - 1))


def _largest(x: NDArray[Any], positions: Sequence[Positions]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    rank = len(positions)
    leading, spatial = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    shape = (*leading, *(item.shape[1] for item in positions))
    if not math.prod(shape):
        return np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    values = x.reshape(math.prod(leading), *spatial)
    places = np.broadcast_to(np.arange(math.prod(spatial)).reshape(spatial), values.shape)
    # From the last dimension to the first, so that the first of equal values is the one with the lowest place.
    for axis in range(rank, 0, -1):
        planes, count, size = positions[axis - 1].shape
        windows = positions[axis - 1].reshape(planes, *[1] * (rank - 1), count, size)
        rows = (np.moveaxis(item, axis, -1)[..., None, :] for item in (values, places))
        found = [np.take_along_axis(item, windows, -1) for item in rows]
        chosen = _first_largest(found[0])[..., None]
        values, places = (np.moveaxis(np.take_along_axis(item, chosen, -1)[..., 0], -1, axis) for item in found)
    return values.reshape(shape), places.reshape(shape).astype(np.int64)


def _first_largest(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of the first largest value along the last axis, or of the last NaN."""
    missing = np.isnan(values)
    last_missing = values.shape[-1] - 1 - missing[..., ::-1].argmax(-1)
    return np.asarray(np.where(missing.any(-1), last_missing, values.argmax(-1)))
