"""A compiled kernel with assertions, which pytest does not rewrite here, as it does in test modules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyops import onnx_op

F32 = NDArray[np.float32]


class TooLargeError(ValueError):
    pass


@onnx_op("compiled::Check", compile=True, parallel="()->()")
def check(x: F32, *, limit: int = 100, out: F32 | None = None) -> F32:
    for i in range(x.size):
        if x[i] > limit:
            raise TooLargeError("too large", i)
        assert x[i] >= 0, "negative"
    return x + np.float32(1)


check.register_shape_inference(lambda x, limit=100: x)
