"""Functions of whole matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._element_types import Float
from ._matrices import Array, square

# The numerator of the Padé approximant of degree 13, and the largest norm at which its error is below the rounding of
# float64 (Higham 2005, "The scaling and squaring method for the matrix exponential revisited", tables 2.3 and 2.1).
_PADE = (
    *(64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600),
    *(670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1),
)
_LARGEST_NORM = 5.371920351148152


@onnx_op("pyops::MatrixExp")
def matrix_exp(a: NDArray[Float]) -> NDArray[Float]:
    """The exponential of each matrix, as ``torch.linalg.matrix_exp``.

    It is computed in float64, by a Padé approximant of the matrix divided by a power of two, squared as often. Torch's
    float16 and bfloat16 lose most digits on the way; this does not.

    Parameters
    ----------
    a : array of float16, bfloat16, float32 or float64
        (..., n, n).

    Returns
    -------
    array of the dtype of `a`
        (..., n, n): ``I + A + A^2 / 2! + A^3 / 3! + ...``; NaN for a matrix that is not finite.
    """
    _, n = square("MatrixExp", a)
    x: Array = a.astype(np.float64).reshape(int(np.prod(a.shape[:-2])), n, n)
    norms = np.abs(x).sum(-2).max(-1, initial=0)
    finite = np.isfinite(norms)
    result = np.full(x.shape, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        result[finite] = _exp(x[finite], norms[finite])
        return result.reshape(a.shape).astype(a.dtype)


def _exp(x: Array, norms: Array) -> Array:
    """The exponential of finite matrices, of the shape (batch, n, n)."""
    halvings = np.ceil(np.log2(np.maximum(norms / _LARGEST_NORM, 1))).astype(np.int64)
    x = np.ldexp(x, -halvings[:, None, None])
    unit = np.eye(x.shape[-1])
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x2 @ x4
    b = _PADE
    odd = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * unit)
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * unit
    result: Array = np.linalg.solve(even - odd, even + odd)
    for squaring in range(halvings.max(initial=0)):
        left = halvings > squaring
        result[left] = result[left] @ result[left]
    return result


@matrix_exp.register_shape_inference
def _(a: TensorSpec) -> TensorSpec:
    square("MatrixExp", a)
    return a
