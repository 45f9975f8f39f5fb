"""Linear systems ``A X = B``, and inverses, from the factors of `triangular_factorization`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._declarations import Wide
from ._matrices import (
    Array,
    check_pivots,
    check_rows,
    check_system,
    diagonal,
    first_true,
    lapack,
    over_batch,
    raise_failed,
    solve_triangles,
    square,
)


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


@onnx_op("pyops::LuSolve")
def lu_solve(
    lu: NDArray[Wide], pivots: NDArray[np.int32], b: NDArray[Wide], *, left: bool = True, adjoint: bool = False
) -> NDArray[Wide]:
    """Solve linear systems from the factors of their matrices, as ``torch.linalg.lu_solve``.

    Parameters
    ----------
    lu : array of float32 or float64
        (..., n, n): as `lu_factor_ex` returns it for A.
    pivots : array of int32
        (..., n): as `lu_factor_ex` returns them for A.
    b : array of the dtype of `lu`
        (..., n, k); (..., k, n) where `left` is not set. The batches broadcast.
    left : bool
        Whether to solve ``A X = B``, or ``X A = B``.
    adjoint : bool
        Whether the transposed A takes the place of A.

    Returns
    -------
    array of the dtype of `lu`
        X, of the broadcast shape of `b`; infinite or NaN where A is singular.

    Raises
    ------
    ValueError
        A pivot is no row.
    """
    check_pivots("LuSolve", lu, pivots)
    check_system("LuSolve", lu, b, left)
    if left:
        return solve_lu(lu, pivots, b, adjoint)
    return solve_lu(lu, pivots, b.mT, not adjoint).mT


@lu_solve.register_shape_inference
def _(lu: TensorSpec, pivots: TensorSpec, b: TensorSpec, *, left: bool = True, **adjoint: Any) -> TensorSpec:
    check_pivots("LuSolve", lu, pivots)
    return b.like(shape=(*check_system("LuSolve", lu, b, left), *b.shape[-2:]))


def solve_lu(lu: Array, pivots: Array, b: Array, adjoint: bool) -> Array:
    """Solve ``A X = B``, or ``A^T X = B``, with what `factor_lu` returns for square matrices A."""
    check_rows(pivots, lu.shape[-1])
    getrs = lapack("getrs", lu)
    return over_batch(
        lambda x, factors, rows: getrs(factors, rows[:, 0] - 1, x, trans=int(adjoint))[0], b, lu, pivots[..., None]
    )


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
    _check_paired_rows(pivots, b.shape[-2])
    sytrs = lapack("sytrs", factors)
    return over_batch(lambda x, ld, rows: sytrs(ld, rows[:, 0], x, lower=1)[0], b, factors, pivots[..., None])


@ldl_solve.register_shape_inference
def _(factors: TensorSpec, pivots: TensorSpec, b: TensorSpec, **hermitian: Any) -> TensorSpec:
    check_pivots("LdlSolve", factors, pivots)
    return b.like(shape=(*check_system("LdlSolve", factors, b), *b.shape[-2:]))


def _check_paired_rows(pivots: Array, n: int) -> None:
    # LAPACK reads and writes wherever they point, and takes two rows at a negative one.
    runs = (itertools.groupby((row < 0).tolist()) for row in pivots.reshape(-1, max(n, 1)))
    paired = all(not negative or len(list(run)) % 2 == 0 for row in runs for negative, run in row)
    if pivots.size and not (paired and 1 <= np.abs(pivots).min() <= np.abs(pivots).max() <= n):
        raise ValueError(f"LdlSolve: pivots are rows counted from 1, here to {n}, or pairs of their negatives")
