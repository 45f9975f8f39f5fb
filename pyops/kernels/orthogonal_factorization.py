"""``A = Q R``, the Householder reflectors that LAPACK keeps in place of Q, and least squares."""

from __future__ import annotations

from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import onnx_op
from ..errors import ShapeInferenceError, UnknownSizeError
from ..shapes import Dim, TensorSpec
from ._arrays import differ, scalar
from ._declarations import EVERYWHERE, Wide
from ._matrices import Array, adjoint_of, fit, lapack, on_matrices, over_batch, smaller
from .spectral import decompose

# The number of reflectors that LAPACK applies at a time.
_BLOCK = 64


R = TypeVar("R", np.float32, np.float64)


class Qr(NamedTuple, Generic[Wide]):
    """Outputs of `qr`."""

    Q: NDArray[Wide]
    R: NDArray[Wide]


def _qr(mode: str) -> str:
    return {
        "reduced": "(m,n)->(m,min),(min,n)",
        "complete": "(m,n)->(m,m),(m,n)",
        "r": "(m,n)->0,(min,n)",
    }[mode]


@on_matrices("Qr", _qr, EVERYWHERE)
def qr(a: NDArray[Wide], *, mode: Literal["reduced", "complete", "r"] = "reduced") -> Qr[Wide]:
    """Factor each matrix into Q and R, as ``torch.linalg.qr``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).
    mode : str
        ``"reduced"``, ``"complete"``, or ``"r"`` for R alone.

    Returns
    -------
    Q : array of the dtype of `a`
        (..., m, k) with orthonormal columns, where k = min(m, n), and m if the mode is complete; (0,) for ``"r"``.
    R : array of the dtype of `a`
        (..., k, n), upper triangular. Its diagonal has the signs that LAPACK gives it, and is not normalized to be
        positive.
    """
    xp = array_namespace(a)
    with np.errstate(all="ignore"):  # NumPy computes in float64, and what overflows float32 is infinite
        q, r = xp.linalg.qr(a, mode="complete" if mode == "complete" else "reduced")
    return Qr(xp.empty(0, dtype=a.dtype) if mode == "r" else q, r)


class Geqrf(NamedTuple, Generic[Wide]):
    """Outputs of `geqrf`."""

    a: NDArray[Wide]
    tau: NDArray[Wide]


@on_matrices("Geqrf", "(m,n)->(m,n),(min)")
def geqrf(a: NDArray[Wide]) -> Geqrf[Wide]:
    """Factor each matrix into R and Householder reflectors as LAPACK's geqrf does, as ``torch.geqrf``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).

    Returns
    -------
    a : array of the dtype of `a`
        (..., m, n): R on and above the diagonal, and below it the vectors v of the reflectors ``I - tau v v^T`` without
        their leading one.
    tau : array of the dtype of `a`
        (..., min(m, n)).
    """
    with np.errstate(all="ignore"):
        reflectors, tau = np.linalg.qr(a, "raw")
    return Geqrf(reflectors.mT, tau)


@on_matrices("HouseholderProduct", "(m,n),(k)->(m,n)")
def householder_product(a: NDArray[Wide], tau: NDArray[Wide]) -> NDArray[Wide]:
    """Compute the first columns of a product of reflectors, as ``torch.linalg.householder_product``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n) with m >= n: in column i, below the diagonal, the vector of reflector i without its leading one.
    tau : array of the dtype of `a`
        (..., k) with k <= n.

    Returns
    -------
    array of the dtype of `a`
        (..., m, n): the first n columns of the product of the k reflectors, in the order of their columns in `a`.
    """
    m, n = a.shape[-2:]
    if m < n:
        raise ShapeInferenceError(
            f"HouseholderProduct: a has shape {list(a.shape)}; it needs at least as many rows as columns"
        )
    return _apply("HouseholderProduct", a, tau, np.broadcast_to(np.eye(m, n, dtype=a.dtype), a.shape), transpose=False)


@on_matrices("Ormqr", lambda left, **_: "(m,i),(k),(m,n)->(m,n)" if left else "(n,i),(k),(m,n)->(m,n)")
def ormqr(
    a: NDArray[Wide], tau: NDArray[Wide], other: NDArray[Wide], *, left: bool = True, transpose: bool = False
) -> NDArray[Wide]:
    """Multiply matrices by a product of Householder reflectors, as ``torch.ormqr``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, k), or (..., n, k) where `left` is not set: the reflectors, as for `householder_product`.
    tau : array of the dtype of `a`
        (..., k).
    other : array of the dtype of `a`
        (..., m, n).
    left : bool
        Whether to multiply by Q from the left, or from the right.
    transpose : bool
        Whether Q is transposed.

    Returns
    -------
    array of the dtype of `a`
        (..., m, n): ``Q C``, ``Q^T C``, ``C Q`` or ``C Q^T``, where Q is square and C is `other`.
    """
    if left:
        return _apply("Ormqr", a, tau, other, transpose)
    return adjoint_of(_apply("Ormqr", a, tau, adjoint_of(other), not transpose))


