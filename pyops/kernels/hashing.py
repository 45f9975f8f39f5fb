"""Hashes of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec

from ._arguments import axes_of, reduced_shape
from ._element_types import RealOrBool


@onnx_op("pyops::HashTensor")
def hash_tensor(
    input: NDArray[RealOrBool], *, dim: Sequence[int] = (), keepdim: bool = False, mode: int = 0
) -> NDArray[np.uint64]:
    """The bits of all elements of dimensions, combined by exclusive or.

    As ``torch.hash_tensor(input, dim, keepdim=keepdim)``: floating-point elements as float64, others as int64.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape; a scalar counts as one element.
    dim : list of int
        The dimensions to reduce, -1 the last; all of them if it is empty.
    keepdim : bool
        Whether they stay, of size 1.
    mode : int
        0, exclusive or, is the only one that there is.

    Returns
    -------
    array of uint64
        Shaped like `input` without `dim`.

    Raises
    ------
    ValueError
        `mode` is another one.
    """
    if mode:
        raise ValueError(f"HashTensor: mode is {mode}; there is only 0, exclusive or")
    wide = input.astype(np.int64 if input.dtype.kind in "iub" else np.float64).view(np.uint64)
    combined = np.bitwise_xor.reduce(wide.reshape(input.shape or (1,)), axis=axes_of(dim, input.ndim))
    return combined.reshape(reduced_shape(input.shape, dim, keepdim))


@hash_tensor.register_shape_inference
def _(input: TensorSpec, *, dim: Sequence[int] = (), keepdim: bool = False, **mode: int) -> TensorSpec:
    return input.like(shape=reduced_shape(input.shape, dim, keepdim), dtype=np.uint64)
