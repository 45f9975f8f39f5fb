"""Functions of whole matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._element_types import Float
from ._matrices import Array, square
from ._scipy import scipy


@onnx_op("pyops::MatrixExp")
def matrix_exp(a: NDArray[Float]) -> NDArray[Float]:
    """The exponential of each matrix, as ``torch.linalg.matrix_exp``.

    It is computed in float64. Torch's float16 and bfloat16 lose most digits on the way; this does not.

    Parameters
    ----------
    a : array of float16, bfloat16, float32 or float64
        (..., n, n).

    Returns
    -------
    array of the dtype of `a`
        (..., n, n): ``I + A + A^2 / 2! + A^3 / 3! + ...``; NaN for a matrix that is not finite.
    """
    square("MatrixExp", a)
    x: Array = a.astype(np.float64)
    finite = np.isfinite(x).all((-2, -1), keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = scipy("linalg", x).expm(np.where(finite, x, 0))
        return np.where(finite, exponential, np.nan).astype(a.dtype)


@matrix_exp.register_shape_inference
def _(a: TensorSpec) -> TensorSpec:
    square("MatrixExp", a)
    return a
