"""Linear systems ``A X = B`` of square, triangular and factored matrices, inverses and determinants."""

from __future__ import annotations

import itertools
from typing import Any, Generic, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import onnx_op
from ..errors import ShapeInferenceError, UnknownSizeError
from ..shapes import TensorSpec, broadcast
from ._arrays import differ, same
from ._declarations import EVERYWHERE, Wide
from ._matrices import (
    Array,
    adjoint_of,
    check_rows,
    diagonal,
    first_true,
    fit,
    lapack,
    on_matrices,
    over_batch,
    raise_failed,
    solve_triangles,
    symmetric,
)
from .triangular_factorization import factor_lu


class InvEx(NamedTuple, Generic[Wide]):
    """Outputs of `inv_ex`."""

    inverse: NDArray[Wide]
    info: NDArray[np.int32]


@on_matrices("InvEx", "(n,n)->(n,n),()")
def inv_ex(a: NDArray[Wide], *, check_errors: bool = False) -> InvEx[Wide]:
    """Invert each matrix, as ``torch.linalg.inv_ex``, and with `check_errors` as ``torch.linalg.inv``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n).
    check_errors : bool
        Whether a singular matrix is an error.

    Returns
    -------
    inverse : array of the dtype of `a`
        (..., n, n). Where `info` is not zero its elements are infinite or NaN.
    info : array of int32
        (...): 0, or for a singular matrix the first diagonal element of U that is zero, counted from 1, where U is
        the factor of ``A = P L U``.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is singular, and `check_errors` is set.
    """
    inverse, info = _solved(a, np.eye(a.shape[-1], dtype=a.dtype))
    if check_errors:
        raise_failed(
            info,
            "InvEx:{where} the diagonal element {k} is zero, the inversion could not be completed because the input "
            "matrix is singular; use torch.linalg.pinv for a pseudo-inverse, or torch.linalg.inv_ex",
        )
    return InvEx(inverse, info)


class SolveEx(NamedTuple, Generic[Wide]):
    """Outputs of `solve_ex`."""

    result: NDArray[Wide]
    info: NDArray[np.int32]


@onnx_op("pyops::SolveEx")
def solve_ex(a: NDArray[Wide], b: NDArray[Wide], *, left: bool = True, check_errors: bool = False) -> SolveEx[Wide]:
    """Solve linear systems, as ``torch.linalg.solve_ex``, and with `check_errors` as ``torch.linalg.solve``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n).
    b : array of the dtype of `a`
        (..., n, k); (..., k, n) where `left` is not set. The batches broadcast. Vectors if it has one dimension, or one
        dimension less than `a` and exactly the shape (..., n).
    left : bool
        Whether to solve ``A X = B``, or ``X A = B``.
    check_errors : bool
        Whether a singular matrix is an error.

    Returns
    -------
    result : array of the dtype of `a`
        X, of the broadcast shape of `b`. Where `info` is not zero its elements are infinite or NaN.
    info : array of int32
        (...) of `a`: as for `inv_ex`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is singular, and `check_errors` is set.
    """
    vectors = _are_vectors(a, b, left)
    rhs = b[..., None] if vectors else b
    fit("SolveEx", _system(left), (a, rhs))
    x, info = _solved(a, rhs if left else adjoint_of(rhs), adjoint=not left)
    if check_errors:
        raise_failed(
            info,
            "SolveEx:{where} the solver failed because the input matrix is singular (diagonal element {k} of its "
            "factor is zero); use torch.linalg.lstsq for a least-squares solution, or torch.linalg.solve_ex, which "
            "does not raise",
        )
    x = x if left else adjoint_of(x)
    return SolveEx(x[..., 0] if vectors else x, info)


@solve_ex.register_shape_inference
def _(a: TensorSpec, b: TensorSpec, *, left: bool = True, **check_errors: Any) -> tuple[TensorSpec, TensorSpec]:
    vectors = _are_vectors(a, b, left)
    rhs = b.like(shape=(*b.shape, 1)) if vectors else b
    batches, _ = fit("SolveEx", _system(left), (a, rhs))
    shape = (*broadcast(*batches), *rhs.shape[-2:])
    return b.like(shape=shape[:-1] if vectors else shape), a.like(shape=a.shape[:-2], dtype=np.int32)


def _system(left: bool) -> str:
    return "(n,n),(n,k)" if left else "(n,n),(k,n)"


def _are_vectors(a: Any, b: Any, left: bool) -> bool:
    """Return whether the right-hand sides are vectors; raise a ShapeInferenceError if they must not be."""
    fit("SolveEx", "(n,n)", [a])
    expected = tuple(a.shape[:-1])
    vectors = len(b.shape) == 1 or (len(b.shape) == len(expected) and all(map(same, b.shape, expected)))
    if not vectors and len(b.shape) == len(expected) and not any(map(differ, b.shape, expected)):
        raise UnknownSizeError(
            f"SolveEx: whether b of the shape {list(b.shape)} holds vectors depends on sizes that are not known yet; "
            f"it does if the shape is {list(expected)}"
        )
    if vectors and not left:
        raise ShapeInferenceError("SolveEx: b holds vectors, but left=False requires matrices; add a dimension to b")
    return vectors


def _solved(a: Array, b: Array, adjoint: bool = False) -> tuple[Array, NDArray[np.int32]]:
    """Solve ``A X = B``, or ``A^H X = B``, and tell which matrices are singular."""
    try:
        with np.errstate(all="ignore"):  # NumPy computes in float64, and what overflows float32 is infinite
            x: Array = np.linalg.solve(adjoint_of(a) if adjoint else a, b)
        info = np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:  # which does not say which matrix is singular, and leaves the others without a result
        lu, pivots, info = factor_lu(a)
        x = _solve_lu(lu, pivots, b, adjoint)
    # Some BLAS skip products with zero, and with them the NaN.
    missing = np.asarray(np.isnan(a).any((-2, -1)))
    return np.where(missing[..., None, None], x.dtype.type(np.nan), x) if missing.any() else x, info


