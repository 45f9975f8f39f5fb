"""Triangular systems by substitution, vectorised over the batch."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace

from ._matrices import Array

# Below this size rows are eliminated one by one; above it most of the work is matrix products.
_ROWS = 16


def solve_triangular(a: Array, b: Array, *, upper: bool, unit: bool = False) -> Array:
    """X of ``A X = B`` for triangular matrices A, of which only that triangle is read.

    A is (..., n, n) and B (..., n, k), and the batches broadcast; a `unit` diagonal is ones, and not read. The system
    is halved (``A11 X1 = B1``, ``A22 X2 = B2 - A21 X1``), down to small ones.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    xp = array_namespace(a)
    x: Array = xp.asarray(xp.broadcast_to(b, (*batch, *b.shape[-2:])), copy=True)
    with np.errstate(all="ignore"):
        if upper:  # read backwards an upper triangle is a lower one
            _substitute(a[..., ::-1, ::-1], x[..., ::-1, :], unit)
        else:
            _substitute(a, x, unit)
    return x


def _substitute(a: Array, x: Array, unit: bool) -> None:
    """Solve for lower triangular `a`; `x` is the right side before and the solution after."""
    n = a.shape[-1]
    if n > _ROWS:
        half = n // 2
        _substitute(a[..., :half, :half], x[..., :half, :], unit)
        x[..., half:, :] -= a[..., half:, :half] @ x[..., :half, :]
        _substitute(a[..., half:, half:], x[..., half:, :], unit)
        return
    for i in range(n):
        if i:
            x[..., i : i + 1, :] -= a[..., i : i + 1, :i] @ x[..., :i, :]
        if not unit:
            x[..., i, :] /= a[..., i, i, None]
