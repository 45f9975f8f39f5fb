"""Covariances and correlations of variables."""

from __future__ import annotations

from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import SymbolicDim, TensorSpec
from pyops.errors import ShapeInferenceError, UnknownSizeError

from ._element_types import Float, widened

Weight = TypeVar("Weight", np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


@onnx_op("pyops::Cov", device_types=("cpu", "cuda"))
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
        What is taken from the number of observations; 1 is Bessel's correction.

    Returns
    -------
    array of the dtype of `input`
        (variables, variables), a scalar if there is one variable. Infinite or NaN where `correction`
        leaves no observations to divide by.

    Raises
    ------
    ValueError
        Weights are negative, sum to zero, or are not one for each observation.
    ShapeInferenceError
        The input has more than two dimensions.
    """
    _check_variables(input.shape, "Cov")
    matrix = _covariance(input, fweights, aweights, correction)
    return (matrix.reshape(()) if len(matrix) == 1 else matrix).astype(input.dtype)


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
    ShapeInferenceError
        The input has more than two dimensions.
    """
    _check_variables(input.shape, "Corrcoef")
    xp = array_namespace(input)
    matrix = _covariance(input, None, None, 1)
    with np.errstate(all="ignore"):
        if len(matrix) == 1:
            return (matrix / matrix).reshape(()).astype(input.dtype)
        deviations = xp.sqrt(xp.diagonal(matrix))
        return xp.clip(matrix / deviations[:, None] / deviations, -1.0, 1.0).astype(input.dtype)


def _covariance(x: Any, fweights: Any, aweights: Any, correction: int) -> Any:
    """Compute the matrix in float32 at least."""
    xp = array_namespace(x)
    rows = widened(x.reshape(1, -1) if x.ndim < 2 else x)
    count = rows.shape[1]
    weights: Any = None if fweights is None else _checked(fweights, count)
    if aweights is not None:
        weights = _checked(aweights, count) * (1 if weights is None else weights.astype(aweights.dtype))
    total = xp.asarray(count) if weights is None else weights.sum()
    if weights is not None and not total:
        raise ValueError("Cov: the weights sum to zero, by which nothing can be divided; give some that do not")
    with np.errstate(all="ignore"):
        taken = correction if aweights is None else correction * (weights * aweights).sum() / total
        norm = xp.maximum(total - taken, xp.zeros_like(total)).astype(rows.dtype)
        weighted = rows if weights is None else rows * weights.astype(rows.dtype)
        means = weighted.sum(axis=1) / total.astype(rows.dtype)
        deviations = rows - means[:, None]
        weighted = deviations if weights is None else deviations * weights.astype(rows.dtype)
        return weighted @ deviations.T / norm


def _checked(weights: Any, count: int) -> Any:
    """Check the arguments, and return the numbers of frequencies and of frames."""
    if weights.shape != (count,):
        raise ValueError(f"Cov: weights are {list(weights.shape)}; there are {count} observations, each with one")
    if weights.size and float(weights.min()) < 0:
        raise ValueError("Cov: a weight is negative")
    return weights


def _check_variables(shape: tuple[Any, ...], op: str) -> None:
    if len(shape) > 2:
        raise ShapeInferenceError(f"{op}: the input is {list(shape)}; it is variables by observations")


def _matrix_spec(x: TensorSpec, op: str) -> TensorSpec:
    _check_variables(x.shape, op)
    if x.ndim == 2 and isinstance(x.shape[0], SymbolicDim):
        raise UnknownSizeError(f"{op}: whether the result is a scalar is not known before the number of variables is")
    return x.like(shape=() if x.ndim < 2 or x.shape[0] == 1 else (x.shape[0], x.shape[0]))


@cov.register_shape_inference
def _(input: TensorSpec, *weights: Any, correction: int = 1) -> TensorSpec:
    return _matrix_spec(input, "Cov")


@corrcoef.register_shape_inference
def _(input: TensorSpec) -> TensorSpec:
    return _matrix_spec(input, "Corrcoef")
