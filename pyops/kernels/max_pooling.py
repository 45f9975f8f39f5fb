"""The largest values of the windows of an image or a volume, and where they are.

A window is the product of one range of positions per dimension, so that every pooling is a table of positions
(`_windows`) and one reduction over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._declarations import Float
from .average_pooling import adaptive_bounds, check_spatial

# Per dimension, the positions in each window: shape (planes or 1, windows, positions). Windows of fewer positions
# repeat their last, which changes no maximum.
Positions = NDArray[np.intp]


@onnx_op("pyops::AdaptiveMaxPool")
def adaptive_max_pool(x: NDArray[Float], *, output_size: list[int]) -> tuple[NDArray[Float], NDArray[np.int64]]:
    """Return the largest value of each window of `average_pooling.adaptive_avg_pool`, and its place.

    As ``torch.nn.functional.adaptive_max_pool1d``, ``adaptive_max_pool2d`` and ``adaptive_max_pool3d``.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (..., *spatial): as for `average_pooling.adaptive_avg_pool`.
    output_size : list of int
        As for `average_pooling.adaptive_avg_pool`.

    Returns
    -------
    values : array of the dtype of `x`
        (..., *output_size). NaN where a window has one.
    indices : array of int64
        (..., *output_size). Positions in the flattened spatial dimensions: the first of equal values, the last NaN.

    Raises
    ------
    ValueError
        A spatial dimension is empty, or there are too few.
    """
    rank = len(output_size)
    check_spatial(x, output_size, "output_size")
    bounds = map(adaptive_bounds, x.shape[x.ndim - rank :], output_size)
    return _largest(x, [_windows(starts[None], ends[None]) for starts, ends in bounds])


@onnx_op("pyops::FractionalMaxPool")
def fractional_max_pool(
    x: NDArray[Float], random_samples: NDArray[Float], *, kernel_size: list[int], output_size: list[int]
) -> tuple[NDArray[Float], NDArray[np.int64]]:
    r"""Return the largest value of each window, and its place; the windows begin at pseudo-random distances.

    Along a dimension of size n, window i of m begins at
    :math:`\lfloor \alpha (i + u) \rfloor - \lfloor \alpha u \rfloor`,
    :math:`\alpha = (n - k) / (m - 1)` for windows of k, and the last at n - k (B. Graham, "Fractional Max-Pooling",
    https://arxiv.org/abs/1412.6071).

    As ``torch.nn.functional.fractional_max_pool2d`` and ``fractional_max_pool3d``, whose random numbers are an input
    here.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (batch, channels, *spatial) or (channels, *spatial). Two or three spatial dimensions, as `kernel_size` has
        values.
    random_samples : array of the dtype of `x`
        (batch, channels, dimensions). u, from 0 to 1, for each plane and dimension. With three dimensions in their
        order; with two, the last dimension's comes first, as torch has it. A batch of 1 where `x` has none.
    kernel_size, output_size : list of int
        The size of a window, and the number of windows, along each spatial dimension.

    Returns
    -------
    values : array of the dtype of `x`
        (..., *output_size). NaN where a window has one.
    indices : array of int64
        (..., *output_size). Positions in the flattened spatial dimensions: the first of equal values, the last NaN.

    Raises
    ------
    ValueError
        The arguments do not fit the tensor.
    """
    rank = len(kernel_size)
    check_spatial(x, kernel_size, "kernel_size")
    if len(output_size) != rank:
        raise ValueError(f"kernel_size is {kernel_size} and output_size {output_size}; they are of one length")
    planes: tuple[int, ...] = x.shape[: x.ndim - rank]
    if random_samples.size != math.prod(planes) * rank:
        raise ValueError(
            f"random_samples has shape {random_samples.shape}; x has shape {x.shape}, for which it is "
            f"{(1, *planes, rank)[-3:]}"
        )
    if not np.isfinite(random_samples.astype(np.float64)).all():
        raise ValueError("random_samples are from 0 to 1, and some are infinite or NaN")
    samples = random_samples.reshape(-1, rank)
    positions = []
    for axis, (size, kernel, windows) in enumerate(zip(x.shape[-rank:], kernel_size, output_size, strict=True)):
        if windows < 1 or kernel < 1 or windows + kernel - 1 > size:
            raise ValueError(f"{windows} windows of {kernel} do not fit a dimension of size {size}")
        sample = samples[:, rank - 1 - axis if rank == 2 else axis]
        starts = _fractional_starts(sample, size, kernel, windows)
        if starts.size and not 0 <= starts.min() <= starts.max() <= size - kernel:
            raise ValueError("random_samples are from 0 to 1; some are so far from that that windows are outside of x")
        positions.append(_windows(starts, starts + kernel))
    return _largest(x, positions)


@adaptive_max_pool.register_shape_inference
@fractional_max_pool.register_shape_inference
def _(
    x: TensorSpec, *random_samples: TensorSpec, output_size: list[int], **kernel_size: Any
) -> tuple[TensorSpec, TensorSpec]:
    values = x.like(shape=(*x.shape[: -len(output_size)], *output_size))
    return values, values.like(dtype=np.int64)


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
    leading = x.shape[: x.ndim - rank]
    windows = tuple(item.shape[1] for item in positions)
    rows = x.reshape(math.prod(leading), math.prod(x.shape[x.ndim - rank :]))
    flat = _flat(positions, x.shape[x.ndim - rank :])
    flat = np.broadcast_to(flat, (len(rows), *flat.shape[1:]))
    values = np.take_along_axis(rows[:, None, :], flat, -1)
    shape = (*leading, *windows)
    if not values.size:
        return np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    chosen = _first_largest(values)[..., None]
    largest, indices = np.take_along_axis(values, chosen, -1), np.take_along_axis(flat, chosen, -1)
    return largest.reshape(shape), indices.reshape(shape).astype(np.int64)


def _flat(positions: Sequence[Positions], spatial: Sequence[int]) -> NDArray[np.intp]:
    """Return the flattened positions in each window of several dimensions: (planes or 1, windows, positions)."""
    rank = len(positions)
    flat: Any = 0
    for axis, (item, size) in enumerate(zip(positions, spatial, strict=True)):
        shape = [item.shape[0], *(1,) * (2 * rank)]
        shape[1 + axis], shape[1 + rank + axis] = item.shape[1:]
        flat = flat * size + item.reshape(shape)
    windows, sizes = flat.shape[1 : 1 + rank], flat.shape[1 + rank :]
    return np.asarray(flat.reshape(flat.shape[0], math.prod(windows), math.prod(sizes)))


def _first_largest(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of the first largest value along the last axis, or of the last NaN."""
    missing = np.isnan(values)
    last_missing = values.shape[-1] - 1 - missing[..., ::-1].argmax(-1)
    return np.asarray(np.where(missing.any(-1), last_missing, values.argmax(-1)))
