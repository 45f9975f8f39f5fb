"""Linear systems ``A X = B`` of square and of triangular matrices, inverses and determinants."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec
from pyops.errors import ShapeInferenceError, UnknownSizeError

from ._arrays import differ
from ._declarations import Wide
from ._matrices import Array, Shaped, check_system, raise_failed, solve_triangles, square
from .factored_systems import solve_lu
from .triangular_factorization import factor_lu


class InvEx(NamedTuple, Generic[Wide]):
    """Outputs of `inv_ex`."""

    inverse: NDArray[Wide]
    info: NDArray[np.int32]


@onnx_op("pyops::InvEx")
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
    square("InvEx", a)
    inverse, info = _solved(a, np.eye(a.shape[-1], dtype=a.dtype))
    if check_errors:
        raise_failed(
            info,
            "InvEx:{where} the diagonal element {k} is zero, the inversion could not be completed because the input "
            "matrix is singular; use torch.linalg.pinv for a pseudo-inverse, or torch.linalg.inv_ex",
        )
    return InvEx(inverse, info)


@inv_ex.register_shape_inference
def _(a: TensorSpec, **check_errors: Any) -> tuple[TensorSpec, TensorSpec]:
    batch, n = square("InvEx", a)
    return a.like(shape=(*batch, n, n)), a.like(shape=batch, dtype=np.int32)


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
    check_system("SolveEx", a, rhs, left)
    x, info = _solved(a, rhs if left else rhs.mT, adjoint=not left)
    if check_errors:
        raise_failed(
            info,
            "SolveEx:{where} the solver failed because the input matrix is singular (diagonal element {k} of its "
            "factor is zero); use torch.linalg.lstsq for a solution of least squares, or torch.linalg.solve_ex, which "
            "does not raise",
        )
    x = x if left else x.mT
    return SolveEx(x[..., 0] if vectors else x, info)


@solve_ex.register_shape_inference
def _(a: TensorSpec, b: TensorSpec, *, left: bool = True, **check_errors: Any) -> tuple[TensorSpec, TensorSpec]:
    vectors = _are_vectors(a, b, left)
    batch = check_system("SolveEx", a, b.like(shape=(*b.shape, 1)) if vectors else b, left)
    x = b.like(shape=(*batch, *(a.shape[-1:] if vectors else b.shape[-2:])))
    return x, a.like(shape=a.shape[:-2], dtype=np.int32)


def _are_vectors(a: Shaped, b: Shaped, left: bool) -> bool:
    """Return whether the right sides are vectors, which they must not be unless `left` is set."""
    square("SolveEx", a)
    expected = tuple(a.shape[:-1])
    vectors = len(b.shape) == 1 or (len(b.shape) == len(expected) and tuple(b.shape) == expected)
    if not vectors and len(b.shape) == len(expected) and not any(map(differ, b.shape, expected)):
        raise UnknownSizeError(
            f"SolveEx: whether {list(b.shape)} are vectors is not known before the sizes are; these are vectors: "
            f"{list(expected)}"
        )
    if vectors and not left:
        raise ShapeInferenceError("SolveEx: b is a vector, which left=False does not take; give it a dimension")
    return vectors


def _solved(a: Array, b: Array, adjoint: bool = False) -> tuple[Array, NDArray[np.int32]]:
    """Solve ``A X = B``, or ``A^T X = B``, and tell which matrices are singular."""
    try:
        with np.errstate(all="ignore"):  # NumPy computes in float64, and what overflows float32 is infinite
            x: Array = np.linalg.solve(a.mT if adjoint else a, b)
        info = np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:  # which does not tell whose fault it was, and leaves the others without a result
        lu, pivots, info = factor_lu(a)
        x = solve_lu(lu, pivots, b, adjoint)
    # Some BLAS skip products with zero, and with them the NaN.
    missing = np.asarray(np.isnan(a).any((-2, -1)))
    return np.where(missing[..., None, None], x.dtype.type(np.nan), x) if missing.any() else x, info


class Slogdet(NamedTuple, Generic[Wide]):
    """Outputs of `slogdet`."""

    sign: NDArray[Wide]
    logabsdet: NDArray[Wide]


@onnx_op("pyops::Slogdet", device_types=("cpu", "cuda"))
def slogdet(a: NDArray[Wide]) -> Slogdet[Wide]:
    """Compute sign and logarithm of the absolute value of each determinant, as ``torch.linalg.slogdet``.

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


@slogdet.register_shape_inference
def _(a: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    batch, _n = square("Slogdet", a)
    return a.like(shape=batch), a.like(shape=batch)


@onnx_op("pyops::SolveTriangular", device_types=("cpu", "cuda"))
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
    if not left:
        return solve_triangles(a.mT, b.mT, upper=not upper, unit=unitriangular).mT
    return solve_triangles(a, b, upper=upper, unit=unitriangular)


@solve_triangular.register_shape_inference
def _(a: TensorSpec, b: TensorSpec, *, left: bool = True, **triangle: Any) -> TensorSpec:
    return b.like(shape=(*check_system("SolveTriangular", a, b, left), *b.shape[-2:]))


class TriangularSolve(NamedTuple, Generic[Wide]):
    """Outputs of `triangular_solve`."""

    solution: NDArray[Wide]
    cloned_coefficient: NDArray[Wide]


@onnx_op("pyops::TriangularSolve", device_types=("cpu", "cuda"))
def triangular_solve(
    b: NDArray[Wide], a: NDArray[Wide], *, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve[Wide]:
    """Solve triangular systems, as the older ``torch.triangular_solve``.

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
    solution: Array = solve_triangles(matrix, b, upper=upper != transpose, unit=unitriangular)
    return TriangularSolve(solution, array_namespace(a).broadcast_to(a, (*solution.shape[:-2], *a.shape[-2:])))


@triangular_solve.register_shape_inference
def _(b: TensorSpec, a: TensorSpec, **triangle: Any) -> tuple[TensorSpec, TensorSpec]:
    batch = check_system("TriangularSolve", a, b)
    return b.like(shape=(*batch, *b.shape[-2:])), a.like(shape=(*batch, *a.shape[-2:]))
