"""Singular values and eigenvalues with their vectors, and functions of a matrix: pseudo-inverse and exponential."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from ._arrays import as_pairs, scipy
from ._declarations import EVERYWHERE, Float, Wide
from ._matrices import Array, adjoint_of, on_matrices

A = TypeVar("A", np.float32, np.float64)
R = TypeVar("R", np.float32, np.float64)


class Svd(NamedTuple, Generic[Wide]):
    """Outputs of `svd`."""

    U: NDArray[Wide]
    S: NDArray[Wide]
    Vh: NDArray[Wide]


def _svd(full_matrices: bool, compute_uv: bool) -> str:
    if not compute_uv:
        return "(m,n)->0,(min),0"
    return "(m,n)->(m,m),(min),(n,n)" if full_matrices else "(m,n)->(m,min),(min),(min,n)"


@on_matrices("Svd", _svd, EVERYWHERE)
def svd(a: NDArray[Wide], *, full_matrices: bool = False, compute_uv: bool = True) -> Svd[Wide]:
    """Decompose each matrix into singular values: ``A = U diag(S) Vh``, as ``torch.linalg.svd`` and ``svdvals``.

    Each vector is determined only up to its sign, and up to a rotation where singular values are equal: the product is
    torch's, and each factor is what LAPACK's gesdd returns.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).
    full_matrices : bool
        Whether U and Vh are square.
    compute_uv : bool
        Whether to compute U and Vh.

    Returns
    -------
    U : array of the dtype of `a`
        (..., m, k) with orthonormal columns, where k = min(m, n), and m for full matrices; (0,) without `compute_uv`.
    S : array of the dtype of `a`
        (..., min(m, n)), from the largest to the smallest.
    Vh : array of the dtype of `a`
        (..., k, n) with orthonormal rows, where k = min(m, n), and n for full matrices; (0,) without `compute_uv`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not finite (for infinities, torch returns NaN at some sizes), or LAPACK does not converge.
    """
    return Svd(*decompose("Svd", a, full_matrices, compute_uv))


def decompose(op: str, a: Array, full_matrices: bool, compute_uv: bool = True) -> tuple[Array, Array, Array]:
    """Return U, S and Vh; raise a LinAlgError that names the op."""
    xp = array_namespace(a)
    with _iterating(op, a):
        if compute_uv:
            return tuple(xp.linalg.svd(a, full_matrices=full_matrices))
        return xp.empty(0, dtype=a.dtype), xp.linalg.svdvals(a), xp.empty(0, dtype=a.dtype)


@contextmanager
def _iterating(op: str, a: Array) -> Iterator[None]:
    """Raise a LinAlgError that names the op where LAPACK does not find singular values or eigenvalues."""
    # What LAPACK returns for such matrices depends on their size.
    if not array_namespace(a).isfinite(a).all():
        raise np.linalg.LinAlgError(
            f"{op}: an input matrix contains non-finite values; find where they come from, with numpy.isfinite"
        )
    try:
        with np.errstate(all="ignore"):  # NumPy computes in float64, and what overflows float32 is infinite
            yield
    except np.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(
            f"{op}: the algorithm failed to converge because an input matrix is ill-conditioned or has too many "
            "repeated values; use float64, and values that are fewer orders of magnitude apart"
        ) from error


class Eigen(NamedTuple, Generic[Wide]):
    """Outputs of `eigh` and `eig`."""

    eigenvalues: NDArray[Wide]
    eigenvectors: NDArray[Wide]


@on_matrices("Eigh", lambda compute_v, **_: "(n,n)->(n),(n,n)" if compute_v else "(n,n)->(n),0", EVERYWHERE)
def eigh(a: NDArray[Wide], *, UPLO: Literal["L", "U", "l", "u"] = "L", compute_v: bool = True) -> Eigen[Wide]:  # noqa: N803
    """Compute eigenvalues and eigenvectors of symmetric matrices, as ``torch.linalg.eigh`` and ``eigvalsh``.

    Each eigenvector is determined only up to its sign, and up to a rotation where eigenvalues are equal; they are what
    LAPACK's syevd returns.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n).
    UPLO : str
        Which triangle is read: the lower or the upper one. The other one is taken as its mirror image.
    compute_v : bool
        Whether to compute the eigenvectors.

    Returns
    -------
    eigenvalues : array of the dtype of `a`
        (..., n), from the smallest to the largest.
    eigenvectors : array of the dtype of `a`
        (..., n, n), orthonormal columns; (0,) without `compute_v`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not finite (for which torch returns NaN at some sizes), or LAPACK does not converge.
    """
    return Eigen(*decompose_symmetric("Eigh", a, "U" if UPLO in "Uu" else "L", compute_v))


def decompose_symmetric(op: str, a: Array, triangle: Literal["L", "U"], compute_v: bool = True) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors; raise a LinAlgError that names the op."""
    xp = array_namespace(a)
    with _iterating(op, xp.tril(a) if triangle == "L" else xp.triu(a)):
        if compute_v:
            return tuple(xp.linalg.eigh(a, UPLO=triangle))
        return xp.linalg.eigvalsh(a, UPLO=triangle), xp.empty(0, dtype=a.dtype)


