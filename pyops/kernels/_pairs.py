"""Complex values as pairs of reals, since ONNX Runtime's custom operators have no complex types.

An array of complex values of some shape is one of reals with a last dimension of 2 more: the real and the imaginary
part, which is how they lie in memory anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace


def as_complex(pairs: Any) -> Any:
    """The complex values (...) that pairs of reals (..., 2) stand for, a view where each pair lies in one piece."""
    if pairs.ndim == 0 or pairs.shape[-1] != 2:
        raise ValueError(
            f"complex values are pairs of reals along a last dimension of 2, and this array has shape {pairs.shape}"
        )
    if pairs.strides[-1] != pairs.itemsize:
        pairs = array_namespace(pairs).ascontiguousarray(pairs)
    return pairs.view(np.result_type(pairs.dtype, np.complex64))[..., 0]


def as_pairs(values: Any) -> Any:
    """The pairs of reals (..., 2) that complex values (...) are, as a view."""
    return values[..., None].view(values.real.dtype)
