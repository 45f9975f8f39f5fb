"""Symmetric matrices: ``A = L L^T`` of positive-definite ones, and ``A = L D L^T`` of others."""

from __future__ import annotations

import itertools
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._declarations import Wide
from ._matrices import (
    Array,
    check_pivots,
    check_system,
    diagonal,
    first_true,
    lapack,
    over_batch,
    raise_failed,
    solve_triangles,
    square,
)


class CholeskyEx(NamedTuple, Generic[Wide]):
    """Outputs of `cholesky_ex`."""

    L: NDArray[Wide]
    info: NDArray[np.int32]


@onnx_op("pyops::CholeskyEx")
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
        (rows if `upper` is set) are those of the factor, and the others have no meaning.
    info : array of int32
        (...): 0, or the order of the first leading minor that is not positive, or NaN.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not positive-definite, and `check_errors` is set.
    """
    square("CholeskyEx", a)
    lower = a.mT if upper else a
    try:
        with np.errstate(all="ignore"):
            factor: Array = np.linalg.cholesky(lower)
        failed = bool(np.isnan(diagonal(factor)).any())
    except np.linalg.LinAlgError:
        failed = True
    # NumPy does not tell which of them failed, and leaves the others without a result.
    factor, info = _factor(lower) if failed else (factor, np.zeros(a.shape[:-2], np.int32))
    if check_errors:
        raise_failed(
            info,
            "CholeskyEx:{where} the factorization could not be completed because the input is not positive-definite "
            "(the leading minor of order {k} is not positive-definite); add a small multiple of the identity, or use "
            "torch.linalg.cholesky_ex, which does not raise",
        )
    return CholeskyEx(factor.mT if upper else factor, info)


@cholesky_ex.register_shape_inference
def _(a: TensorSpec, **attributes: Any) -> tuple[TensorSpec, TensorSpec]:
    batch, n = square("CholeskyEx", a)
    return a.like(shape=(*batch, n, n)), a.like(shape=batch, dtype=np.int32)


def _factor(a: Array) -> tuple[Array, NDArray[np.int32]]:
    """Return the factors, and where each matrix stops being positive-definite."""
    factors, potrf = np.tril(a), lapack("potrf", a)
    for index in np.ndindex(a.shape[:-2]):
        factors[index], _ = potrf(a[index], lower=1)
    # LAPACK stops at a diagonal element that is not positive and leaves it there, but does not always stop at NaN.
    return factors, first_true(~(diagonal(factors) > 0))


@onnx_op("pyops::CholeskyInverse")
def cholesky_inverse(factor: NDArray[Wide], *, upper: bool = False) -> NDArray[Wide]:
    """Invert each matrix whose Cholesky factor is given, as ``torch.cholesky_inverse``.

    Parameters
    ----------
    factor : array of float32 or float64
        (..., n, n): L, of which only the lower triangle is read, or L^T, of which only the upper one is.
    upper : bool
        Whether it is L^T.

    Returns
    -------
    array of the dtype of `factor`
        (..., n, n): the inverse of ``L L^T``, symmetric.

    Raises
    ------
    numpy.linalg.LinAlgError
        A diagonal element of L is zero.
    """
    _, n = square("CholeskyInverse", factor)
    raise_failed(
        first_true(diagonal(factor) == 0),
        "CholeskyInverse:{where} the diagonal element {k} is zero, the inversion could not be completed because the "
        "input matrix is singular; use torch.linalg.pinv for a pseudo-inverse of the matrix that was factored",
    )
    lower = factor.mT if upper else factor
    inverse = solve_triangles(lower, np.eye(n, dtype=factor.dtype), upper=False)
    return np.asarray(inverse.mT @ inverse)


@cholesky_inverse.register_shape_inference
def _(factor: TensorSpec, **upper: Any) -> TensorSpec:
    batch, n = square("CholeskyInverse", factor)
    return factor.like(shape=(*batch, n, n))


@onnx_op("pyops::CholeskySolve", device_types=("cpu", "cuda"))
def cholesky_solve(b: NDArray[Wide], factor: NDArray[Wide], *, upper: bool = False) -> NDArray[Wide]:
    """Solve linear systems from the Cholesky factor of their matrices, as ``torch.cholesky_solve``.

    Parameters
    ----------
    b : array of float32 or float64
        (..., n, k).
    factor : array of the dtype of `b`
        (..., n, n): L, of which only the lower triangle is read, or L^T, of which only the upper one is. The batches
        broadcast.
    upper : bool
        Whether it is L^T.

    Returns
    -------
    array of the dtype of `b`
        (..., n, k): X of ``L L^T X = B``; infinite or NaN where a diagonal element of L is zero.
    """
    check_system("CholeskySolve", factor, b)
    lower = factor.mT if upper else factor
    return solve_triangles(lower.mT, solve_triangles(lower, b, upper=False), upper=True)


@cholesky_solve.register_shape_inference
def _(b: TensorSpec, factor: TensorSpec, **upper: Any) -> TensorSpec:
    return b.like(shape=(*check_system("CholeskySolve", factor, b), *b.shape[-2:]))


# How many columns LAPACK factors at a time.
_BLOCK = 64


class LdlFactorEx(NamedTuple, Generic[Wide]):
    """Outputs of `ldl_factor_ex`."""

    LD: NDArray[Wide]
    pivots: NDArray[np.int32]
    info: NDArray[np.int32]


@onnx_op("pyops::LdlFactorEx")
def ldl_factor_ex(a: NDArray[Wide], *, hermitian: bool = False, check_errors: bool = False) -> LdlFactorEx[Wide]:
    """Factor each matrix into the packed form, as ``torch.linalg.ldl_factor_ex`` and ``torch.linalg.ldl_factor``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n), of which only the lower triangle is read.
    hermitian : bool
        Of real matrices the same.
    check_errors : bool
        Whether a singular D is an error.

    Returns
    -------
    LD : array of the dtype of `a`
        (..., n, n): D on the diagonal, and on the one below where a block of it is 2 by 2; the rest below is L without
        the ones of its diagonal. Zero above the diagonal.
    pivots : array of int32
        (..., n), counted from 1. For a block of one element, the row (and column) that it was exchanged with. For a
        block of two, twice the negative of that which the second was exchanged with.
    info : array of int32
        (...): the first block of D that is zero, by its row, counted from 1; 0 if there is none.

    Raises
    ------
    numpy.linalg.LinAlgError
        A block is zero, and `check_errors` is set.
    """
    square("LdlFactorEx", a)
    factors = np.array(a)
    pivots = np.zeros(a.shape[:-1], np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    if a.size:
        sytrf = lapack("sytrf", a)
        for index in np.ndindex(info.shape):
            factors[index], pivots[index], info[index] = sytrf(a[index], lower=1, lwork=_BLOCK * a.shape[-1])
    factors = np.tril(factors)
    if check_errors:
        raise_failed(
            info,
            "LdlFactorEx:{where} D[{k},{k}] is zero and using it on ldl_solve would result in a division by zero; "
            "torch.linalg.ldl_factor_ex gives the factors without raising",
        )
    return LdlFactorEx(factors, pivots, info)


@ldl_factor_ex.register_shape_inference
def _(a: TensorSpec, **attributes: Any) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    batch, n = square("LdlFactorEx", a)
    return a.like(shape=(*batch, n, n)), a.like(shape=(*batch, n), dtype=np.int32), a.like(shape=batch, dtype=np.int32)


@onnx_op("pyops::LdlSolve")
def ldl_solve(
    factors: NDArray[Wide], pivots: NDArray[np.int32], b: NDArray[Wide], *, hermitian: bool = False
) -> NDArray[Wide]:
    """Solve linear systems from the factors of their matrices, as ``torch.linalg.ldl_solve``.

    Parameters
    ----------
    factors : array of float32 or float64
        (..., n, n): as `ldl_factor_ex` returns them for A.
    pivots : array of int32
        (..., n): as `ldl_factor_ex` returns them for A.
    b : array of the dtype of `factors`
        (..., n, k). The batches broadcast.
    hermitian : bool
        Of real matrices the same.

    Returns
    -------
    array of the dtype of `factors`
        (..., n, k): X of ``A X = B``; infinite or NaN where D is singular.

    Raises
    ------
    ValueError
        A pivot is no row.
    """
    check_pivots("LdlSolve", factors, pivots)
    check_system("LdlSolve", factors, b)
    _check_rows(pivots, b.shape[-2])
    sytrs = lapack("sytrs", factors)
    return over_batch(lambda x, ld, rows: sytrs(ld, rows[:, 0], x, lower=1)[0], b, factors, pivots[..., None])


@ldl_solve.register_shape_inference
def _(factors: TensorSpec, pivots: TensorSpec, b: TensorSpec, **hermitian: Any) -> TensorSpec:
    check_pivots("LdlSolve", factors, pivots)
    return b.like(shape=(*check_system("LdlSolve", factors, b), *b.shape[-2:]))


def _check_rows(pivots: Array, n: int) -> None:
    # LAPACK reads and writes wherever they point, and takes two rows at a negative one.
    runs = (itertools.groupby((row < 0).tolist()) for row in pivots.reshape(-1, max(n, 1)))
    paired = all(not negative or len(list(run)) % 2 == 0 for row in runs for negative, run in row)
    if pivots.size and not (paired and 1 <= np.abs(pivots).min() <= np.abs(pivots).max() <= n):
        raise ValueError(f"LdlSolve: pivots are rows counted from 1, here to {n}, or pairs of their negatives")