class Slogdet(NamedTuple, Generic[Wide]):
    """Outputs of `slogdet`."""

    sign: NDArray[Wide]
    logabsdet: NDArray[Wide]


@on_matrices("Slogdet", "(n,n)->(),()", EVERYWHERE)
def slogdet(a: NDArray[Wide]) -> Slogdet[Wide]:
    """Compute the sign of each determinant and the logarithm of its absolute value, as ``torch.linalg.slogdet``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n).

    Returns
    -------
    sign : array of the dtype of `a`
        (...): 1, -1, or 0 for a singular matrix and for one whose determinant is NaN.
    logabsdet : array of the dtype of `a`
        (...): minus infinity for a singular matrix.
    """
    xp = array_namespace(a)
    with np.errstate(invalid="ignore"):
        sign, logabsdet = map(xp.asarray, xp.linalg.slogdet(a))
    return Slogdet(xp.where(xp.isnan(logabsdet), xp.zeros_like(sign), sign), logabsdet)


@on_matrices("SolveTriangular", lambda left, **_: f"{_system(left)}->{'(n,k)' if left else '(k,n)'}", EVERYWHERE)
def solve_triangular(
    a: NDArray[Wide], b: NDArray[Wide], *, upper: bool, left: bool = True, unitriangular: bool = False
) -> NDArray[Wide]:
    """Solve triangular systems, as ``torch.linalg.solve_triangular``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n).
    b : array of the dtype of `a`
        (..., n, k); (..., k, n) where `left` is not set. The batches broadcast.
    upper : bool
        Whether to read the upper triangle of `a`, or the lower one.
    left : bool
        Whether to solve ``A X = B``, or ``X A = B``.
    unitriangular : bool
        Whether to take the diagonal as ones, without reading it.

    Returns
    -------
    array of the dtype of `a`
        X, of the broadcast shape of `b`; infinite or NaN where a diagonal element is zero.
    """
    if not left:
        return solve_triangles(a.mT, b.mT, upper=not upper, unit=unitriangular).mT
    return solve_triangles(a, b, upper=upper, unit=unitriangular)


@on_matrices("CholeskyInverse", "(n,n)->(n,n)")
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
    raise_failed(
        first_true(diagonal(factor) == 0),
        "CholeskyInverse:{where} the diagonal element {k} is zero, the inversion could not be completed because the "
        "input matrix is singular; use torch.linalg.pinv for a pseudo-inverse of the matrix that was factored",
    )
    lower = adjoint_of(factor) if upper else factor
    inverse = solve_triangles(lower, np.eye(factor.shape[-1], dtype=factor.dtype), upper=False)
    return np.asarray(adjoint_of(inverse) @ inverse)


@on_matrices("CholeskySolve", "(n,k),(n,n)->(n,k)", EVERYWHERE)
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
    lower = adjoint_of(factor) if upper else factor
    return solve_triangles(adjoint_of(lower), solve_triangles(lower, b, upper=False), upper=True)


@on_matrices("LuSolve", lambda left, **_: "(n,n),(n),(n,k)->(n,k)" if left else "(n,n),(n),(k,n)->(k,n)")
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
        Whether to solve with the transpose of A.

    Returns
    -------
    array of the dtype of `lu`
        X, of the broadcast shape of `b`; infinite or NaN where A is singular.

    Raises
    ------
    ValueError
        A pivot is not a row of the matrix.
    """
    if left:
        return _solve_lu(lu, pivots, b, adjoint)
    return adjoint_of(_solve_lu(lu, pivots, adjoint_of(b), not adjoint))


def _solve_lu(lu: Array, pivots: Array, b: Array, adjoint: bool) -> Array:
    """Solve ``A X = B``, or ``A^H X = B``, with what `factor_lu` returns for square matrices A."""
    check_rows(pivots, lu.shape[-1])
    getrs = lapack("getrs", lu)
    return over_batch(
        lambda x, factors, rows: getrs(factors, rows[:, 0] - 1, x, trans=2 * adjoint)[0], b, lu, pivots[..., None]
    )


@on_matrices("LdlSolve", "(n,n),(n),(n,k)->(n,k)")
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
        Whether the matrices are Hermitian, or symmetric; for real ones this is the same.

    Returns
    -------
    array of the dtype of `factors`
        (..., n, k): X of ``A X = B``; infinite or NaN where D is singular.

    Raises
    ------
    ValueError
        A pivot is not a row of the matrix.
    """
    _check_paired_rows(pivots, b.shape[-2])
    solve = lapack(symmetric("trs", factors, hermitian), factors)
    return over_batch(lambda x, ld, rows: solve(ld, rows[:, 0], x, lower=1)[0], b, factors, pivots[..., None])


def _check_paired_rows(pivots: Array, n: int) -> None:
    # LAPACK reads and writes wherever they point, and takes two rows at a negative one.
    runs = (itertools.groupby((row < 0).tolist()) for row in pivots.reshape(-1, max(n, 1)))
    paired = all(not negative or len(list(run)) % 2 == 0 for row in runs for negative, run in row)
    if pivots.size and not (paired and 1 <= np.abs(pivots).min() <= np.abs(pivots).max() <= n):
        raise ValueError(f"LdlSolve: pivots must be rows from 1 to {n}, or pairs of their negatives")