@on_matrices("Eig", lambda compute_v: "(n,n)->(n,2),(n,n,2)" if compute_v else "(n,n)->(n,2),0")
def eig(a: NDArray[Wide], *, compute_v: bool = True) -> Eigen[Wide]:
    """Compute eigenvalues and eigenvectors of square matrices, as ``torch.linalg.eig`` and ``eigvals``.

    The eigenvalues are in no particular order. An eigenvector has norm 1, and the phase that LAPACK's geev chooses: its
    largest element is real.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n).
    compute_v : bool
        Whether to compute the eigenvectors.

    Returns
    -------
    eigenvalues : array of the dtype of `a`
        (..., n, 2): real and imaginary parts along the last dimension.
    eigenvectors : array of the dtype of `a`
        (..., n, n, 2): in columns; (0,) without `compute_v`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not finite, or LAPACK does not converge.
    """
    with _iterating("Eig", a):
        if not compute_v:
            return Eigen(_as_pairs(np.linalg.eigvals(a)), np.empty(0, a.real.dtype))
        values, vectors = np.linalg.eig(a)
    return Eigen(_as_pairs(values), _as_pairs(vectors))


def _as_pairs(values: Array) -> Array:
    # NumPy returns reals where all imaginary parts are zero.
    return as_pairs(values.astype(np.result_type(values, np.complex64)))


@on_matrices("Pinv", "(m,n),(),()->(n,m)", EVERYWHERE)
def pinv(
    a: NDArray[Wide], atol: NDArray[A] | None = None, rtol: NDArray[R] | None = None, *, hermitian: bool = False
) -> NDArray[Wide]:
    """Compute the Moore-Penrose pseudo-inverse of each matrix, as ``torch.linalg.pinv``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n); (..., n, n) if `hermitian` is set, and then only the lower triangle is read.
    atol : array of float32 or float64, optional
        Broadcasts with the batch; 0 if absent. Singular values not above ``max(atol, rtol * largest)`` count as
        zero.
    rtol : array of float32 or float64, optional
        Likewise; if absent, 0 where `atol` is positive, and elsewhere max(m, n) times the distance from 1 to the next
        larger number.
    hermitian : bool
        Whether the matrices are symmetric, which is faster.

    Returns
    -------
    array of the dtype of `a`
        (..., n, m), the batch broadcast with `atol` and `rtol`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not finite.
    """
    xp = array_namespace(a)
    if not a.size:
        return np.empty_like(a.mT)
    absolute: Array = xp.zeros(()) if atol is None else atol
    relative: Array = xp.where(absolute > 0, 0, max(a.shape[-2:]) * np.finfo(a.dtype).eps) if rtol is None else rtol
    if hermitian:
        values, u = decompose_symmetric("Pinv", a, "L")
        vh = adjoint_of(u)
    else:
        u, values, vh = decompose("Pinv", a, False)
    sizes = xp.abs(values)
    tolerance = xp.maximum(absolute[..., None], relative[..., None] * sizes.max(-1, keepdims=True))
    with np.errstate(all="ignore"):
        reciprocals = xp.where(sizes > tolerance, 1 / values, 0).astype(values.dtype)
        return (adjoint_of(vh) * reciprocals[..., None, :]) @ adjoint_of(u)


@on_matrices("MatrixExp", "(n,n)->(n,n)")
def matrix_exp(a: NDArray[Float]) -> NDArray[Float]:
    """Compute the exponential of each matrix in float64, as ``torch.linalg.matrix_exp``.

    In float16 and bfloat16, torch loses most digits on the way; this does not.

    Parameters
    ----------
    a : array of float16, bfloat16, float32 or float64
        (..., n, n).

    Returns
    -------
    array of the dtype of `a`
        (..., n, n): ``I + A + A^2 / 2! + A^3 / 3! + ...``; NaN for a matrix that is not finite.
    """
    finite = np.isfinite(a).all((-2, -1), keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        result = scipy("linalg", a).expm(np.where(finite, a.astype(np.result_type(a, np.float64)), 0))
        return np.where(finite, result, np.nan).astype(a.dtype)
