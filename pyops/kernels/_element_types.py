"""The element types that torch's operators have on the CPU, as type variables for declarations."""

from __future__ import annotations

from typing import Any, TypeVar

import ml_dtypes
import numpy as np

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
    """Floating-point numbers as float32 at least: half precision has too few digits to compute with."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind in "fV" else x
