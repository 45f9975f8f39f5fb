"""What is computed from each pair of vectors: distances, covariances and correlations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from .. import onnx_op
from ..errors import ShapeInferenceError, UnknownSizeError
from ..shapes import SymbolicDim, TensorSpec, new_dim
from ._arrays import scalar, widened
from ._declarations import Float, Wide
from ._matrices import on_matrices

Weight = TypeVar("Weight", np.float16, bfloat16, np.float32, np.float64)

_AS_PRODUCT_IF_LARGE, _AS_PRODUCT = 0, 1
_LARGE = 25

# The number of differences in memory at a time.
_BLOCK = 1 << 20


@on_matrices("Cdist", "(p,m),(r,m)->(p,r)")
def cdist(
    x1: NDArray[Wide],
    x2: NDArray[Wide],
    *,
    p: np.ndarray = np.array(2.0),  # noqa: B008 # nothing writes to this default
    compute_mode: int = 0,
) -> NDArray[Wide]:
    r"""Compute the distances between each row of one matrix and each row of another.

    :math:`d_{ij} = (\sum_k |a_{ik} - b_{jk}|^p)^{1/p}`. For p = 0 it is the number of differences that are not 0, and
    for an infinite p the largest.

    As ``torch.cdist``, except that a NaN among the differences gives NaN for an infinite `p`, too, where torch ignores
    it.

    Parameters
    ----------
    x1 : array of float32 or float64
        (..., P, M).
    x2 : array of the dtype of `x1`
        (..., R, M). The leading dimensions broadcast.
    p : array of float64
        (). At least 0; may be infinite.
    compute_mode : int
        For p = 2 alone: 0 computes the distances by a matrix product, :math:`\sqrt{|a|^2 + |b|^2 - 2 a \cdot b}`, if P
        or R is over 25; 1 always does, and 2 never does. The product is faster and loses digits of small distances.

    Returns
    -------
    array of the dtype of `x1`
        (..., P, R).

    Raises
    ------
    ValueError
        The shapes do not fit, or `p` is negative or NaN.
    """
    power = _power(p)
    rows, size, others = x1.shape[-2], x1.shape[-1], x2.shape[-2]
    large = rows > _LARGE or others > _LARGE
    if power == 2 and (compute_mode == _AS_PRODUCT or (compute_mode == _AS_PRODUCT_IF_LARGE and large)):
        return _euclidean_by_product(x1, x2)
    batch: tuple[int, ...] = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    result: NDArray[Wide] = np.empty((*batch, rows, others), x1.dtype)
    for part in _parts(rows, int(np.prod(batch)) * others * size):
        result[..., part, :] = _norm(x1[..., part, None, :] - x2[..., None, :, :], power)
    return result


@onnx_op("pyops::Pdist")
def pdist(x: NDArray[Wide], *, p: np.ndarray = np.array(2.0)) -> NDArray[Wide]:  # noqa: B008
    r"""Compute the distances between all pairs of rows of a matrix, in the order (0, 1), (0, 2), ..., (1, 2), ...

    As ``torch.nn.functional.pdist``.

    Parameters
    ----------
    x : array of float32 or float64
        (N, M).
    p : array of float64
        (). As for `cdist`.

    Returns
    -------
    array of the dtype of `x`
        (N (N - 1) / 2,).

    Raises
    ------
    ValueError
        `x` is not a matrix, or `p` is negative or NaN.
    """
    if x.ndim != 2:
        raise ValueError(f"x has shape {x.shape}; it must be a matrix, with one vector per row")
    power = _power(p)
    first, second = np.triu_indices(x.shape[0], 1)
    result = np.empty(first.shape, x.dtype)
    for part in _parts(len(first), x.shape[1]):
        result[part] = _norm(x[first[part]] - x[second[part]], power)
    return result


@pdist.register_shape_inference
def _(x: TensorSpec, **attributes: Any) -> TensorSpec:
    rows = x.shape[0]
    return x.like(shape=(rows * (rows - 1) // 2 if isinstance(rows, int) else new_dim(),))


def _power(p: np.ndarray) -> float:
    power = float(scalar("p", p))
    if not power >= 0:
        raise ValueError(f"p is {power}; it must be at least 0")
    return power


def _parts(count: int, size: int) -> Iterator[slice]:
    """Split `count` items, each of `size` values, into slices that fit into memory."""
    step = max(1, _BLOCK // max(size, 1))
    return (slice(start, start + step) for start in range(0, count, step))


def _norm(differences: NDArray[Any], power: float) -> NDArray[Any]:
    with np.errstate(all="ignore"):  # infinities and NaN are valid values
        if power == 0:
            return np.asarray(np.minimum(np.ceil(np.abs(differences)), 1).sum(-1))  # which keeps NaN
        if not differences.shape[-1]:
            return np.zeros(differences.shape[:-1], differences.dtype)
        return np.asarray(np.linalg.norm(differences, power, axis=-1))


def _euclidean_by_product(x1: NDArray[Any], x2: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        squares = np.square(x1).sum(-1)[..., :, None] + np.square(x2).sum(-1)[..., None, :]
        squares = squares - 2 * (x1 @ np.swapaxes(x2, -1, -2))
        return np.asarray(np.sqrt(np.maximum(squares, 0)))


# On the CPU only: cupy.cov subtracts the unweighted mean from weighted observations.
@onnx_op("pyops::Cov")
def cov(
    input: NDArray[Float],
    fweights: NDArray[np.int64] | None = None,
    aweights: NDArray[Weight] | None = None,
    *,
    correction: int = 1,
) -> NDArray[Float]:
    """Compute the covariance matrix of variables.

    As ``torch.cov(input, correction=correction, fweights=fweights, aweights=aweights)``: with weights w
    (the product of both, 1 where absent) and means m under these weights,
    ``sum(w * (x - m)(x - m)^T) / (sum(w) - correction * sum(w * aweights) / sum(w))``.

    Parameters
    ----------
    input : array of float16, bfloat16, float32 or float64
        (variables, observations), or (observations,) of one variable, or a scalar.
    fweights : array of int64, optional
        (observations,): how often each observation counts.
    aweights : array of float16, bfloat16, float32 or float64, optional
        (observations,): how much it counts.
    correction : int
        What is subtracted from the number of observations; 1 is Bessel's correction.

    Returns
    -------
    array of the dtype of `input`
        (variables, variables), a scalar if there is one variable. Infinite or NaN, with a warning, where
        `correction` leaves no observations to divide by.

    Raises
    ------
    ValueError
        Weights are negative, or the input has more than two dimensions.
    ZeroDivisionError
        Weights sum to zero.
    RuntimeError
        Weights are not one for each observation.
    """
    with np.errstate(all="ignore"):
        matrix = np.cov(widened(input), ddof=correction, fweights=fweights, aweights=aweights)
        return matrix.astype(input.dtype)


@onnx_op("pyops::Corrcoef", device_types=("cpu", "cuda"))
def corrcoef(input: NDArray[Float]) -> NDArray[Float]:
    """Compute Pearson's correlation coefficients of variables.

    As ``torch.corrcoef(input)``: of the covariances C, ``C[i, j] / sqrt(C[i, i] * C[j, j])``, from -1 to 1.

    Parameters
    ----------
    input : array of float16, bfloat16, float32 or float64
        (variables, observations), or (observations,) of one variable, or a scalar.

    Returns
    -------
    array of the dtype of `input`
        (variables, variables), a scalar if there is one variable. NaN for a variable that does not vary.

    Raises
    ------
    ValueError
        The input has more than two dimensions.
    """
    xp = array_namespace(input)
    with np.errstate(all="ignore"):
        return xp.asarray(xp.corrcoef(widened(input))).astype(input.dtype)


@cov.register_shape_inference
@corrcoef.register_shape_inference
def _(input: TensorSpec, *weights: Any, **correction: Any) -> TensorSpec:
    if input.ndim > 2:
        raise ShapeInferenceError(f"the input has shape {list(input.shape)}; it must be (variables, observations)")
    if input.ndim == 2 and isinstance(input.shape[0], SymbolicDim):
        raise UnknownSizeError(
            "whether the result is a scalar depends on the number of variables, which is not known yet"
        )
    return input.like(shape=() if input.ndim < 2 or input.shape[0] == 1 else (input.shape[0], input.shape[0]))
