"""Attributes of operators: their kinds, and the conversion of values to what kernels receive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from ..._support.element_types import STRING, describe, element_type, holds_str, is_masked, native_dtype
from ...errors import InputError
from ..unpickling import Pickled, unpickle

_INT64 = np.iinfo(np.int64)


class AttributeKind(Enum):
    """ONNX attribute kinds, numbered as in ``onnx.AttributeProto.AttributeType``."""

    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    FLOATS = 6
    INTS = 7
    STRINGS = 8

    @property
    def element(self) -> AttributeKind:
        """Return the kind of a list's elements, or the kind itself if it is not a list."""
        return AttributeKind[self.name.removesuffix("S")]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return unpickle, ("AttributeKind", self.value)


@dataclass(frozen=True)
class Attribute(Pickled):
    """An ONNX attribute, declared as a keyword-only parameter of the kernel.

    Attributes
    ----------
    required : bool
        Whether a node must have it. If not, an absent attribute takes the value of `default`, which may be None.
    boolean : bool
        Whether the kernel receives the ONNX int as a ``bool``.
    choices : tuple
        The values that a ``Literal`` allows; empty if any value is valid.
    as_tuple : bool
        Whether the kernel receives the list as a ``tuple``, as annotated.
    """

    name: str
    kind: AttributeKind
    required: bool = True
    default: Any = field(default=None, compare=False, repr=False)
    boolean: bool = False
    choices: tuple[Any, ...] = ()
    as_tuple: bool = False
    # Compared and spelled instead of `default`: == on arrays is elementwise, and NumPy shortens and rounds their text.
    _default_key: str = field(default="", init=False)

    def __post_init__(self) -> None:
        default = self.default
        key = tensor_key(default) if isinstance(default, np.ndarray) else repr(default)
        object.__setattr__(self, "_default_key", key)

    @property
    def is_list(self) -> bool:
        """Return whether the value is a list or a tuple."""
        return self.kind is not self.kind.element

    @property
    def spelling(self) -> str:
        """Return the annotation that declares this attribute, for messages."""
        if self.choices:
            return f"Literal[{', '.join(map(repr, self.choices))}]"
        scalar = "bool" if self.boolean else _SPELLING[self.kind.element]
        if not self.is_list:
            return scalar
        return f"tuple[{scalar}, ...]" if self.as_tuple else f"list[{scalar}]"

    def __str__(self) -> str:
        if self.required:
            return f"{self.name}: {self.spelling}"
        optional = " | None" if self.default is None else ""
        return f"{self.name}: {self.spelling}{optional} = {format_value(self.default)}"

    def convert(self, value: Any) -> Any:
        """Convert `value` to what every engine passes to the kernel.

        Returns
        -------
        int, float, str, bool, list, tuple, numpy.ndarray or None
            Floats are rounded to float32, the only precision of ONNX attributes. A tensor is a read-only copy.

        Raises
        ------
        InputError
            The value is of another kind, overflows int64 or float32, or is not one of the choices.
        """
        if value is None and not self.required and self.default is None:
            return None
        if self.kind is AttributeKind.TENSOR:
            converted: Any = self._tensor(value)
        elif not self.is_list:
            converted = self._scalar(value)
        else:
            if isinstance(value, (str, bytes, Mapping, Set)) or not isinstance(value, (Iterable, np.ndarray)):
                raise self._kind_error(value)
            items = [self._scalar(item) for item in value]
            converted = tuple(items) if self.as_tuple else items
        if self.choices and converted not in self.choices:
            raise InputError(f"attribute {self.name!r} is {value!r}; expected one of {self.spelling[8:-1]}")
        return converted

    def _tensor(self, value: Any) -> np.ndarray:
        if not isinstance(value, (np.ndarray, np.generic)) or is_masked(value):
            raise self._kind_error(value)
        tensor = np.array(value, native_dtype(value.dtype))
        if element_type(tensor.dtype) is None or not holds_str(tensor):
            raise InputError(
                f"attribute {self.name!r} is {describe(value)}, which ONNX tensors cannot hold; use numbers or str"
            )
        tensor.flags.writeable = False
        return tensor

    def _scalar(self, value: Any) -> Any:
        match self.kind.element:
            case AttributeKind.INT if self.boolean:
                if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
                    return bool(value)
            case AttributeKind.INT:
                if isinstance(value, (int, np.integer, np.bool_)):
                    if not _INT64.min <= value <= _INT64.max:
                        raise InputError(f"attribute {self.name!r} is {value}, which does not fit int64")
                    return int(value)
            case AttributeKind.FLOAT:
                if isinstance(value, (int, float, np.integer, np.floating)):
                    return self._round_to_float32(value)
            case AttributeKind.STRING:
                if isinstance(value, str):
                    return str(value)
        raise self._kind_error(value)

    def _round_to_float32(self, value: Any) -> float:
        try:
            with np.errstate(over="ignore"):
                nearest = float(np.float32(value))
        except OverflowError:  # an int too large even for float64
            nearest = math.inf
        if math.isinf(nearest) and not (isinstance(value, (float, np.floating)) and math.isinf(value)):
            raise InputError(
                f"attribute {self.name!r} is {value}, which overflows float32, the only float type of ONNX attributes; "
                "declare it as a tensor attribute (np.ndarray) for double precision"
            )
        return nearest

    def _kind_error(self, value: Any) -> InputError:
        return InputError(
            f"attribute {self.name!r} is {value!r} ({describe(value)}); it is declared as {self.spelling}"
        )


def tensor_key(tensor: np.ndarray[Any, Any]) -> str:
    """Return a text that is the same, in every process, for tensors with the same dtype, shape and values alone."""
    import hashlib  # few declarations need it

    # The bytes of an array of objects are their addresses.
    data = tensor.tobytes() if tensor.dtype != STRING else repr(tensor.tolist()).encode()
    return f"{tensor.dtype}{tensor.shape} {hashlib.sha256(data).hexdigest()}"


def format_value(value: Any) -> str:
    """Return a value as a declaration would have it."""
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(format_value, value))
        return f"[{text}]" if isinstance(value, list) else f"({text},)" if len(value) == 1 else f"({text})"
    # np.float32 prints the shortest digits that identify it: 0.1, where the float prints 0.10000000149011612.
    return str(np.float32(value)) if isinstance(value, float) else repr(value)


_SPELLING = {
    AttributeKind.FLOAT: "float",
    AttributeKind.INT: "int",
    AttributeKind.STRING: "str",
    AttributeKind.TENSOR: "np.ndarray",
}
