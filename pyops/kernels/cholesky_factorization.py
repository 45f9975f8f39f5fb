"""``A = L L^T`` of symmetric positive-definite matrices, and what is computed from L."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._element_types import Wide
from ._matrices import Array, check_system, diagonal, first_true, lapack, raise_failed, square
from .triangular_systems import solve


class CholeskyEx(NamedTuple, Generic[Wide]):
    """What `cholesky_ex` returns."""

    L: NDArray[Wide]
    info: NDArray[np.int32]


@onnx_op("pyops::CholeskyEx")
def cholesky_ex(a: NDArray[Wide], *, upper: bool = False, check_errors: bool = False) -> CholeskyEx[Wide]:
    """The Cholesky factor, as ``torch.linalg.cholesky_ex``, and with `check_errors` as ``torch.linalg.cholesky``.

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
    """The inverse of each matrix whose Cholesky factor is given, as ``torch.cholesky_inverse``.

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
    inverse = solve(lower, np.eye(n, dtype=factor.dtype), upper=False)
    return np.asarray(inverse.mT @ inverse)


@cholesky_inverse.register_shape_inference
def _(factor: TensorSpec, **upper: Any) -> TensorSpec:
    batch, n = square("CholeskyInverse", factor)
    return factor.like(shape=(*batch, n, n))


@onnx_op("pyops::CholeskySolve", device_types=("cpu", "cuda"))
def cholesky_solve(b: NDArray[Wide], factor: NDArray[Wide], *, upper: bool = False) -> NDArray[Wide]:
    """The solution of linear systems from the Cholesky factor of their matrices, as ``torch.cholesky_solve``.

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
    return solve(lower.mT, solve(lower, b, upper=False), upper=True)


@cholesky_solve.register_shape_inference
def _(b: TensorSpec, factor: TensorSpec, **upper: Any) -> TensorSpec:
    return b.like(shape=(*check_system("CholeskySolve", factor, b), *b.shape[-2:]))
