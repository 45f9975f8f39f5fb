"""Least squares and the pseudo-inverse, by singular values."""

from __future__ import annotations

from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import Dim, TensorSpec, broadcast, new_dim
from pyops.errors import ShapeInferenceError, UnknownSizeError

from ._arrays import differ, scalar
from ._declarations import Wide
from ._matrices import Array, Shaped, matrices, smaller, square
from .spectral import decompose, decompose_symmetric

A = TypeVar("A", np.float32, np.float64)
R = TypeVar("R", np.float32, np.float64)


@onnx_op("pyops::Pinv", device_types=("cpu", "cuda"))
def pinv(
    a: NDArray[Wide], atol: NDArray[A] | None = None, rtol: NDArray[R] | None = None, *, hermitian: bool = False
) -> NDArray[Wide]:
    """Compute the Moore-Penrose pseudo-inverse of each matrix, as ``torch.linalg.pinv``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n); (..., n, n) if `hermitian` is set, and then only the lower triangle is read.
    atol : array of float32 or float64, optional
        Broadcasts with the batch; 0 if absent. Singular values not above ``max(atol, rtol * largest)`` count as
        zero.
    rtol : array of float32 or float64, optional
        Likewise; if absent 0 where `atol` is positive, and elsewhere max(m, n) times the distance of 1 to the next
        larger number.
    hermitian : bool
        Whether the matrices are symmetric, which is faster.

    Returns
    -------
    array of the dtype of `a`
        (..., n, m), the batch broadcast with `atol` and `rtol`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not finite.
    """
    _, m, n = matrices("Pinv", a)
    xp = array_namespace(a)
    if not a.size:
        return np.empty_like(a.mT)
    absolute: Array = xp.zeros(()) if atol is None else atol
    if rtol is not None:
        relative: Array = rtol
    else:
        relative = xp.where(absolute > 0, 0, max(m, n) * np.finfo(a.dtype).eps)
    if hermitian:
        values, u = decompose_symmetric("Pinv", a, "L")
        vh = u.mT
    else:
        u, values, vh = decompose("Pinv", a, False)
    sizes = xp.abs(values)
    tolerance = xp.maximum(absolute[..., None], relative[..., None] * sizes.max(-1, keepdims=True))
    with np.errstate(all="ignore"):
        reciprocals = xp.where(sizes > tolerance, 1 / values, 0).astype(a.dtype)
        inverse: Array = (vh.mT * reciprocals[..., None, :]) @ u.mT
    return inverse


@pinv.register_shape_inference
def _(
    a: TensorSpec, atol: TensorSpec | None = None, rtol: TensorSpec | None = None, *, hermitian: bool = False
) -> TensorSpec:
    batch, m, n = matrices("Pinv", a)
    if hermitian:
        square("Pinv", a)
    given = (item for item in (atol, rtol) if item is not None)
    return a.like(shape=(*broadcast(a.like(shape=batch), *given), n, m))


class Lstsq(NamedTuple, Generic[Wide]):
    """Outputs of `lstsq`."""

    solution: NDArray[Wide]
    residuals: NDArray[Wide]
    rank: NDArray[np.int64]
    singular_values: NDArray[Wide]