def _apply(op: str, a: Array, tau: Array, c: Array, transpose: bool) -> Array:
    """Compute ``Q C`` or ``Q^H C``; raise a ShapeInferenceError if `tau` is too long."""
    if tau.shape[-1] > min(a.shape[-2:]):
        raise ShapeInferenceError(
            f"{op}: tau has shape {list(tau.shape)} and a {list(a.shape)}; tau must not have more "
            "numbers than a has columns or rows"
        )
    ormqr, size = lapack("ormqr", a), _BLOCK * max(c.shape[-2:])
    trans = ("C" if a.dtype.kind == "c" else "T") if transpose else "N"
    return over_batch(
        lambda x, v, factors: ormqr("L", trans, v, factors[:, 0], x, size)[0],
        c,
        a[..., : tau.shape[-1]],
        tau[..., None],
    )


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

    Whatever the driver, the solution is computed from singular values; the driver decides which of the other outputs
    are computed, as in torch. So a matrix that is not of full rank is no error, as it may be with torch's ``gels``.

    Parameters
    ----------
    a : array of float32 or float64
        (..., m, n).
    b : array of the dtype of `a`
        (..., m, k), or vectors of the shape (..., m): one dimension less than `a`. The batch is that of `a`.
    rcond : array of float32 or float64, optional
        A scalar: singular values that are not above `rcond` times the largest count as zero. If it is absent, max(m, n)
        times the distance from 1 to the next larger number.
    driver : str
        The LAPACK driver that torch would use.

    Returns
    -------
    solution : array of the dtype of `a`
        (..., n, k), or (..., n).
    residuals : array of the dtype of `a`
        (..., k), (..., 1) for vectors: the sums of the squared residuals, if m > n and the driver is not gelsy;
        otherwise (0,). Torch also omits them where a matrix is not of full rank.
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
        reciprocals = np.where(counts, 1 / s, 0).astype(s.dtype)
        x = adjoint_of(vh) @ (reciprocals[..., None] * (adjoint_of(u) @ rhs))
    rank = counts.sum(-1, dtype=np.int64)
    none: Array = np.empty(0, s.dtype)
    residuals = none
    if m > n and driver != "gelsy":
        with np.errstate(all="ignore"):
            residuals = np.square(np.abs(rhs - a @ x)).sum(-2)
    return Lstsq(
        x[..., 0] if vectors else x,
        residuals,
        np.empty(0, np.int64) if driver == "gels" else np.asarray(rank),
        s if driver in ("gelsd", "gelss") else none.copy(),
    )


@lstsq.register_shape_inference
def _(a: TensorSpec, b: TensorSpec, *rcond: Any, driver: str = "gelsy") -> tuple[TensorSpec, ...]:
    vectors = _are_vectors(a, b)
    *batch, m, n = a.shape
    right = () if vectors else b.shape[-1:]
    residuals: tuple[Dim, ...] = (0,)
    if driver != "gelsy":
        if not (isinstance(m, int) and isinstance(n, int)):
            raise UnknownSizeError(
                "Lstsq: whether there are residuals depends on sizes of the matrices that are not known yet"
            )
        residuals = (*batch, *(right or (1,))) if m > n else (0,)
    rank = a.like(shape=(0,) if driver == "gels" else batch, dtype=np.int64)
    values = (*batch, smaller(m, n)) if driver in ("gelsd", "gelss") else (0,)
    return a.like(shape=(*batch, n, *right)), a.like(shape=residuals), rank, a.like(shape=values)


def _are_vectors(a: Any, b: Any) -> bool:
    """Return whether the right-hand sides are vectors; raise a ShapeInferenceError if the shapes do not fit."""
    fit("Lstsq", "(m,n)", [a])
    rows = len(a.shape) - 1
    if len(b.shape) not in (rows, rows + 1) or any(map(differ, a.shape[:-1], b.shape)):
        raise ShapeInferenceError(
            f"Lstsq: the shapes {list(a.shape)} and {list(b.shape)} do not fit; for a of "
            "(..., m, n), b must be (..., m, k) or (..., m)"
        )
    return len(b.shape) == rows
