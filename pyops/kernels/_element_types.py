"""The element types that torch's operators have on the CPU, as type variables for declarations.

ONNX Runtime's custom operators have no complex types: an array of complex values is one of reals with a last dimension
of 2 more, the real and the imaginary part, which is how they lie in memory anyway.
"""

from __future__ import annotations

from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from array_api_compat import array_namespace

Wide = TypeVar("Wide", np.float32, np.float64)
Float = TypeVar("Float", np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
Real = TypeVar(
    "Real",
    np.float16,
    ml_dtypes.bfloat16,
    np.float32,
    np.float64,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
)
RealOrBool = TypeVar(
    "RealOrBool",
    np.float16,
    ml_dtypes.bfloat16,
    np.float32,
    np.float64,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.bool_,
)
Index = TypeVar("Index", np.int32, np.int64)


def widened(x: Any) -> Any:
    """Cast float16 and bfloat16 to float32, since half precision has too few digits to compute with."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind in "fV" else x


def as_complex(pairs: Any) -> Any:
    """View pairs of reals (..., 2) as complex values (...); copy them if the reals of a pair are not adjacent."""
    if pairs.ndim == 0 or pairs.shape[-1] != 2:
        raise ValueError(
            f"complex values are pairs of reals along a last dimension of 2, and this array has shape {pairs.shape}"
        )
    if pairs.strides[-1] != pairs.itemsize:
        pairs = array_namespace(pairs).ascontiguousarray(pairs)
    return pairs.view(np.result_type(pairs.dtype, np.complex64))[..., 0]


def as_pairs(values: Any) -> Any:
    """View complex values (...) as pairs of reals (..., 2)."""
    return values[..., None].view(values.real.dtype)