@onnx_op("pyops::Lstsq")
def lstsq(
    a: NDArray[Wide],
    b: NDArray[Wide],
    rcond: NDArray[R] | None = None,
    *,
    driver: Literal["gelsy", "gels", "gelsd", "gelss"] = "gelsy",
) -> Lstsq[Wide]:
    """Solve the least-squares problem ``min |A X - B|`` with the smallest X, as ``torch.linalg.lstsq``.

    Whatever the driver, the solution is computed by singular values; the driver says which of the other outputs there
    are, as in torch. So a matrix that is not of full rank is none of the errors that torch's ``gels`` may raise.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).
    b : array of the dtype of `a`
        (..., m, k), or vectors of the shape (..., m): one dimension less than `a`. The batch is that of `a`.
    rcond : array of float32 or float64, optional
        A scalar: singular values that are not above `rcond` times the largest count as zero. If it is absent, max(m, n)
        times the distance of 1 to the next larger number.
    driver : str
        The LAPACK driver that torch would use.

    Returns
    -------
    solution : array of the dtype of `a`
        (..., n, k), or (..., n).
    residuals : array of the dtype of `a`
        (..., k), (..., 1) for vectors: the sums of the squared residuals, if m > n, the rank of every matrix is n, and
        the driver is not gelsy; otherwise empty, of the shape (0,), and where that is for want of rank, of as many
        dimensions as otherwise, each 0.
    rank : array of int64
        (...); (0,) for gels.
    singular_values : array of the dtype of `a`
        (..., min(m, n)), from the largest to the smallest; (0,) for gels and gelsy.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not finite.
    """
    vectors = _are_vectors(a, b)
    rhs = b[..., None] if vectors else b
    m, n = a.shape[-2:]
    u, s, vh = decompose("Lstsq", a, False)
    relative = max(m, n) * np.finfo(a.dtype).eps if rcond is None else scalar("Lstsq: rcond", rcond)
    counts = s > relative * s.max(-1, keepdims=True, initial=0)
    with np.errstate(all="ignore"):
        reciprocals = np.where(counts, 1 / s, 0).astype(a.dtype)
        x = vh.mT @ (reciprocals[..., None] * (u.mT @ rhs))
    rank = counts.sum(-1, dtype=np.int64)
    none: Array = np.empty(0, a.dtype)
    residuals = none
    if m > n and driver != "gelsy":
        with np.errstate(all="ignore"):
            residuals = np.square(rhs - a @ x).sum(-2)
        if driver != "gels" and (rank < n).any():
            residuals = np.empty((0,) * residuals.ndim, a.dtype)
    return Lstsq(
        x[..., 0] if vectors else x,
        residuals,
        np.empty(0, np.int64) if driver == "gels" else np.asarray(rank),
        s if driver in ("gelsd", "gelss") else none.copy(),
    )


@lstsq.register_shape_inference
def _(
    a: TensorSpec, b: TensorSpec, rcond: TensorSpec | None = None, *, driver: str = "gelsy"
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]:
    vectors = _are_vectors(a, b)
    batch, m, n = matrices("Lstsq", a)
    right = () if vectors else b.shape[-1:]
    none = a.like(shape=(0,))
    return (
        a.like(shape=(*batch, n, *right)),
        a.like(shape=_residuals(batch, m, n, right or (1,), driver)),
        a.like(shape=(0,) if driver == "gels" else batch, dtype=np.int64),
        a.like(shape=(*batch, smaller(m, n))) if driver in ("gelsd", "gelss") else none,
    )


def _residuals(batch: tuple[Dim, ...], m: Dim, n: Dim, right: tuple[Dim, ...], driver: str) -> tuple[Dim, ...]:
    if driver == "gelsy" or (isinstance(m, int) and isinstance(n, int) and m <= n):
        return (0,)
    if not (isinstance(m, int) and isinstance(n, int)) and batch:
        raise UnknownSizeError("Lstsq: the dimensions of the residuals depend on sizes that are not known yet")
    if driver == "gels" and isinstance(m, int) and isinstance(n, int):
        return (*batch, *right)
    return tuple(new_dim() for _ in (*batch, *right))


def _are_vectors(a: Shaped, b: Shaped) -> bool:
    """Return whether the right sides are vectors; a ShapeInferenceError if the shapes do not fit."""
    batch, m, _ = matrices("Lstsq", a)
    rows = len(a.shape) - 1
    if len(b.shape) not in (rows, rows + 1) or any(map(differ, (*batch, m), b.shape)):
        raise ShapeInferenceError(
            f"Lstsq: the shapes {list(a.shape)} and {list(b.shape)} do not fit; b is (..., m, k) or (..., m) for a of "
            "(..., m, n)"
        )
    return len(b.shape) == rows
