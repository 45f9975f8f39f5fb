"""Triangular factorizations: LU, LDL and Cholesky, in LAPACK's packed form and unpacked."""

from __future__ import annotations

from typing import Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._declarations import Wide
from ._matrices import (
    Array,
    adjoint_of,
    check_rows,
    diagonal,
    first_true,
    lapack,
    on_matrices,
    over_batch,
    raise_failed,
    symmetric,
)

# The number of columns that LAPACK factors at a time.
_BLOCK = 64


class LuFactorEx(NamedTuple, Generic[Wide]):
    """Outputs of `lu_factor_ex`."""

    LU: NDArray[Wide]
    pivots: NDArray[np.int32]
    info: NDArray[np.int32]


@on_matrices("LuFactorEx", "(m,n)->(m,n),(min),()")
def lu_factor_ex(a: NDArray[Wide], *, check_errors: bool = False) -> LuFactorEx[Wide]:
    """Factor each matrix into the packed form, as ``torch.linalg.lu_factor_ex`` and ``torch.linalg.lu_factor``.

    As in LAPACK, rows are exchanged so that the largest element of a column is on the diagonal.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).
    check_errors : bool
        Whether a zero on the diagonal of U is an error.

    Returns
    -------
    LU : array of the dtype of `a`
        (..., m, n): U on and above the diagonal, and below it L without the ones of its diagonal.
    pivots : array of int32
        (..., min(m, n)): row i was exchanged with row ``pivots[i]``, counted from 1, in ascending order of i.
    info : array of int32
        (...): the first diagonal element of U that is zero, counted from 1; 0 if none is.

    Raises
    ------
    numpy.linalg.LinAlgError
        A diagonal element is zero, and `check_errors` is set.
    """
    lu, pivots, info = factor_lu(a)
    if check_errors:
        raise_failed(
            info,
            "LuFactorEx:{where} U[{k},{k}] is zero and using it on lu_solve would result in a division by zero; "
            "torch.linalg.lu and torch.linalg.lu_factor_ex give the factors without raising",
        )
    return LuFactorEx(lu, pivots, info)


class Factors(NamedTuple, Generic[Wide]):
    """Outputs of `lu_unpack`."""

    P: NDArray[Wide]
    L: NDArray[Wide]
    U: NDArray[Wide]


def _unpacked(unpack_data: bool, unpack_pivots: bool) -> str:
    factors = "(m,min),(min,n)" if unpack_data else "0,0"
    return f"(m,n),(min)->{'(m,m)' if unpack_pivots else '0'},{factors}"


@on_matrices("LuUnpack", _unpacked)
def lu_unpack(
    lu: NDArray[Wide], pivots: NDArray[np.int32], *, unpack_data: bool = True, unpack_pivots: bool = True
) -> Factors[Wide]:
    """Unpack the factors, as ``torch.lu_unpack``; after `lu_factor_ex`, as ``torch.linalg.lu``.

    Parameters
    ----------
    lu : array of float32 or float64
        (..., m, n): as `lu_factor_ex` returns it.
    pivots : array of int32
        (..., min(m, n)): as `lu_factor_ex` returns them.
    unpack_data : bool
        Whether to return L and U.
    unpack_pivots : bool
        Whether to return P.

    Returns
    -------
    P : array of the dtype of `lu`
        (..., m, m), a permutation matrix; (0,) if not requested.
    L : array of the dtype of `lu`
        (..., m, k) with k = min(m, n), lower triangular with ones on the diagonal; (0,) if not requested.
    U : array of the dtype of `lu`
        (..., k, n), upper triangular; (0,) if not requested.

    Raises
    ------
    ValueError
        A pivot is not a row of the matrix.
    """
    m, k = lu.shape[-2], min(lu.shape[-2:])
    p, lower, upper = (np.empty(0, lu.dtype) for _ in range(3))
    if unpack_pivots:
        check_rows(pivots, m)
        laswp = lapack("laswp", lu)
        p = over_batch(lambda unit, rows: laswp(unit, rows[:, 0] - 1).T, np.eye(m, dtype=lu.dtype), pivots[..., None])
    if unpack_data:
        # As torch computes it: a NaN above the diagonal does not get into L.
        lower, upper = np.tril(lu[..., :, :k], -1) + np.eye(m, k, dtype=lu.dtype), np.triu(lu[..., :k, :])
    return Factors(p, lower, upper)


class CholeskyEx(NamedTuple, Generic[Wide]):
    """Outputs of `cholesky_ex`."""

    L: NDArray[Wide]
    info: NDArray[np.int32]


