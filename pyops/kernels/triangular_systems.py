"""Linear systems with triangular matrices, of which the other triangle is never read."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.devices import is_cupy
from pyops._schema.specs import TensorSpec

from ._element_types import Wide
from ._matrices import Array, check_system, over_batch
from ._scipy import scipy


@onnx_op("pyops::SolveTriangular", device_types=("cpu", "cuda"))
def solve_triangular(
    a: NDArray[Wide], b: NDArray[Wide], *, upper: bool, left: bool = True, unitriangular: bool = False
) -> NDArray[Wide]:
    """The solution of triangular systems, as ``torch.linalg.solve_triangular``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., n, n).
    b : array of the dtype of `a`
        (..., n, k); (..., k, n) where `left` is not set. The batches broadcast.
    upper : bool
        Whether the upper triangle of `a` is its matrix, or the lower one.
    left : bool
        Whether to solve ``A X = B``, or ``X A = B``.
    unitriangular : bool
        Whether the diagonal is taken for ones, and not read.

    Returns
    -------
    array of the dtype of `a`
        X, of the broadcast shape of `b`; infinite or NaN where a diagonal element is zero.
    """
    check_system("SolveTriangular", a, b, left)
    if left:
        return solve(a, b, upper=upper, unit=unitriangular)
    return solve(a.mT, b.mT, upper=not upper, unit=unitriangular).mT


@solve_triangular.register_shape_inference
def _(a: TensorSpec, b: TensorSpec, *, left: bool = True, **triangle: Any) -> TensorSpec:
    return b.like(shape=(*check_system("SolveTriangular", a, b, left), *b.shape[-2:]))


class TriangularSolve(NamedTuple, Generic[Wide]):
    """What `triangular_solve` returns."""

    solution: NDArray[Wide]
    cloned_coefficient: NDArray[Wide]


@onnx_op("pyops::TriangularSolve", device_types=("cpu", "cuda"))
def triangular_solve(
    b: NDArray[Wide], a: NDArray[Wide], *, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve[Wide]:
    """The solution of triangular systems, as the older ``torch.triangular_solve``.

    Parameters
    ----------
    b : array of float32 or float64
        (..., n, k).
    a : array of the dtype of `b`
        (..., n, n). The batches broadcast.
    upper : bool
        Whether the upper triangle of `a` is its matrix, or the lower one.
    transpose : bool
        Whether to solve ``A^T X = B`` instead of ``A X = B``.
    unitriangular : bool
        Whether the diagonal is taken for ones, and not read.

    Returns
    -------
    solution : array of the dtype of `b`
        (..., n, k); infinite or NaN where a diagonal element is zero.
    cloned_coefficient : array of the dtype of `b`
        `a`, broadcast to the batch of the solution.
    """
    check_system("TriangularSolve", a, b)
    matrix = a.mT if transpose else a
    solution: Array = solve(matrix, b, upper=upper != transpose, unit=unitriangular)
    return TriangularSolve(solution, array_namespace(a).broadcast_to(a, (*solution.shape[:-2], *a.shape[-2:])))


@triangular_solve.register_shape_inference
def _(b: TensorSpec, a: TensorSpec, **triangle: Any) -> tuple[TensorSpec, TensorSpec]:
    batch = check_system("TriangularSolve", a, b)
    return b.like(shape=(*batch, *b.shape[-2:])), a.like(shape=(*batch, *a.shape[-2:]))


def solve(a: Array, b: Array, *, upper: bool, unit: bool = False) -> Array:
    """Return X of ``A X = B`` for triangular matrices A, of which only that triangle is read; the batches broadcast."""
    if is_cupy(a):
        of_one = scipy("linalg", a).solve_triangular
        return over_batch(lambda x, matrix: of_one(matrix, x, lower=not upper, unit_diagonal=unit), b, a)
    # scipy.linalg.solve_triangular refuses a zero on the diagonal.
    trsm = scipy("linalg.blas", a).get_blas_funcs("trsm", dtype=a.dtype)
    return over_batch(lambda x, matrix: trsm(1, matrix, x, lower=not upper, diag=unit), b, a)
