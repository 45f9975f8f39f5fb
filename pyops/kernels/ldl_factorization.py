"""``A = L D L^T`` of symmetric matrices that need not be definite, by the method of Bunch and Kaufman (1977)."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._element_types import Wide
from ._matrices import Array, check_pivots, check_system, raise_failed, square

# Bunch and Kaufman's bound on the growth of elements is smallest with this number.
_ALPHA = (1 + 17**0.5) / 8


class LdlFactorEx(NamedTuple, Generic[Wide]):
    """What `ldl_factor_ex` returns."""

    LD: NDArray[Wide]
    pivots: NDArray[np.int32]
    info: NDArray[np.int32]


@onnx_op("pyops::LdlFactorEx")
def ldl_factor_ex(a: NDArray[Wide], *, hermitian: bool = False, check_errors: bool = False) -> LdlFactorEx[Wide]:
    """The packed factors of each matrix, as ``torch.linalg.ldl_factor_ex`` and ``torch.linalg.ldl_factor``.

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
    factors = np.tril(a)
    pivots = np.zeros(a.shape[:-1], np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        with np.errstate(all="ignore"):
            info[index] = _factor(factors[index], pivots[index])
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


def _factor(a: Array, pivots: NDArray[np.int32]) -> int:
    """Factor the lower triangle of one matrix in place; the first zero block, from 1 on."""
    n, k, info = len(a), 0, 0
    while k < n:
        row, size = _pivot(a, k)
        if size == 0:
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        last = k + size - 1
        _exchange(a, k, last, row)
        block = a[k : last + 1, k : last + 1]
        column = a[last + 1 :, k : last + 1].copy()
        multiples = column / block if size == 1 else _solve_block(block, column.T).T
        trailing = a[last + 1 :, last + 1 :]
        trailing -= np.tril(multiples @ column.T)
        a[last + 1 :, k : last + 1] = multiples
        pivots[k : last + 1] = row + 1 if size == 1 else -(row + 1)
        k += size
    return info


def _pivot(a: Array, k: int) -> tuple[int, int]:
    """The row to exchange, and the size of the block; 0 where the column is zero."""
    diagonal = abs(a[k, k])
    below = np.abs(a[k + 1 :, k])
    largest = below.max(initial=0)
    if max(diagonal, largest) == 0 or np.isnan(diagonal):
        return k, 0
    if diagonal >= _ALPHA * largest:
        return k, 1
    row = k + 1 + int(below.argmax())
    others = max(np.abs(a[row, k:row]).max(), np.abs(a[row + 1 :, row]).max(initial=0))
    if diagonal >= _ALPHA * largest * (largest / others):
        return k, 1
    return row, 1 if abs(a[row, row]) >= _ALPHA * others else 2


def _exchange(a: Array, k: int, last: int, row: int) -> None:
    """Exchange two rows and columns, `last` and `row`, of a symmetric matrix of which the lower triangle is kept."""
    if row == last:
        return
    a[row + 1 :, [last, row]] = a[row + 1 :, [row, last]]
    middle = a[last + 1 : row, last].copy()
    a[last + 1 : row, last] = a[row, last + 1 : row]
    a[row, last + 1 : row] = middle
    a[[last, row], [last, row]] = a[[row, last], [row, last]]
    if last > k:
        a[[last, row], k] = a[[row, last], k]


def _solve_block(block: Array, b: Array) -> Array:
    """X of ``D X = B`` for a symmetric block of two, scaled by its element off the diagonal as LAPACK does."""
    off = block[1, 0]
    first, second = block[1, 1] / off, block[0, 0] / off
    factor = 1 / (first * second - 1) / off
    return np.stack([factor * (first * b[0] - b[1]), factor * (second * b[1] - b[0])])


@onnx_op("pyops::LdlSolve")
def ldl_solve(
    factors: NDArray[Wide], pivots: NDArray[np.int32], b: NDArray[Wide], *, hermitian: bool = False
) -> NDArray[Wide]:
    """The solution of linear systems whose matrices are factored, as ``torch.linalg.ldl_solve``.

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
    n = b.shape[-2]
    rows = np.abs(pivots)
    if pivots.size and (rows.min() < 1 or rows.max() > n):
        raise ValueError(f"LdlSolve: pivots are rows counted from 1, here to {n}, or their negatives")
    batch: tuple[int, ...] = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    factors = np.broadcast_to(factors, (*batch, n, n))
    pivots = np.broadcast_to(pivots, (*batch, n))
    for index in np.ndindex(batch):
        with np.errstate(all="ignore"):
            _solve(factors[index], pivots[index], x[index])
    return x


@ldl_solve.register_shape_inference
def _(factors: TensorSpec, pivots: TensorSpec, b: TensorSpec, **hermitian: Any) -> TensorSpec:
    check_pivots("LdlSolve", factors, pivots)
    return b.like(shape=(*check_system("LdlSolve", factors, b), *b.shape[-2:]))


def _solve(factors: Array, pivots: Array, x: Array) -> None:
    """Solve one system in place: L, then D, block by block, and back through L^T."""
    blocks = _blocks(pivots)
    for first, last, row in blocks:
        x[[last, row]] = x[[row, last]]
        x[last + 1 :] -= factors[last + 1 :, first : last + 1] @ x[first : last + 1]
        if first == last:
            x[first] /= factors[first, first]
        else:
            x[first : last + 1] = _solve_block(factors[first : last + 1, first : last + 1], x[first : last + 1])
    for first, last, row in reversed(blocks):
        x[first : last + 1] -= factors[last + 1 :, first : last + 1].T @ x[last + 1 :]
        x[[last, row]] = x[[row, last]]


def _blocks(pivots: Array) -> list[tuple[int, int, int]]:
    """The blocks of D: the first and the last row, and the one that the last was exchanged with."""
    blocks, k = [], 0
    while k < len(pivots):
        last = k if pivots[k] > 0 else min(k + 1, len(pivots) - 1)
        blocks.append((k, last, abs(int(pivots[k])) - 1))
        k = last + 1
    return blocks
