"""The inverse of the short-time Fourier transform."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._arrays import as_complex, as_pairs
from ._declarations import Wide

# Below this the sum of the squared windows cannot be divided by; torch has the same bound.
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
    return_complex: bool = False,
) -> NDArray[Wide]:
    r"""Invert a short-time Fourier transform by weighted overlap-add.

    With the inverse transforms :math:`f_m` of the frames, the window w and the hop h between frames it is
    :math:`y_t = \sum_m f_m[t - mh] w[t - mh] / \sum_m w[t - mh]^2` (D. W. Griffin and J. S. Lim, "Signal estimation
    from modified short-time Fourier transform", IEEE Trans. ASSP 32(2), 1984).

    As ``torch.istft`` with a real window.

    Parameters
    ----------
    x : array of float32 or float64
        (..., frequencies, frames, 2). Pairs of real and imaginary parts; at most one dimension before the last three.
        There are `n_fft` frequencies, or n_fft // 2 + 1 where `onesided`.
    window : array of the dtype of `x`, optional
        (win_length,). Ones by default. Zeros on both sides fill it up to `n_fft`.
    n_fft : int
        The length of a frame.
    hop_length : int, optional
        The distance of frames, n_fft // 4 by default.
    win_length : int, optional
        `n_fft` by default.
    center : bool
        Whether frame m has its middle at m * hop_length, so that n_fft // 2 values are cut off at each end.
    normalized : bool
        Whether the transform was divided by the square root of `n_fft`.
    onesided : bool, optional
        Whether the frequencies above n_fft // 2 are left out; by default, whether there are not `n_fft`.
    length : int, optional
        To which the signal is cut, or filled with zeros; by default all that the frames cover.
    return_complex : bool
        Whether the signal is complex; not where `onesided`.

    Returns
    -------
    array of the dtype of `x`
        (..., length), with `return_complex` (..., length, 2).

    Raises
    ------
    ValueError
        The arguments do not agree, or the windows leave a part of the signal (almost) uncovered.
    """
    values = as_complex(x)
    xp = array_namespace(x)
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    frequencies, frames = _checked(values, n_fft, hop, width)
    half = frequencies != n_fft if onesided is None else onesided
    if frequencies != (n_fft // 2 + 1 if half else n_fft):
        expected = f"n_fft // 2 + 1 = {n_fft // 2 + 1}" if half else f"n_fft = {n_fft}"
        raise ValueError(f"x has {frequencies} frequencies; with onesided={half} it must have {expected}")
    if length is not None and length < 0:
        raise ValueError(f"length is {length}; it is from 0 on")
    if return_complex and half:
        raise ValueError("a onesided transform gives a real signal; use return_complex=False")
    weights = _weights(xp, window, x, n_fft, width)

    values = xp.moveaxis(values, -1, -2)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        pieces = xp.fft.ifft(values, axis=-1, norm=norm)
    else:
        pieces = xp.fft.irfft(values[..., : n_fft // 2 + 1], n=n_fft, axis=-1, norm=norm)
    signal: Any = _overlap_add(xp, pieces * weights, hop)
    envelope: Any = _overlap_add(xp, xp.broadcast_to(weights * weights, (frames, n_fft)), hop)

    covered = n_fft + hop * (frames - 1)
    start = n_fft // 2 if center else 0
    end = covered - start if length is None else start + length
    signal, envelope = signal[..., start:end], envelope[start:end]
    if envelope.shape[0] and xp.min(xp.abs(envelope)) <= _SMALLEST_ENVELOPE:
        raise ValueError(
            "the windows leave a part of the signal uncovered, where the sum of their squares is (almost) 0: use a "
            "window without zeros there, a smaller hop_length, or center=True"
        )
    signal = (signal / envelope).astype(values.dtype if return_complex else x.dtype)
    if length is not None and signal.shape[-1] < length:
        missing = xp.zeros((*signal.shape[:-1], length - signal.shape[-1]), dtype=signal.dtype)
        signal = xp.concatenate([signal, missing], axis=-1)
    return as_pairs(signal) if return_complex else signal


@istft.register_shape_inference
def _(
    x: TensorSpec,
    window: TensorSpec | None = None,
    *,
    n_fft: int,
    hop_length: int | None = None,
    center: bool = True,
    length: int | None = None,
    return_complex: bool = False,
    **others: Any,
) -> TensorSpec:
    *batch, _frequencies, frames, _two = x.shape
    hop = n_fft // 4 if hop_length is None else hop_length
    covered = n_fft - 2 * (n_fft // 2 if center else 0) + hop * (frames - 1)
    return x.like(shape=(*batch, covered if length is None else length, *([2] if return_complex else [])))


def _checked(values: Any, n_fft: int, hop: int, width: int) -> tuple[int, int]:
    """Check the arguments, and return the numbers of frequencies and of frames."""
    if values.ndim not in (2, 3):
        raise ValueError(
            f"x has {values.ndim + 1} dimensions; it is (batch, frequencies, frames, 2), the batch optional"
        )
    frequencies, frames = values.shape[-2:]
    if values.size == 0:
        raise ValueError(f"x is empty: its shape is {(*values.shape, 2)}")
    if not 0 < width <= n_fft:
        raise ValueError(f"win_length is {width}; it is from 1 to n_fft, which is {n_fft}")
    if not 0 < hop <= width:
        raise ValueError(f"hop_length is {hop}; it is from 1 to win_length, which is {width}")
    return frequencies, frames


def _weights(xp: Any, window: Any, x: Any, n_fft: int, width: int) -> Any:
    if window is None:
        window = xp.ones(width, dtype=x.dtype)
    elif window.shape != (width,):
        raise ValueError(f"window has shape {window.shape}; it is (win_length,), and win_length is {width}")
    left = (n_fft - width) // 2
    return xp.pad(window, (left, n_fft - width - left))


def _overlap_add(xp: Any, pieces: Any, hop: int) -> Any:
    """Sum frames, each `hop` values after the one before."""
    *batch, frames, size = pieces.shape
    blocks = -(-size // hop)
    padded = xp.pad(pieces, [(0, 0)] * (pieces.ndim - 1) + [(0, blocks * hop - size)])
    padded = padded.reshape(*batch, frames, blocks, hop)
    total = xp.zeros((*batch, frames + blocks - 1, hop), dtype=pieces.dtype)
    for block in range(blocks):
        total[..., block : block + frames, :] += padded[..., block, :]
    return total.reshape(*batch, -1)[..., : size + hop * (frames - 1)]
