"""Tensor specs: an element type and a shape whose dimensions are ints, names or expressions of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ..._support.element_types import DType, describe, dtype_name, format_scalar, format_shape, native_dtype
from ...errors import ShapeInferenceError, UnknownSizeError
from .call_validation import output_dtypes
from .signature import Signature

Dim = Any
"""An int, a `SymbolicDim`, or another library's symbolic int (``torch.SymInt``)."""


class SymbolicDim:
    """A named dimension of a model, or an expression of named dimensions, whose size is known only at run time.

    Shape functions find such dimensions in the shapes of their inputs; tests create them. Arithmetic returns
    expressions (``2*batch``). ``==`` compares expressions; ``==`` with a number, ``<`` and the like, and conversion to
    int or bool, raise `UnknownSizeError`.

    Examples
    --------
    >>> import numpy as np
    >>> batch = SymbolicDim("batch")
    >>> print(TensorSpec((2 * batch, 3), np.float32))
    float32[2*batch, 3]
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._key: object = name

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, float, np.number)):
            self._raise_unknown_size()
        return isinstance(other, SymbolicDim) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def _combine(self, operator: str, left: Dim, right: Dim) -> SymbolicDim:
        if isinstance(left, RuntimeDim) or isinstance(right, RuntimeDim):
            return RuntimeDim()
        return SymbolicDim(f"{_term(left)}{operator}{_term(right)}")

    def __add__(self, other: Dim) -> Dim:
        return self if _number(other) == 0 else self._combine("+", self, other)

    def __radd__(self, other: Dim) -> Dim:
        return self if _number(other) == 0 else self._combine("+", other, self)

    def __sub__(self, other: Dim) -> Dim:
        if isinstance(other, SymbolicDim) and self == other:
            return 0
        return self if _number(other) == 0 else self._combine("-", self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return self._combine("-", other, self)

    def __mul__(self, other: Dim) -> Dim:
        return self if _number(other) == 1 else 0 if _number(other) == 0 else self._combine("*", self, other)

    def __rmul__(self, other: Dim) -> Dim:
        return self if _number(other) == 1 else 0 if _number(other) == 0 else self._combine("*", other, self)

    def __floordiv__(self, other: Dim) -> Dim:
        return self if _number(other) == 1 else self._combine("//", self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return self._combine("//", other, self)

    def __mod__(self, other: Dim) -> Dim:
        return 0 if _number(other) == 1 else self._combine("%", self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return self._combine("%", other, self)

    def __neg__(self) -> Dim:
        return 0 - self

    def _reject_division(self, other: Dim) -> Dim:
        raise ShapeInferenceError(f"dimension {self} is divided with /, which does not give an int; divide with //")

    __truediv__ = __rtruediv__ = _reject_division

    def _raise_unknown_size(self, *_: object) -> bool:
        raise UnknownSizeError(
            f"the size of dimension {self} is known only at run time; a shape function that needs it "
            "can test isinstance(dim, int) first, and return pyops.shapes.new_dim() otherwise"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __index__ = __int__ = _raise_unknown_size


class RuntimeDim(SymbolicDim):
    """A dimension whose size is known only after the kernel has run; equal only to itself."""

    def __init__(self) -> None:
        super().__init__("?")
        self._key = object()


def _number(dim: Dim) -> Dim:
    return None if isinstance(dim, SymbolicDim) else dim


def _dim(dim: Dim) -> Dim:
    if isinstance(dim, (bool, np.bool_, float, np.floating, str)) or dim is None:
        fixes = {
            float: "divide with //",
            str: f"in a shape function take symbols from the inputs' shapes, in a test write SymbolicDim({dim!r})",
        }
        fix = fixes.get(type(dim), "use an int")
        raise ShapeInferenceError(
            f"a dimension is {dim!r}; {fix}, or write pyops.shapes.new_dim() where the size is not known"
        )
    if isinstance(dim, np.integer):  # np.prod returns one
        dim = int(dim)
    if isinstance(dim, int) and dim < 0:
        raise ShapeInferenceError(f"a dimension is {dim}; sizes start at 0, and -1 has no meaning here")
    return dim


def _term(dim: Dim) -> str:
    text = str(dim)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def new_dim() -> Dim:
    """Return a new dimension whose size is known only after the kernel has run (as for ``np.unique``).

    Examples
    --------
    >>> import numpy as np
    >>> print(TensorSpec((4,), np.float32).like(shape=(new_dim(), 2)))
    float32[?, 2]
    """
    return RuntimeDim()


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
        object.__setattr__(self, "shape", tuple(map(_dim, shape)))
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


def infer(
    signature: Signature,
    function: Callable[..., Any],
    specs: Sequence[TensorSpec | None],
    attributes: Mapping[str, Any],
) -> tuple[TensorSpec, ...]:
    """Run a shape function and return the specs of the outputs.

    Parameters
    ----------
    function : callable
        The op's shape function.
    specs : sequence of TensorSpec or None
        One per input, None if absent.

    Returns
    -------
    tuple of TensorSpec
        One per output.

    Raises
    ------
    InputError
        The specs or the attributes do not match the declaration.
    ShapeInferenceError
        The function returned something other than declared.
    """
    name = signature.qualified_name
    dtypes = output_dtypes(signature, [None if spec is None else spec.dtype for spec in specs])
    attributes = signature.convert_attributes(attributes)
    try:
        result = function(*specs, **attributes)
    except Exception as error:
        error.add_note(f"in the shape function of {name}")
        raise
    if signature.returns_tuple and not isinstance(result, (tuple, TensorSpec)):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {describe(result)}; return a tuple of specs, one for each output"
        )
    if isinstance(result, tuple) and not signature.returns_tuple and not any(isinstance(x, TensorSpec) for x in result):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {result}, which is a shape; return a spec of that shape, such as "
            f"{signature.inputs[0].name if signature.inputs else 'spec'}.like(shape=...)"
        )
    outputs = result if isinstance(result, tuple) else (result,)
    if not signature.has_outputs(len(outputs)):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {len(outputs)} specs; {len(dtypes)} outputs are "
            "declared (return one spec for each)"
        )
    dtypes += (dtypes[-1],) * (len(outputs) - len(dtypes))
    for spec, dtype in zip(outputs, dtypes, strict=False):
        if not isinstance(spec, TensorSpec):
            raise ShapeInferenceError(
                f"the shape function of {name} returned {describe(spec)}; return an input's spec, or "
                "spec.like(shape=..., dtype=...)"
            )
        if dtype is not None and spec.dtype != dtype:
            raise ShapeInferenceError(
                f"the shape function of {name} gives dtype {dtype_name(spec.dtype)}, but declared is "
                f"{dtype_name(dtype)}; return spec.like(dtype={format_scalar(dtype)})"
            )
    return outputs
