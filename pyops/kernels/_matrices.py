"""What the linear algebra kernels share: checks of shapes, batches, and what to say of a matrix that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._schema.devices import is_cupy
from pyops._schema.specs import Dim, TensorSpec, broadcast, new_dim
from pyops.errors import ShapeInferenceError

from ._arrays import differ, scipy

Array = NDArray[Any]
"""An array in the middle of a computation, of the dtype of its inputs."""

Shaped = Any
"""An array or its spec."""


def matrices(op: str, x: Shaped) -> tuple[tuple[Dim, ...], Dim, Dim]:
    """Return the batch dimensions, the rows and the columns; a ShapeInferenceError if the input is no matrix."""
    if len(x.shape) < 2:
        raise ShapeInferenceError(
            f"{op}: an input has shape {list(x.shape)}; it takes matrices, of two or more dimensions"
        )
    *batch, rows, columns = x.shape
    return tuple(batch), rows, columns


def square(op: str, x: Shaped) -> tuple[tuple[Dim, ...], Dim]:
    """Return the batch dimensions and the size; a ShapeInferenceError if the matrices are known not to be square."""
    batch, rows, columns = matrices(op, x)
    if differ(rows, columns):
        raise ShapeInferenceError(f"{op}: an input has shape {list(x.shape)}; its matrices must be square")
    return batch, columns if isinstance(columns, int) else rows


def smaller(one: Dim, other: Dim) -> Dim:
    """Return the smaller of two sizes, or a new dimension if it is not known which one that is."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return one if one == other else new_dim()


def check_pivots(op: str, factors: Shaped, pivots: Shaped) -> None:
    """Raise a ShapeInferenceError unless each matrix of factors has min(rows, columns) pivots."""
    batch, m, n = matrices(op, factors)
    expected = (*batch, smaller(m, n))
    if len(pivots.shape) != len(expected) or any(map(differ, pivots.shape, expected)):
        raise ShapeInferenceError(
            f"{op}: pivots has shape {list(pivots.shape)}; for factors of {list(factors.shape)} it is {list(expected)}"
        )


def check_system(op: str, a: Shaped, b: Shaped, left: bool = True) -> tuple[Dim, ...]:
    """Return the batch dimensions of X in ``A X = B`` or ``X A = B``; a ShapeInferenceError if shapes do not fit."""
    _, n = square(op, a)
    _, rows, columns = matrices(op, b)
    if differ(n, rows if left else columns):
        equation = "A X = B" if left else "X A = B"
        raise ShapeInferenceError(f"{op}: the shapes {list(a.shape)} and {list(b.shape)} do not fit {equation}")
    return broadcast(*(TensorSpec(x.shape[:-2], x.dtype) for x in (a, b)))


def check_rows(pivots: Array, m: int) -> None:
    """Raise a ValueError unless all pivots are rows of m."""
    # LAPACK reads and writes wherever they point.
    if pivots.size and (pivots.min() < 1 or pivots.max() > m):
        raise ValueError(f"pivots are rows counted from 1, here to {m}, and go from {pivots.min()} to {pivots.max()}")


def lapack(routine: str, a: Array) -> Callable[..., Any]:
    """Return SciPy's binding of a routine of LAPACK, such as ``"getrf"``, for the dtype of a NumPy array."""
    return scipy("linalg.lapack", a).get_lapack_funcs(routine, dtype=a.dtype)


def over_batch(function: Callable[..., Array], x: Array, *others: Array) -> Array:
    """Call a function for each matrix of a batch, to which all arguments broadcast; it returns one shaped like `x`.

    Where a matrix has no elements, LAPACK is not called, and the result is `x`.
    """
    xp = array_namespace(x)
    batch = np.broadcast_shapes(*(array.shape[:-2] for array in (x, *others)))
    result: Array = xp.asarray(xp.broadcast_to(x, (*batch, *x.shape[-2:])), copy=True)
    if result.size and all(array.size for array in others):
        factors = [xp.broadcast_to(array, (*batch, *array.shape[-2:])) for array in others]
        for index in np.ndindex(batch):
            result[index] = function(result[index], *(array[index] for array in factors))
    return result


def solve_triangles(a: Array, b: Array, *, upper: bool, unit: bool = False) -> Array:
    """Solve ``A X = B`` for triangular matrices A, of which only that triangle is read; the batches broadcast."""
    if is_cupy(a):
        of_one = scipy("linalg", a).solve_triangular
        return over_batch(lambda x, matrix: of_one(matrix, x, lower=not upper, unit_diagonal=unit), b, a)
    # scipy.linalg.solve_triangular refuses a zero on the diagonal.
    trsm = scipy("linalg.blas", a).get_blas_funcs("trsm", dtype=a.dtype)
    return over_batch(lambda x, matrix: trsm(1, matrix, x, lower=not upper, diag=unit), b, a)


def first_true(conditions: Array) -> NDArray[np.int32]:
    """Return the place of the first true element along the last dimension, counted from 1; 0 if there is none."""
    if not conditions.shape[-1]:
        return np.zeros(conditions.shape[:-1], np.int32)
    return np.where(conditions.any(-1), conditions.argmax(-1) + 1, 0).astype(np.int32)


def diagonal(a: Array) -> Array:
    """Return the diagonal of each matrix."""
    return np.diagonal(a, axis1=-2, axis2=-1)


def raise_failed(info: NDArray[np.int32], message: str) -> None:
    """Raise a LinAlgError for the first matrix whose `info` is not 0; `message` has the places {where} and {k}."""
    failed = np.flatnonzero(info)
    if failed.size:
        where = f" (batch element {failed[0]})" if info.ndim else ""
        raise np.linalg.LinAlgError(message.format(where=where, k=int(info.flat[failed[0]])))
