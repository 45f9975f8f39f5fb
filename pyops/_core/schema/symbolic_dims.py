"""Dimensions whose sizes are known only at run time: names, and expressions of names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeInferenceError, UnknownSizeError

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
    >>> from pyops.shapes import TensorSpec
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


def check_dim(dim: Dim) -> Dim:
    """Return a dimension, an int as Python's; raise a `ShapeInferenceError` if it is no size and no symbol."""
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
    >>> from pyops.shapes import TensorSpec
    >>> print(TensorSpec((4,), np.float32).like(shape=(new_dim(), 2)))
    float32[?, 2]
    """
    return RuntimeDim()
