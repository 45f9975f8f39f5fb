"""The means of the windows of an image or a volume, summed along one dimension after the other."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec, new_dim

from ._arrays import widened
from ._declarations import Float

N = TypeVar("N", np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int64)


@onnx_op("pyops::AvgPool")
def avg_pool(
    x: NDArray[N],
    *,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | None = None,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> NDArray[N]:
    """Average each window of a regular grid of windows.

    As ``torch.nn.functional.avg_pool1d``, ``avg_pool2d`` and ``avg_pool3d``.

    Parameters
    ----------
    x : array of float16, bfloat16, float32, float64 or int64
        (..., *spatial). As many spatial dimensions as `kernel_size` has values, 1 to 3; the channels, and with or
        without a batch, before them.
    kernel_size : list of int
        The size of a window along each spatial dimension.
    stride : list of int, optional
        The distance of windows; `kernel_size` by default.
    padding : list of int, optional
        How many zeros to add at both ends of each dimension, at most half of the window; none by default.
    ceil_mode : bool
        Whether a window that reaches beyond the padding at the end counts. One that would begin in that padding never
        does.
    count_include_pad : bool
        Whether the divisor counts the padding's zeros. What lies beyond the padding never counts.
    divisor_override : int, optional
        The divisor, whatever a window holds; not 0.

    Returns
    -------
    array of the dtype of `x`
        (..., *windows). With ``windows = (size + 2 * padding - kernel_size) / stride + 1``, rounded down, or up with
        `ceil_mode`. Integers are divided towards zero.

    Raises
    ------
    ValueError
        The arguments do not fit the tensor, or the divisor is 0.
    """
    rank = len(kernel_size)
    strides, pads = _grid(x, kernel_size, stride, padding)
    if divisor_override == 0:
        raise ValueError("divisor_override is 0; leave it out, or give another number")
    total, counts = widened(x), []
    for axis, (kernel, step, pad) in enumerate(zip(kernel_size, strides, pads, strict=True), x.ndim - rank):
        size = x.shape[axis]
        windows = _window_count(size, kernel, step, pad, ceil_mode)
        starts = np.arange(windows) * step - pad
        ends = np.minimum(starts + kernel, size + pad)
        inside = np.maximum(starts, 0), np.minimum(ends, size)
        counts.append(ends - starts if count_include_pad else inside[1] - inside[0])
        total = _window_sums(total, axis, *inside)
    divisor = math.prod(np.ix_(*counts)) if divisor_override is None else divisor_override
    if x.dtype.kind == "i":
        return np.asarray(np.sign(total) * np.sign(divisor) * (np.abs(total) // np.abs(divisor)), x.dtype)
    return np.asarray(total / np.asarray(divisor, total.dtype), x.dtype)


@avg_pool.register_shape_inference
def _(
    x: TensorSpec,
    *,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | None = None,
    ceil_mode: bool = False,
    **divisors: Any,
) -> TensorSpec:
    rank = len(kernel_size)
    grid = zip(x.shape[-rank:], kernel_size, stride or kernel_size, padding or [0] * rank, strict=True)
    windows = [_window_count(*item, ceil_mode) if isinstance(item[0], int) else new_dim() for item in grid]
    return x.like(shape=(*x.shape[:-rank], *windows))


@onnx_op("pyops::AdaptiveAvgPool")
def adaptive_avg_pool(x: NDArray[Float], *, output_size: list[int]) -> NDArray[Float]:
    """Average each of a number of windows of about equal size that cover the whole image.

    Window i of m along a dimension of size n holds the positions from floor(i n / m) up to, without it,
    ceil((i + 1) n / m).

    As ``torch.nn.functional.adaptive_avg_pool1d``, ``adaptive_avg_pool2d`` and ``adaptive_avg_pool3d``.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (..., *spatial). As many spatial dimensions as `output_size` has values; the channels, and with or without a
        batch, before them.
    output_size : list of int
        The number of windows along each spatial dimension.

    Returns
    -------
    array of the dtype of `x`
        (..., *output_size).

    Raises
    ------
    ValueError
        A spatial dimension is empty, or there are too few.
    """
    check_spatial(x, output_size, "output_size")
    total, counts = widened(x), []
    for axis, windows in enumerate(output_size, x.ndim - len(output_size)):
        starts, ends = adaptive_bounds(x.shape[axis], windows)
        counts.append(ends - starts)
        total = _window_sums(total, axis, starts, ends)
    divisor = np.asarray(math.prod(np.ix_(*counts)), total.dtype)
    return np.asarray(total / divisor, x.dtype)


@adaptive_avg_pool.register_shape_inference
def _(x: TensorSpec, *, output_size: list[int]) -> TensorSpec:
    return x.like(shape=(*x.shape[: x.ndim - len(output_size)], *output_size))


def check_spatial(x: NDArray[Any], sizes: list[int], name: str) -> None:
    """Raise a ValueError unless the input has a spatial dimension that is not empty for each of the sizes."""
    rank = len(sizes)
    if any(size < 0 for size in sizes):
        raise ValueError(f"{name} is {sizes}; sizes are not negative")
    if not 0 < rank <= x.ndim or 0 in x.shape[x.ndim - rank :]:
        raise ValueError(
            f"x has shape {x.shape}; by its {name} it has {rank} spatial dimensions at the end, none of them empty"
        )


def adaptive_bounds(size: int, windows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where each of the windows that cover a dimension begins and ends."""
    numbers = np.arange(windows)
    return numbers * size // windows, -(-(numbers + 1) * size // windows)


