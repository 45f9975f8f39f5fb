"""Discrete Fourier transforms over any dimensions, and the inverse of the short-time transform.

All transforms of ``torch.fft`` are one of three ops: complex to complex, real to complex, or complex to real. What
torch calls ``norm`` and ``n`` is `normalization` and `s` here. The formulas are those of
https://pytorch.org/docs/stable/fft.html.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import onnx_op
from ..shapes import TensorSpec, new_dim
from ._arrays import as_complex, as_pairs, axes_of
from ._declarations import Wide

NORMS = {True: ("backward", "ortho", "forward"), False: ("forward", "ortho", "backward")}
"""What NumPy and torch call the factors 1, 1/sqrt(n) and 1/n, for the forward (True) and the backward transform."""


@onnx_op("pyops::FftC2c", device_types=("cpu", "cuda"))
def fft_c2c(
    x: NDArray[Wide],
    s: NDArray[np.int64] | None = None,
    *,
    dim: list[int],
    normalization: int = 0,
    forward: bool = True,
) -> NDArray[Wide]:
    r"""Compute the Fourier transform of complex values over some dimensions.

    Along each of them :math:`X_k = \sum_{j=0}^{n-1} x_j e^{\mp 2\pi ijk/n}`; the minus sign is that of the forward
    transform.

    As ``torch.fft.fft``, ``ifft``, ``fft2``, ``ifft2``, ``fftn`` and ``ifftn`` of a complex tensor.

    Parameters
    ----------
    x : array of float32 or float64
        (..., 2). Pairs of real and imaginary parts.
    s : array of int64, optional
        (k,). The sizes to which `x` is cut or padded with zeros, at the end of each dimension in `dim`. -1 leaves a
        size as it is; without `s`, all stay.
    dim : list of int
        (k,). The dimensions to transform, each once. Negative ones count from the end; the dimension of the pairs does
        not count.
    normalization : int
        The factor of the result, where n is the product of the transformed sizes: 0 is 1, 1 is 1/sqrt(n), 2 is 1/n.
    forward : bool
        Whether it is the forward transform or the backward one.

    Returns
    -------
    array of the dtype of `x`
        (..., 2). Pairs again, of the sizes in `s`.

    Raises
    ------
    ValueError
        A transformed size is 0, or `dim` or `normalization` is out of its range.
    """
    values = as_complex(x)
    sizes = _sizes(values.shape, dim, s)
    xp = array_namespace(x)
    transform, norm = xp.fft.fftn if forward else xp.fft.ifftn, _norm(normalization, forward)
    # Without dimensions nothing is transformed.
    result = transform(values, s=sizes, axes=dim, norm=norm) if dim else values
    return as_pairs(result.astype(values.dtype))


@fft_c2c.register_shape_inference
def _(x: TensorSpec, s: TensorSpec | None = None, *, dim: list[int], **others: Any) -> TensorSpec:
    return x.like(shape=(*_resized(x.shape[:-1], s, dim), 2))


@onnx_op("pyops::FftR2c", device_types=("cpu", "cuda"))
def fft_r2c(
    x: NDArray[Wide],
    s: NDArray[np.int64] | None = None,
    *,
    dim: list[int],
    normalization: int = 0,
    forward: bool = True,
) -> NDArray[Wide]:
    r"""Compute the first half of the Fourier transform of real values over some dimensions.

    As ``torch.fft.rfft``, ``rfft2`` and ``rfftn``; backward, as ``ihfft``, ``ihfft2`` and ``ihfftn``.

    Parameters
    ----------
    x : array of float32 or float64
        (...).
    s : array of int64, optional
        As for `fft_c2c`.
    dim : list of int
        As for `fft_c2c`; not empty.
    normalization : int
        As for `fft_c2c`.
    forward : bool
        As for `fft_c2c`.

    Returns
    -------
    array of the dtype of `x`
        (..., 2). Pairs of real and imaginary parts, one dimension more than `x` has. Along the last dimension in `dim`
        they are the first n // 2 + 1 of n; the others are conjugates of these.

    Raises
    ------
    ValueError
        As for `fft_c2c`.
    """
    _check_half(dim)
    sizes = _sizes(x.shape, dim, s)
    xp = array_namespace(x)
    complex_dtype = np.result_type(x.dtype, np.complex64)
    # The backward transform of real values is the conjugate of the forward one.
    values = xp.fft.rfftn(x, s=sizes, axes=dim, norm=_norm(normalization, forward=True))
    return as_pairs((values if forward else xp.conj(values)).astype(complex_dtype))


@fft_r2c.register_shape_inference
def _(x: TensorSpec, s: Any = None, *, dim: list[int], **others: Any) -> TensorSpec:
    _check_half(dim)
    shape = list(_resized(x.shape, s, dim))
    shape[dim[-1]] = shape[dim[-1]] // 2 + 1
    return x.like(shape=(*shape, 2))


@onnx_op("pyops::FftC2r", device_types=("cpu", "cuda"))
def fft_c2r(
    x: NDArray[Wide],
    s: NDArray[np.int64] | None = None,
    *,
    dim: list[int],
    normalization: int = 0,
    forward: bool = False,
) -> NDArray[Wide]:
    r"""Compute the Fourier transform whose result is real, from half of its complex input.

    As ``torch.fft.irfft``, ``irfft2`` and ``irfftn``; forward, as ``hfft``, ``hfft2`` and ``hfftn``.

    Parameters
    ----------
    x : array of float32 or float64
        (..., 2). Pairs of real and imaginary parts. Along the last dimension in `dim` they are the first n // 2 + 1 of
        n values, whose others are their conjugates. The imaginary parts of those that are their own conjugates are
        ignored.
    s : array of int64, optional
        (k,). The sizes of the result along `dim`; to these, or n // 2 + 1 for the last, `x` is cut or padded with
        zeros. -1 leaves a size as it is, and the last then is 2 (m - 1) where `x` has m.
    dim : list of int
        As for `fft_c2c`; not empty.
    normalization : int
        As for `fft_c2c`.
    forward : bool
        As for `fft_c2c`.

    Returns
    -------
    array of the dtype of `x`
        Real values, one dimension less than `x` has.

    Raises
    ------
    ValueError
        As for `fft_c2c`.
    """
    _check_half(dim)
    values: Any = as_complex(x)
    sizes = _sizes(values.shape, dim, s, half=True)
    xp = array_namespace(x)
    # The forward transform is the backward one of the conjugates.
    half = xp.conj(values) if forward else values
    return xp.fft.irfftn(half, s=sizes, axes=dim, norm=_norm(normalization, forward=False)).astype(x.dtype)


@fft_c2r.register_shape_inference
def _(x: TensorSpec, s: TensorSpec | None = None, *, dim: list[int], **others: Any) -> TensorSpec:
    _check_half(dim)
    shape = list(_resized(x.shape[:-1], s, dim))
    if s is None:
        shape[dim[-1]] = 2 * (shape[dim[-1]] - 1)
    return x.like(shape=shape)


def _resized(shape: tuple[Any, ...], s: TensorSpec | None, dim: list[int]) -> tuple[Any, ...]:
    resized = {axis % len(shape) for axis in dim} if s is not None else ()
    return tuple(new_dim() if axis in resized else size for axis, size in enumerate(shape))


def _check_half(dim: list[int]) -> None:
    """Raise ValueError if there is no dimension of which to take half."""
    if not dim:
        raise ValueError("dim is empty; half of a transform needs a dimension")


def _sizes(shape: tuple[int, ...], dim: list[int], s: NDArray[np.int64] | None, half: bool = False) -> list[int]:
    """Check `dim`, and return the sizes to transform."""
    sizes = [shape[axis] for axis in axes_of(dim, len(shape))] if dim else []
    if half:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if s is not None:
        sizes = [size if asked == -1 else int(asked) for size, asked in zip(sizes, s, strict=True)]
    return sizes


def _norm(normalization: int, forward: bool) -> str:
    if normalization not in (0, 1, 2):
        raise ValueError(f"normalization is {normalization}; it must be 0, 1 or 2, for a factor of 1, 1/sqrt(n) or 1/n")
    return NORMS[forward][normalization]


# A smaller sum of squared windows is too small to divide by; torch has the same bound.
_SMALLEST_ENVELOPE = 1e-11


@onnx_op("pyops::Istft", device_types=("cpu", "cuda"))
def istft(
    x: NDArray[Wide],
    window: NDArray[Wide] | None = None,
    *,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
) -> NDArray[Wide]:
    r"""Invert a short-time Fourier transform by weighted overlap-add.

    With the inverse transforms :math:`f_m` of the frames, the window w and the hop h between frames, the signal is
    :math:`y_t = \sum_m f_m[t - mh] w[t - mh] / \sum_m w[t - mh]^2` (D. W. Griffin and J. S. Lim, "Signal estimation
    from modified short-time Fourier transform", IEEE Trans. ASSP 32(2), 1984).

    As ``torch.istft`` of a real signal with a real window.

    Parameters
    ----------
    x : array of float32 or float64
        (..., frequencies, frames, 2). Pairs of real and imaginary parts; at most one dimension before the last three.
        There are `n_fft` frequencies, or n_fft // 2 + 1 where `onesided`.
    window : array of the dtype of `x`, optional
        (win_length,). Ones by default. Padded with zeros on both sides to `n_fft`.
    n_fft : int
        The length of a frame.
    hop_length : int, optional
        The distance between frames, n_fft // 4 by default.
    win_length : int, optional
        `n_fft` by default.
    center : bool
        Whether frame m has its middle at m * hop_length, so that n_fft // 2 values are cut off at each end.
    normalized : bool
        Whether the transform was divided by the square root of `n_fft`.
    onesided : bool, optional
        Whether the frequencies above n_fft // 2 are left out; by default, unless there are `n_fft` frequencies.
    length : int, optional
        The length to which the signal is cut or padded with zeros; by default, all that the frames cover.

    Returns
    -------
    array of the dtype of `x`
        (..., length).

    Raises
    ------
    ValueError
        The arguments do not agree, or the windows leave a part of the signal (almost) uncovered.
    """
    values: Any = as_complex(x)
    if values.ndim not in (2, 3) or not values.size:
        raise ValueError(f"x has shape {x.shape}; it must be ([batch,] frequencies, frames, 2) and not empty")
    frequencies, frames = values.shape[-2:]
    hop = n_fft // 4 if hop_length is None else hop_length
    half = frequencies != n_fft if onesided is None else onesided
    if frequencies != (n_fft // 2 + 1 if half else n_fft):
        expected = f"n_fft // 2 + 1 = {n_fft // 2 + 1}" if half else f"n_fft = {n_fft}"
        raise ValueError(f"x has {frequencies} frequencies; with onesided={half} it must have {expected}")
    if length is not None and length < 0:
        raise ValueError(f"length is {length}; it must be at least 0")
    weights = _weights(window, x, n_fft, n_fft if win_length is None else win_length, hop)

    xp = array_namespace(x)
    values = xp.moveaxis(values, -1, -2)
    norm = "ortho" if normalized else "backward"
    pieces = xp.fft.irfft(values[..., : n_fft // 2 + 1], n=n_fft, axis=-1, norm=norm)
    signal: Any = _overlap_add(xp, pieces * weights, hop)
    envelope: Any = _overlap_add(xp, xp.broadcast_to(weights * weights, (frames, n_fft)), hop)

    start = n_fft // 2 if center else 0
    end = signal.shape[-1] - start if length is None else start + length
    signal, envelope = signal[..., start:end], envelope[start:end]
    if envelope.size and xp.min(envelope) <= _SMALLEST_ENVELOPE:
        raise ValueError(
            "the windows leave a part of the signal uncovered, where the sum of their squares is (almost) 0: use a "
            "window without zeros there, a smaller hop_length, or center=True"
        )
    signal = (signal / envelope).astype(x.dtype)
    if length is not None:
        signal = xp.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(0, length - signal.shape[-1])])
    return signal


@istft.register_shape_inference
def _(
    x: TensorSpec,
    window: TensorSpec | None = None,
    *,
    n_fft: int,
    hop_length: int | None = None,
    center: bool = True,
    length: int | None = None,
    **others: Any,
) -> TensorSpec:
    *batch, _frequencies, frames, _two = x.shape
    hop = n_fft // 4 if hop_length is None else hop_length
    covered = n_fft - 2 * (n_fft // 2 if center else 0) + hop * (frames - 1)
    return x.like(shape=(*batch, covered if length is None else length))


def _weights(window: Any, x: Any, n_fft: int, width: int, hop: int) -> Any:
    """Return the window, padded with zeros to the length of a frame."""
    xp = array_namespace(x)
    if not 0 < width <= n_fft:
        raise ValueError(f"win_length is {width}; it must be from 1 to n_fft, which is {n_fft}")
    if not 0 < hop <= width:
        raise ValueError(f"hop_length is {hop}; it must be from 1 to win_length, which is {width}")
    if window is not None and window.shape != (width,):
        raise ValueError(f"window has shape {window.shape}; it must be (win_length,), and win_length is {width}")
    left = (n_fft - width) // 2
    return xp.pad(xp.ones(width, dtype=x.dtype) if window is None else window, (left, n_fft - width - left))


def _overlap_add(xp: Any, pieces: Any, hop: int) -> Any:
    """Sum frames, each `hop` values after the one before."""
    *batch, frames, size = pieces.shape
    total = xp.zeros((*batch, size + hop * (frames - 1)), dtype=pieces.dtype)
    for frame in range(frames):
        total[..., frame * hop : frame * hop + size] += pieces[..., frame, :]
    return total
