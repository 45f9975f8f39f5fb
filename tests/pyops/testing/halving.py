"""An op without a shape function, for tests of `pyops.testing.check`."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyops import Op, onnx_op
from pyops.testing import CHECKS

T = TypeVar("T", np.float32, np.float64)
F32 = NDArray[np.float32]
X = np.array([[0.25, 1.5, -2.75], [3, 0, 1]], np.float32)
WITHOUT_TORCH = tuple(name for name in CHECKS if not name.startswith("torch_"))


def halve(x: NDArray[T], *, by: float = 2.0) -> NDArray[T]:
    return x / x.dtype.type(by)


def declare_halve() -> Op[..., Any]:
    return onnx_op("checked::Halve")(halve)