def _grid(
    x: NDArray[Any], kernel_size: list[int], stride: list[int] | None, padding: list[int] | None
) -> tuple[list[int], list[int]]:
    rank = len(kernel_size)
    strides, pads = stride or kernel_size, padding or [0] * rank
    if not 0 < rank <= x.ndim or len(strides) != rank or len(pads) != rank:
        raise ValueError(
            f"kernel_size is {kernel_size}, stride {stride} and padding {padding}, for a tensor of shape {x.shape}; "
            "each has one number for each spatial dimension"
        )
    windows = zip(kernel_size, strides, pads, strict=True)
    if not all(kernel > 0 and step > 0 and 0 <= pad <= kernel // 2 for kernel, step, pad in windows):
        raise ValueError(
            f"kernel_size is {kernel_size}, stride {strides} and padding {pads}; windows and strides are positive, and "
            "the padding is at most half of the window"
        )
    return strides, pads


def _window_count(size: int, kernel: int, step: int, pad: int, ceil_mode: bool) -> int:
    room = size + 2 * pad - kernel
    count = (-(-room // step) if ceil_mode else room // step) + 1
    if ceil_mode and (count - 1) * step >= size + pad:
        count -= 1
    if count < 1:
        raise ValueError(f"a window of {kernel} does not fit a dimension of size {size} padded by {pad}")
    return count


def _window_sums(x: NDArray[Any], axis: int, starts: NDArray[np.intp], ends: NDArray[np.intp]) -> NDArray[Any]:
    """Sum each window along one axis."""
    if not len(starts):
        return np.take(x, starts, axis)
    # Windows may overlap, and many large ones have more positions together than fit into memory.
    empty = (starts >= ends).reshape(-1, *[1] * (x.ndim - axis - 1))
    one_more = [(0, int(i == axis)) for i in range(x.ndim)]  # where a window ends that reaches to the end
    bounds = np.stack([np.minimum(starts, ends), ends], 1).reshape(-1)
    with np.errstate(all="ignore"):
        sums = np.add.reduceat(np.pad(x, one_more), bounds, axis, dtype=x.dtype)
    return np.where(empty, x.dtype.type(0), np.take(sums, np.arange(0, len(bounds), 2), axis))
