"""Tensor specs: an element type and a shape, and the shape that several broadcast to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ..._support.element_types import DType, dtype_name, format_shape, native_dtype
from ...errors import ShapeInferenceError
from .symbolic_dims import Dim, check_dim, new_dim


@dataclass(frozen=True, init=False)
class TensorSpec:
    """The shape and dtype of a tensor, as shape functions receive and return them.

    Attributes
    ----------
    shape : tuple
        One int per dimension, or a symbol if its size is not known yet.
    dtype : numpy.dtype
        The dtype that kernels receive: ``object`` for strings. The constructor accepts ``np.str_`` too.
    value : numpy.ndarray or None
        The tensor itself, if it is known and has at most 64 elements. No part of a comparison of specs.

    Examples
    --------
    >>> import numpy as np
    >>> x = TensorSpec((2, 3), np.float32)
    >>> print(x.like(shape=(*x.shape, 4), dtype=np.int64))
    int64[2, 3, 4]
    """

    MAX_VALUES: ClassVar[int] = 64  # the number of elements up to which a spec has its tensor's value
    shape: tuple[Dim, ...]
    dtype: DType
    value: np.ndarray[Any, Any] | None = field(default=None, compare=False, repr=False)

    def __init__(self, shape: Iterable[Dim], dtype: DTypeLike) -> None:
        object.__setattr__(self, "shape", tuple(map(check_dim, shape)))
        object.__setattr__(self, "dtype", native_dtype(dtype))

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def like(self, shape: Sequence[Dim] | None = None, dtype: DTypeLike | None = None) -> TensorSpec:
        """Return a spec with another shape, another dtype, or both, and no value.

        Raises
        ------
        ShapeInferenceError
            `shape` is not a sequence of dimensions, or a dimension is not a size.
        """
        if shape is not None and (not isinstance(shape, Iterable) or isinstance(shape, str)):
            raise ShapeInferenceError(f"like() got shape={shape!r}; a shape is a tuple, such as (n, 3)")
        return TensorSpec(self.shape if shape is None else shape, self.dtype if dtype is None else dtype)

    @classmethod
    def of(cls, array: Any, with_value: bool = True) -> TensorSpec:
        """Return the spec of an array.

        Parameters
        ----------
        array : numpy.ndarray or cupy.ndarray
            The array.
        with_value : bool
            Whether the spec has the array's value, if that is small and in the host's memory.
        """
        spec = cls(array.shape, array.dtype)
        if with_value and isinstance(array, np.ndarray) and array.size <= cls.MAX_VALUES:
            value = np.array(array, spec.dtype)
            value.flags.writeable = False
            object.__setattr__(spec, "value", value)
        return spec

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)}{format_shape(self.shape)}"


def broadcast(*specs: TensorSpec) -> tuple[Dim, ...]:
    """Return the shape that specs broadcast to by NumPy's rules.

    As in ONNX's shape inference, a number and a symbol give the number, unless it is 1.

    Raises
    ------
    ShapeInferenceError
        The shapes do not broadcast.

    Examples
    --------
    >>> a, b = TensorSpec((4, 1), np.dtype("f4")), TensorSpec((3,), np.dtype("f4"))
    >>> broadcast(a, b)
    (4, 3)
    """
    result: list[Dim] = []
    for axis in range(-max((spec.ndim for spec in specs), default=0), 0):
        dims = [spec.shape[axis] for spec in specs if spec.ndim >= -axis]
        size = dims[0]
        for dim in dims[1:]:
            size = _broadcast_dim(size, dim, specs)
        result.append(size)
    return tuple(result)


def _broadcast_dim(a: Dim, b: Dim, specs: Sequence[TensorSpec]) -> Dim:
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(b, int) and b == 1:
        return a
    if isinstance(a, int) and isinstance(b, int):
        if a != b:
            raise ShapeInferenceError(f"{', '.join(map(str, specs))} do not broadcast: {a} against {b}")
        return a
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    return a if a == b else new_dim()