@on_matrices("CholeskyEx", "(n,n)->(n,n),()")
def cholesky_ex(a: NDArray[Wide], *, upper: bool = False, check_errors: bool = False) -> CholeskyEx[Wide]:
    """Compute the Cholesky factor, as ``torch.linalg.cholesky_ex``, or with `check_errors` ``torch.linalg.cholesky``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n), of which only the lower triangle is read, or the upper one if `upper` is set.
    upper : bool
        Whether to return L^T.
    check_errors : bool
        Whether a matrix that is not positive-definite is an error.

    Returns
    -------
    L : array of the dtype of `a`
        (..., n, n), lower triangular; upper triangular if `upper` is set. Where `info` is k, its first k - 1 columns
        (rows if `upper` is set) are those of the factor, and the others are undefined.
    info : array of int32
        (...): 0, or the order of the first leading minor that is not positive, or NaN.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not positive-definite, and `check_errors` is set.
    """
    lower = adjoint_of(a) if upper else a
    try:
        with np.errstate(all="ignore"):
            factor: Array = np.linalg.cholesky(lower)
        failed = bool(np.isnan(diagonal(factor)).any())
    except np.linalg.LinAlgError:
        failed = True
    # NumPy does not say which matrix failed, and leaves the others without a result.
    factor, info = _factor(lower) if failed else (factor, np.zeros(a.shape[:-2], np.int32))
    if check_errors:
        raise_failed(
            info,
            "CholeskyEx:{where} the factorization could not be completed because the input is not positive-definite "
            "(the leading minor of order {k} is not positive-definite); add a small multiple of the identity, or use "
            "torch.linalg.cholesky_ex, which does not raise",
        )
    return CholeskyEx(adjoint_of(factor) if upper else factor, info)


def _factor(a: Array) -> tuple[Array, NDArray[np.int32]]:
    """Return the factors, and where each matrix stops being positive-definite."""
    potrf = lapack("potrf", a)
    factors = over_batch(lambda matrix: potrf(matrix, lower=1)[0], np.tril(a))
    # LAPACK stops at a diagonal element that is not positive and leaves it there, but does not always stop at NaN.
    return factors, first_true(~(diagonal(factors).real > 0))


class LdlFactorEx(NamedTuple, Generic[Wide]):
    """Outputs of `ldl_factor_ex`."""

    LD: NDArray[Wide]
    pivots: NDArray[np.int32]
    info: NDArray[np.int32]


@on_matrices("LdlFactorEx", "(n,n)->(n,n),(n),()")
def ldl_factor_ex(a: NDArray[Wide], *, hermitian: bool = False, check_errors: bool = False) -> LdlFactorEx[Wide]:
    """Factor each matrix into the packed form, as ``torch.linalg.ldl_factor_ex`` and ``torch.linalg.ldl_factor``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n), of which only the lower triangle is read.
    hermitian : bool
        Whether the matrices are Hermitian, or symmetric; for real ones this is the same.
    check_errors : bool
        Whether a singular D is an error.

    Returns
    -------
    LD : array of the dtype of `a`
        (..., n, n): D on the diagonal, and on the one below where a block of it is 2 by 2; the rest below is L without
        the ones of its diagonal. Zero above the diagonal.
    pivots : array of int32
        (..., n), counted from 1. For a block of one element, the row (and column) that it was exchanged with. For a
        block of two, both are the negative of the row that the second one was exchanged with.
    info : array of int32
        (...): the first block of D that is zero, by its row, counted from 1; 0 if there is none.

    Raises
    ------
    numpy.linalg.LinAlgError
        A block is zero, and `check_errors` is set.
    """
    factors, pivots, info = _factor_each(symmetric("trf", a, hermitian), a, lower=1, lwork=_BLOCK * a.shape[-1])
    if check_errors:
        raise_failed(
            info,
            "LdlFactorEx:{where} D[{k},{k}] is zero and using it on ldl_solve would result in a division by zero; "
            "torch.linalg.ldl_factor_ex gives the factors without raising",
        )
    return LdlFactorEx(np.tril(factors), pivots, info)


def factor_lu(a: Array) -> tuple[Array, NDArray[np.int32], NDArray[np.int32]]:
    """Factor matrices of any shape as `lu_factor_ex` does."""
    lu, pivots, info = _factor_each("getrf", a)
    return lu, pivots + 1, info  # which SciPy counts from 0


def _factor_each(routine: str, a: Array, **options: int) -> tuple[Array, NDArray[np.int32], NDArray[np.int32]]:
    """Return the factors, the pivots and the info that a LAPACK routine returns for each matrix of a batch."""
    factors, info = np.array(a), np.zeros(a.shape[:-2], np.int32)
    pivots = np.zeros((*info.shape, min(a.shape[-2:])), np.int32)
    if a.size:
        factor = lapack(routine, a)
        for index in np.ndindex(info.shape):
            factors[index], pivots[index], info[index] = factor(a[index], **options)
    return factors, pivots, info
