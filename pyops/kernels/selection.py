"""Elements that are selected by a condition: how many there are is known only when the kernel has run."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._schema.specs import TensorSpec, broadcast, new_dim

from ._element_types import RealOrBool


@onnx_op("pyops::MaskedSelect", device_types=("cpu", "cuda"))
def masked_select(input: NDArray[RealOrBool], mask: NDArray[np.bool_]) -> NDArray[RealOrBool]:
    """The elements at which a mask is true.

    As ``torch.masked_select(input, mask)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    mask : array of bool
        A shape that broadcasts with that of `input`.

    Returns
    -------
    array of the dtype of `input`
        (number of true elements,), in the order of the rows of the broadcast input.
    """
    values, chosen = array_namespace(input).broadcast_arrays(input, mask)
    return values.reshape(-1)[chosen.reshape(-1)]


@onnx_op("pyops::NonzeroStatic", device_types=("cpu", "cuda"))
def nonzero_static(input: NDArray[RealOrBool], *, size: int, fill_value: int = -1) -> NDArray[np.int64]:
    """The indices of the first elements that are not zero, as many as are asked for.

    As ``torch.nonzero_static(input, size=size, fill_value=fill_value)``.

    Parameters
    ----------
    input : array of real numbers or bool
        Any shape.
    size : int
        How many.
    fill_value : int
        What stands for the indices of those that are missing.

    Returns
    -------
    array of int64
        (`size`, number of dimensions), the last index changing fastest. NaN is not zero.

    Raises
    ------
    ValueError
        `size` is negative.
    """
    if size < 0:
        raise ValueError(f"NonzeroStatic: size is {size}; it is from 0 on")
    xp = array_namespace(input)
    found = xp.argwhere(input).astype(np.int64)[:size]
    return xp.concat([found, xp.full((size - len(found), input.ndim), fill_value, dtype=np.int64)])


@onnx_op("pyops::OneHot", device_types=("cpu", "cuda"))
def one_hot(input: NDArray[np.int64], *, num_classes: int = -1) -> NDArray[np.int64]:
    """1 at the place of each class and 0 elsewhere.

    As ``torch.nn.functional.one_hot(tensor, num_classes)``.

    Parameters
    ----------
    input : array of int64
        Any shape: classes from 0 on.
    num_classes : int
        How many classes there are; -1 is one more than the largest of `input`.

    Returns
    -------
    array of int64
        The shape of `input`, and behind it the classes.

    Raises
    ------
    ValueError
        A class is negative or not below `num_classes`, which is below -1, or none tells how many there are.
    """
    xp = array_namespace(input)
    if num_classes < -1:
        raise ValueError(f"OneHot: num_classes is {num_classes}; it is from 0 on, or -1 to find it")
    if num_classes < 0 and not input.size:
        raise ValueError("OneHot: there are no classes to tell how many there are; pass num_classes")
    if input.size and int(input.min()) < 0:
        raise ValueError(f"OneHot: class {int(input.min())} is negative; classes count from 0")
    count = num_classes if num_classes >= 0 else int(input.max()) + 1
    if input.size and int(input.max()) >= count:
        raise ValueError(f"OneHot: class {int(input.max())} is not below num_classes, which is {count}")
    return (input[..., None] == xp.arange(count)).astype(np.int64)


@masked_select.register_shape_inference
def _(input: TensorSpec, mask: TensorSpec) -> TensorSpec:
    broadcast(input, mask)
    return input.like(shape=(new_dim(),))


@nonzero_static.register_shape_inference
def _(input: TensorSpec, *, size: int, **fill_value: int) -> TensorSpec:
    return input.like(shape=(size, input.ndim), dtype=np.int64)


@one_hot.register_shape_inference
def _(input: TensorSpec, *, num_classes: int = -1) -> TensorSpec:
    return input.like(shape=(*input.shape, new_dim() if num_classes < 0 else num_classes))
