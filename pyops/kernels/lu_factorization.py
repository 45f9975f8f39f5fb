"""``A = P L U``: the factors, in LAPACK's packed form and unpacked, and systems that are solved with them."""

from __future__ import annotations

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
    matrices,
    over_batch,
    raise_failed,
    smaller,
)


class LuFactorEx(NamedTuple, Generic[Wide]):
    """Outputs of `lu_factor_ex`."""

    LU: NDArray[Wide]
    pivots: NDArray[np.int32]
    info: NDArray[np.int32]


@onnx_op("pyops::LuFactorEx")
def lu_factor_ex(a: NDArray[Wide], *, pivot: bool = True, check_errors: bool = False) -> LuFactorEx[Wide]:
    """Factor each matrix into the packed form, as ``torch.linalg.lu_factor_ex`` and ``torch.linalg.lu_factor``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).
    pivot : bool
        Whether rows are exchanged, so that the largest element of the column is on the diagonal. Torch has False on
        CUDA devices only.
    check_errors : bool
        Whether a zero on the diagonal of U is an error.

    Returns
    -------
    LU : array of the dtype of `a`
        (..., m, n): U on and above the diagonal, and below it L without the ones of its diagonal.
    pivots : array of int32
        (..., min(m, n)): row i was exchanged with row ``pivots[i]``, counted from 1, one i after the other.
    info : array of int32
        (...): the first diagonal element of U that is zero, counted from 1; 0 if none is.

    Raises
    ------
    numpy.linalg.LinAlgError
        A diagonal element is zero, and `check_errors` is set.
    """
    matrices("LuFactorEx", a)
    lu, pivots, info = factor(a, pivot)
    if check_errors:
        raise_failed(
            info,
            "LuFactorEx:{where} U[{k},{k}] is zero and using it on lu_solve would result in a division by zero; "
            "torch.linalg.lu and torch.linalg.lu_factor_ex give the factors without raising",
        )
    return LuFactorEx(lu, pivots, info)


def factor(a: Array, pivot: bool = True) -> tuple[Array, NDArray[np.int32], NDArray[np.int32]]:
    """Factor matrices of any shape as `lu_factor_ex` does."""
    lu, info = np.array(a), np.zeros(a.shape[:-2], np.int32)
    pivots = np.broadcast_to(np.arange(1, min(a.shape[-2:]) + 1, dtype=np.int32), (*info.shape, min(a.shape[-2:])))
    if not pivot:
        _eliminate(lu)
        return lu, pivots.copy(), first_true(diagonal(lu) == 0)
    pivots = pivots.copy()
    if lu.size:
        getrf = lapack("getrf", a)
        for index in np.ndindex(info.shape):
            lu[index], pivots[index], info[index] = getrf(a[index])
        pivots += 1  # which SciPy counts from 0
    return lu, pivots, info


def _eliminate(lu: Array) -> None:
    """Factor matrices in place without exchanging rows, which LAPACK always does."""
    with np.errstate(all="ignore"):
        for j in range(min(lu.shape[-2:])):
            pivot = lu[..., j, j, None]
            lu[..., j + 1 :, j] /= np.where(pivot == 0, 1, pivot)
            lu[..., j + 1 :, j + 1 :] -= lu[..., j + 1 :, j, None] * lu[..., j, None, j + 1 :]


@lu_factor_ex.register_shape_inference
def _(a: TensorSpec, **attributes: Any) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    batch, m, n = matrices("LuFactorEx", a)
    return a, a.like(shape=(*batch, smaller(m, n)), dtype=np.int32), a.like(shape=batch, dtype=np.int32)


class Factors(NamedTuple, Generic[Wide]):
    """Outputs of `lu` and `lu_unpack`."""

    P: NDArray[Wide]
    L: NDArray[Wide]
    U: NDArray[Wide]


