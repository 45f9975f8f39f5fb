"""Gaussian elimination with partial pivoting, vectorised over the batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._matrices import Array, first_zero
from ._substitution import solve_triangular

# Below this size columns are eliminated one by one; above it most of the work is matrix products.
_COLUMNS = 16


def factor(a: Array, pivot: bool = True) -> tuple[Array, NDArray[np.int32], NDArray[np.int32]]:
    """``A = P L U`` of (..., m, n) as LAPACK's getrf gives it: what `lu_factorization.lu_factor_ex` returns.

    Columns are halved as by Toledo (1997), "Locality of reference in LU decomposition with partial pivoting".
    """
    *batch, m, n = a.shape
    k = min(m, n)
    lu = np.array(a, order="C").reshape(int(np.prod(batch)), m, n)
    pivots = np.empty((len(lu), k), np.int32)
    with np.errstate(all="ignore"):
        if len(lu):
            _eliminate(lu, pivots, 0, k, pivot)
            if n > k:
                lu[:, :, k:] = solve_triangular(lu[:, :, :k], lu[:, :, k:], upper=False, unit=True)
    return lu.reshape(a.shape), pivots.reshape(*batch, k), first_zero(lu).reshape(batch)


def _eliminate(lu: Array, pivots: NDArray[np.int32], start: int, stop: int, pivot: bool) -> None:
    """Factor columns `start` to `stop` of the rows from `start` on, in place; the exchanged rows are whole ones."""
    if stop - start > _COLUMNS:
        middle = (start + stop) // 2
        _eliminate(lu, pivots, start, middle, pivot)
        corner = lu[:, start:middle, start:middle]
        top = solve_triangular(corner, lu[:, start:middle, middle:stop], upper=False, unit=True)
        lu[:, start:middle, middle:stop] = top
        lu[:, middle:, middle:stop] -= lu[:, middle:, start:middle] @ top
        _eliminate(lu, pivots, middle, stop, pivot)
        return
    every = np.arange(len(lu))
    for j in range(start, stop):
        rows = j + np.abs(lu[:, j:, j]).argmax(1) if pivot else np.full(len(lu), j)
        pivots[:, j] = rows + 1
        if (rows != j).any():
            lu[every, rows], lu[:, j] = lu[:, j].copy(), lu[every, rows]
        diagonal = lu[:, j, j, None]
        lu[:, j + 1 :, j] /= np.where(diagonal == 0, 1, diagonal)
        lu[:, j + 1 :, j + 1 : stop] -= lu[:, j + 1 :, j, None] * lu[:, j, None, j + 1 : stop]


def permutation(pivots: Array, m: int) -> NDArray[np.intp]:
    """The order (..., m) of rows that exchanges (..., k) give: ``P^T A`` is A with rows in this order."""
    if pivots.size and (pivots.min() < 1 or pivots.max() > m):
        raise ValueError(f"pivots are rows counted from 1, here to {m}, and go from {pivots.min()} to {pivots.max()}")
    *batch, k = pivots.shape
    count = int(np.prod(batch))
    rows = pivots.reshape(count, k) - 1
    order = np.tile(np.arange(m), (count, 1))
    every = np.arange(count)
    for j in range(k):
        order[every, rows[:, j]], order[:, j] = order[:, j].copy(), order[every, rows[:, j]]
    return order.reshape(*batch, m)


def solve(lu: Array, pivots: Array, b: Array, *, adjoint: bool = False) -> Array:
    """X of ``A X = B``, or of ``A^T X = B``, from what `factor` gives of square matrices; the batches broadcast."""
    n = lu.shape[-1]
    batch = np.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    order = np.broadcast_to(permutation(pivots, n), (*batch, n))[..., None]
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    if not adjoint:
        y = solve_triangular(lu, np.take_along_axis(b, order, -2), upper=False, unit=True)
        return solve_triangular(lu, y, upper=True)
    y = solve_triangular(lu.mT, b, upper=False)
    z = solve_triangular(lu.mT, y, upper=True, unit=True)
    x = np.empty_like(z)
    np.put_along_axis(x, np.broadcast_to(order, z.shape), z, -2)
    return x
