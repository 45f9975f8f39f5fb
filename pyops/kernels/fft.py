"""Discrete Fourier transforms over any dimensions: complex to complex, real to complex and complex to real.

These three carry all functions of ``torch.fft`` that transform; what those call ``norm`` and ``n`` are `normalization`
and `s` here. The sums are those of the page https://pytorch.org/docs/stable/fft.html.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec, new_dim

from ._arrays import as_complex, as_pairs
from ._declarations import Wide

NORMS = {True: ("backward", "ortho", "forward"), False: ("forward", "ortho", "backward")}
"""What NumPy and torch call the factors 1, 1/sqrt(n) and 1/n, by whether it is the forward transform."""


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

    Along each of them :math:`X_k = \sum_{j=0}^{n-1} x_j e^{\mp 2\pi ijk/n}`, with the minus sign forward.

    As ``torch.fft.fft``, ``ifft``, ``fft2``, ``ifft2``, ``fftn`` and ``ifftn`` of a complex tensor.

    Parameters
    ----------
    x : array of float32 or float64
        (..., 2). Pairs of real and imaginary parts.
    s : array of int64, optional
        (k,). The sizes to which `x` is cut or filled with zeros, at the end of each dimension in `dim`; -1 leaves a
        size as it is, as do all without `s`.
    dim : list of int
        (k,). The dimensions to transform, each once. Negative ones count from the end; pairs are no dimension of their
        own.
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
    transform = xp.fft.fftn if forward else xp.fft.ifftn
    result = _transformed(transform, values, sizes, dim, _norm(normalization, forward))
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
    onesided: bool = True,
    forward: bool = True,
) -> NDArray[Wide]:
    r"""Compute the Fourier transform of real values over some dimensions.

    As ``torch.fft.rfft``, ``rfft2`` and ``rfftn``; not onesided ``fft``, ``fft2`` and ``fftn`` of a real tensor; not
    forward ``ihfft``, ``ihfft2``, ``ihfftn`` and, not onesided, ``ifft``, ``ifft2`` and ``ifftn``.

    Parameters
    ----------
    x : array of float32 or float64
        (...).
    s : array of int64, optional
        As for `fft_c2c`.
    dim : list of int
        As for `fft_c2c`; not empty where `onesided`.
    normalization : int
        As for `fft_c2c`.
    forward : bool
        As for `fft_c2c`.
    onesided : bool
        Whether the last dimension in `dim` holds only the first n // 2 + 1 of its n frequencies; the others are
        conjugates of these.

    Returns
    -------
    array of the dtype of `x`
        (..., 2). Pairs of real and imaginary parts, one dimension more than `x` has.

    Raises
    ------
    ValueError
        As for `fft_c2c`.
    """
    sizes = _sizes(x.shape, dim, s)
    xp = array_namespace(x)
    complex_dtype = np.result_type(x.dtype, np.complex64)
    if onesided and not dim:
        raise ValueError("dim is empty; a onesided transform needs a dimension")
    # The backward transform of real values is the conjugate of the forward one.
    norm = _norm(normalization, forward=True)
    if onesided:
        values = _transformed(xp.fft.rfftn, x, sizes, dim, norm)
    else:
        values = _transformed(xp.fft.fftn, x.astype(complex_dtype), sizes, dim, norm)
    return as_pairs((values if forward else xp.conj(values)).astype(complex_dtype))


@fft_r2c.register_shape_inference
def _(
    x: TensorSpec, s: TensorSpec | None = None, *, dim: list[int], onesided: bool = True, **others: Any
) -> TensorSpec:
    shape = list(_resized(x.shape, s, dim))
    if onesided and dim:
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
    r"""Compute the Fourier transform of complex values whose result is real, from half of them.

    As ``torch.fft.irfft``, ``irfft2`` and ``irfftn``; forward ``hfft``, ``hfft2`` and ``hfftn``.

    Parameters
    ----------
    x : array of float32 or float64
        (..., 2). Pairs of real and imaginary parts. Along the last dimension in `dim` they are the first n // 2 + 1 of
        n values, whose others are their conjugates. The imaginary parts of those that are their own conjugates are
        ignored.
    s : array of int64, optional
        (k,). The sizes of the result along `dim`; to these, or n // 2 + 1 of the last, `x` is cut or filled with zeros.
        -1 leaves a size as it is, and the last then is 2 (m - 1) where `x` has m.
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
    values: Any = as_complex(x)
    if not dim:
        raise ValueError("dim is empty; a transform to real values needs a dimension")
    sizes = _sizes(values.shape, dim, s, half=True)
    xp = array_namespace(x)
    # The forward transform is the backward one of the conjugates.
    norm = _norm(normalization, forward=False)
    half = xp.conj(values) if forward else values
    return _transformed(xp.fft.irfftn, half, sizes, dim, norm).astype(x.dtype)


@fft_c2r.register_shape_inference
def _(x: TensorSpec, s: TensorSpec | None = None, *, dim: list[int], **others: Any) -> TensorSpec:
    shape = list(_resized(x.shape[:-1], s, dim))
    if s is None:
        shape[dim[-1]] = 2 * (shape[dim[-1]] - 1)
    return x.like(shape=shape)


def _resized(shape: tuple[Any, ...], s: TensorSpec | None, dim: list[int]) -> tuple[Any, ...]:
    resized = {axis % len(shape) for axis in dim} if s is not None else ()
    return tuple(new_dim() if axis in resized else size for axis, size in enumerate(shape))


def _sizes(shape: tuple[int, ...], dim: list[int], s: NDArray[np.int64] | None, half: bool = False) -> list[int]:
    """Check `dim` and `s`, and return the sizes to transform."""
    rank = len(shape)
    if not all(-rank <= axis < rank for axis in dim):
        raise ValueError(f"dim is {dim}, and the tensor has {rank} dimensions")
    if len({axis % rank for axis in dim}) < len(dim):
        raise ValueError(f"dim is {dim}; each dimension can be transformed once")
    if s is not None and s.shape != (len(dim),):
        raise ValueError(f"s has shape {s.shape}, and dim has {len(dim)} dimensions; s has one size for each")
    sizes = [shape[axis] for axis in dim]
    if half:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if s is not None:
        sizes = [size if asked == -1 else int(asked) for size, asked in zip(sizes, s, strict=True)]
    if any(size < 1 for size in sizes):
        raise ValueError(f"the sizes to transform are {sizes}; each must be at least 1")
    return sizes


def _norm(normalization: int, forward: bool) -> str:
    if normalization not in (0, 1, 2):
        raise ValueError(f"normalization is {normalization}; it is 0, 1 or 2, for a factor of 1, 1/sqrt(n) or 1/n")
    return NORMS[forward][normalization]


def _transformed(transform: Any, values: Any, sizes: list[int], dim: list[int], norm: str) -> Any:
    # NumPy takes no dimensions for all of them.
    return transform(values, s=sizes, axes=dim, norm=norm) if dim else values