@onnx_op("pyops::Lu")
def lu(a: NDArray[Wide], *, pivot: bool = True) -> Factors[Wide]:
    """Factor each matrix, as ``torch.linalg.lu``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).
    pivot : bool
        As for `lu_factor_ex`.

    Returns
    -------
    P : array of the dtype of `a`
        (..., m, m), a permutation matrix; (0,) without `pivot`.
    L : array of the dtype of `a`
        (..., m, k) with k = min(m, n), lower triangular with ones on the diagonal.
    U : array of the dtype of `a`
        (..., k, n), upper triangular.
    """
    matrices("Lu", a)
    packed, pivots, _ = factor(a, pivot)
    return _unpacked(packed, pivots, pivot, True)


@lu.register_shape_inference
def _(a: TensorSpec, *, pivot: bool = True) -> tuple[TensorSpec, ...]:
    return _factor_specs("Lu", a, pivot, True)


@onnx_op("pyops::LuUnpack")
def lu_unpack(
    lu: NDArray[Wide], pivots: NDArray[np.int32], *, unpack_data: bool = True, unpack_pivots: bool = True
) -> Factors[Wide]:
    """Unpack the factors, as ``torch.lu_unpack``.

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
    P, L, U : array of the dtype of `lu`
        As `lu` returns them; (0,) where not wanted.

    Raises
    ------
    ValueError
        A pivot is no row.
    """
    check_pivots("LuUnpack", lu, pivots)
    return _unpacked(lu, pivots, unpack_pivots, unpack_data)


@lu_unpack.register_shape_inference
def _(
    lu: TensorSpec, pivots: TensorSpec, *, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[TensorSpec, ...]:
    check_pivots("LuUnpack", lu, pivots)
    return _factor_specs("LuUnpack", lu, unpack_pivots, unpack_data)


def _factor_specs(op: str, a: TensorSpec, permutation: bool, triangles: bool) -> tuple[TensorSpec, ...]:
    batch, m, n = matrices(op, a)
    none = a.like(shape=(0,))
    k = smaller(m, n)
    return (
        a.like(shape=(*batch, m, m)) if permutation else none,
        a.like(shape=(*batch, m, k)) if triangles else none,
        a.like(shape=(*batch, k, n)) if triangles else none,
    )


def _unpacked(lu: Array, pivots: Array, permutation: bool, triangles: bool) -> Factors[Any]:
    m, k = lu.shape[-2], min(lu.shape[-2:])
    p, lower, upper = (np.empty(0, lu.dtype) for _ in range(3))
    if permutation:
        _check_rows(pivots, m)
        laswp = lapack("laswp", lu)
        p = over_batch(lambda unit, rows: laswp(unit, rows[:, 0] - 1).T, np.eye(m, dtype=lu.dtype), pivots[..., None])
    if triangles:
        # Written as torch does: a NaN above the diagonal is no part of L.
        lower, upper = np.tril(lu[..., :, :k], -1) + np.eye(m, k, dtype=lu.dtype), np.triu(lu[..., :k, :])
    return Factors(p, lower, upper)


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
        return solve(lu, pivots, b, adjoint=adjoint)
    return solve(lu, pivots, b.mT, adjoint=not adjoint).mT


@lu_solve.register_shape_inference
def _(lu: TensorSpec, pivots: TensorSpec, b: TensorSpec, *, left: bool = True, **adjoint: Any) -> TensorSpec:
    check_pivots("LuSolve", lu, pivots)
    return b.like(shape=(*check_system("LuSolve", lu, b, left), *b.shape[-2:]))


def solve(lu: Array, pivots: Array, b: Array, *, adjoint: bool = False) -> Array:
    """Solve ``A X = B``, or ``A^T X = B``, with what `factor` returns for square matrices A."""
    _check_rows(pivots, lu.shape[-1])
    getrs = lapack("getrs", lu)
    return over_batch(
        lambda x, factors, rows: getrs(factors, rows[:, 0] - 1, x, trans=int(adjoint))[0], b, lu, pivots[..., None]
    )


def _check_rows(pivots: Array, m: int) -> None:
    # LAPACK reads and writes wherever they point.
    if pivots.size and (pivots.min() < 1 or pivots.max() > m):
        raise ValueError(f"pivots are rows counted from 1, here to {m}, and go from {pivots.min()} to {pivots.max()}")
