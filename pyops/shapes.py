"""Tensor specs and dimensions, for shape functions.

A shape function takes a `TensorSpec` for each input and returns one for each output. Dimensions are ints if they are
known, and symbols otherwise. The same function serves torch's fake tensors, ONNX shape inference and ONNX Runtime.

Examples
--------
>>> import numpy as np, pyops
>>> from numpy.typing import NDArray
>>> @pyops.onnx_op("shapes::Pairs")
... def pairs(x: NDArray[np.float32]) -> NDArray[np.float32]:
...     return x.reshape(-1, 2)
>>> @pairs.register_shape_inference
... def _(x):
...     return x.like(shape=(x.shape[0] // 2, 2))
>>> n = pyops.shapes.SymbolicDim("n")
>>> print(*pairs.infer_shapes(pyops.shapes.TensorSpec((n,), np.float32)))
float32[n//2, 2]
"""

from ._core.schema.symbolic_dims import Dim, RuntimeDim, SymbolicDim, new_dim
from ._core.schema.tensor_specs import TensorSpec, broadcast

__all__ = ["Dim", "RuntimeDim", "SymbolicDim", "TensorSpec", "broadcast", "new_dim"]
