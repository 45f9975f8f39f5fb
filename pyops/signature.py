"""What ONNX knows of an operator: frozen data that every engine and exporter reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from .errors import InputError
from .types import DType, describe, dtype_name, element_type, holds_str, native_dtype

INT64 = np.iinfo(np.int64)


class AttributeKind(Enum):
    """The kinds of ONNX attributes; the values are ``onnx.AttributeProto.AttributeType``."""

    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    FLOATS = 6
    INTS = 7
    STRINGS = 8

    @property
    def element(self) -> AttributeKind:
        """The kind of one element of a list; the kind itself where it is no list."""
        return _ELEMENT.get(self, self)


_ELEMENT = {
    AttributeKind.FLOATS: AttributeKind.FLOAT,
    AttributeKind.INTS: AttributeKind.INT,
    AttributeKind.STRINGS: AttributeKind.STRING,
}


@dataclass(frozen=True)
class TypeParameter:
    """The element types a tensor may have; parameters of one name in a signature are one type.

    A concrete type is a parameter with a single dtype, named as ONNX spells it (``tensor(float)``).
    """

    name: str
    dtypes: tuple[DType, ...]

    def __str__(self) -> str:
        names = ", ".join(map(dtype_name, self.dtypes))
        return names if len(self.dtypes) == 1 else f"{self.name} (one of {names})"


@dataclass(frozen=True)
class Input:
    """An input: one tensor, an optional one (absent is None), or any number (variadic, last).

    A variadic input is homogeneous when all its tensors share one element type.
    """

    name: str
    type: TypeParameter
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True


@dataclass(frozen=True)
class Output:
    """An output: one tensor, or any number (variadic, last), homogeneous as for inputs."""

    name: str
    type: TypeParameter
    variadic: bool = False
    homogeneous: bool = True


@dataclass(frozen=True)
class Attribute:
    """An attribute: a keyword-only parameter of the kernel.

    Attributes
    ----------
    required : bool
        A node without it is refused. Otherwise `default` stands in for it, None included.
    boolean : bool
        An ONNX int that the kernel gets as ``bool``.
    choices : tuple
        The values of a ``Literal``; empty where any value will do.
    as_tuple : bool
        A list that the kernel gets as ``tuple``, because it is annotated as one.
    """

    name: str
    kind: AttributeKind
    required: bool = True
    default: Any = field(default=None, compare=False)
    boolean: bool = False
    choices: tuple[Any, ...] = ()
    as_tuple: bool = False
    # Arrays have no equality that dataclasses could use; this stands in for `default`.
    _default_key: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        default = self.default
        key = (
            (str(default.dtype), default.shape, default.tobytes()) if isinstance(default, np.ndarray) else repr(default)
        )
        object.__setattr__(self, "_default_key", key)

    @property
    def is_list(self) -> bool:
        """Whether its value is a list (or tuple) of elements."""
        return self.kind is not self.kind.element

    @property
    def spelling(self) -> str:
        """The annotation that declares it, for messages."""
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
        return f"{self.name}: {self.spelling}{optional} = {_spell_value(self.default)}"

    def convert(self, value: Any) -> Any:
        """`value` as the kernel gets it on every road.

        Returns
        -------
        int, float, str, bool, list, tuple or numpy.ndarray
            A float is the nearest float32: ONNX attributes have no other precision.

        Raises
        ------
        InputError
            The value is of another kind, overflows int64 or float32, or is not among the choices.
        """
        if value is None and not self.required and self.default is None:
            return None
        if self.kind is AttributeKind.TENSOR:
            converted: Any = self._tensor(value)
        elif not self.is_list:
            converted = self._scalar(value)
        else:
            if isinstance(value, (str, bytes, Mapping, Set)) or not isinstance(value, (Iterable, np.ndarray)):
                raise self._refuse(value)
            items = [self._scalar(item) for item in value]
            converted = tuple(items) if self.as_tuple else items
        if self.choices and converted not in self.choices:
            raise InputError(f"attribute {self.name!r} is {value!r}; expected one of {self.spelling[8:-1]}")
        return converted

    def _tensor(self, value: Any) -> np.ndarray:
        if not isinstance(value, (np.ndarray, np.generic)) or isinstance(value, np.ma.MaskedArray):
            raise self._refuse(value)
        tensor = np.array(value, native_dtype(value.dtype))
        if element_type(tensor.dtype) is None or not holds_str(tensor):
            raise InputError(f"attribute {self.name!r} is {describe(value)}, of which ONNX has no tensors")
        tensor.flags.writeable = False
        return tensor

    def _scalar(self, value: Any) -> Any:
        match self.kind.element:
            case AttributeKind.INT if self.boolean:
                if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
                    return bool(value)
            case AttributeKind.INT:
                if isinstance(value, (int, np.integer, np.bool_)):
                    if not INT64.min <= value <= INT64.max:
                        raise InputError(f"attribute {self.name!r} is {value}, which does not fit int64")
                    return int(value)
            case AttributeKind.FLOAT:
                if isinstance(value, (int, float, np.integer, np.floating)):
                    return self._float32(value)
            case AttributeKind.STRING:
                if isinstance(value, str):
                    return str(value)
        raise self._refuse(value)

    def _float32(self, value: Any) -> float:
        try:
            with np.errstate(over="ignore"):
                nearest = float(np.float32(value))
        except OverflowError:  # an int beyond float64
            nearest = math.inf
        if math.isinf(nearest) and not (isinstance(value, (float, np.floating)) and math.isinf(value)):
            raise InputError(
                f"attribute {self.name!r} is {value}, which overflows float32, the only float ONNX attributes have; "
                "declare it as a tensor attribute (np.ndarray) for double precision"
            )
        return nearest

    def _refuse(self, value: Any) -> InputError:
        return InputError(
            f"attribute {self.name!r} is {value!r} ({describe(value)}); it is declared as {self.spelling}"
        )


def _spell_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(_spell_value, value))
        return f"[{text}]" if isinstance(value, list) else f"({text},)" if len(value) == 1 else f"({text})"
    # The shortest number that is nearest to this float32.
    return str(np.float32(value)) if isinstance(value, float) else repr(value)


_SPELLING = {
    AttributeKind.FLOAT: "float",
    AttributeKind.INT: "int",
    AttributeKind.STRING: "str",
    AttributeKind.TENSOR: "np.ndarray",
}


@dataclass(frozen=True)
class Signature:
    """An operator as ONNX sees it.

    Attributes
    ----------
    takes_out : bool
        The kernel accepts ONNX Runtime's own output buffers as the keyword `out`.
    may_inplace : tuple of (int, int)
        Positions of an output and of the input whose memory ONNX Runtime may give it.
    """

    domain: str
    name: str
    version: int
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    attributes: tuple[Attribute, ...] = ()
    takes_out: bool = False
    # A tuple is returned where one is annotated, even with a single output in it.
    returns_tuple: bool = False
    may_inplace: tuple[tuple[int, int], ...] = ()

    @property
    def qualified_name(self) -> str:
        """``domain::Name``."""
        return f"{self.domain}::{self.name}"

    @property
    def type_parameters(self) -> tuple[TypeParameter, ...]:
        """Each type parameter once, in the order of first use."""
        types = (*(item.type for item in self.inputs), *(item.type for item in self.outputs))
        return tuple(dict.fromkeys(types))

    def attribute(self, name: str) -> Attribute | None:
        """The attribute of this name."""
        return next((a for a in self.attributes if a.name == name), None)

    def parameters(self, count: int) -> Iterator[Input]:
        """The declared input behind each of `count` actual ones; a variadic one repeats.

        Raises
        ------
        InputError
            More inputs than declared, or fewer than are required.
        """
        variadic = bool(self.inputs) and self.inputs[-1].variadic
        singles = self.inputs[:-1] if variadic else self.inputs
        required = max((i + 1 for i, item in enumerate(singles) if not item.optional), default=0)
        if count < required or (count > len(singles) and not variadic):
            bounds = f"{required}" if required == len(singles) else f"{required} to {len(singles)}"
            raise InputError(f"got {count} inputs; {self} takes {f'{required} or more' if variadic else bounds}")
        yield from singles[:count]
        for _ in range(count - len(singles)):
            yield self.inputs[-1]

    def convert_attributes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every declared attribute as the kernel gets it, defaults included.

        Raises
        ------
        InputError
            An attribute is unknown, missing, or has a wrong value.
        """
        unknown = [name for name in given if self.attribute(name) is None]
        if unknown:
            known = ", ".join(a.name for a in self.attributes) or "none"
            raise InputError(f"unknown attribute {unknown[0]!r}; {self} declares: {known}")
        values = {}
        for attribute in self.attributes:
            if attribute.name in given:
                values[attribute.name] = attribute.convert(given[attribute.name])
            elif attribute.required:
                raise InputError(f"attribute {attribute.name!r} is missing; {self} requires it")
            else:
                # A kernel may change its list; the next call gets the declared one again.
                values[attribute.name] = copy(attribute.default) if attribute.is_list else attribute.default
        return values

    def __str__(self) -> str:
        return f"{self.qualified_name}{self._spell(str)}"

    @property
    def brief(self) -> str:
        """What it takes and returns, with the types of each type parameter said once, behind it."""
        parameters = [parameter for parameter in self.type_parameters if len(parameter.dtypes) > 1]
        text = self._spell(lambda type: type.name if type in parameters else str(type))
        return "; ".join([text, *(f"{parameter.name}: {_some(parameter.dtypes)}" for parameter in parameters)])

    def _spell(self, spell_type: Callable[[TypeParameter], str]) -> str:
        inputs = [
            f"{'*' if item.variadic else ''}{item.name}: {spell_type(item.type)}{' | None' if item.optional else ''}"
            for item in self.inputs
        ]
        attributes = [str(attribute) for attribute in self.attributes]
        if attributes:
            inputs.append("*")
        outputs = ", ".join(f"{'*' if item.variadic else ''}{spell_type(item.type)}" for item in self.outputs)
        return f"({', '.join(inputs + attributes)}) -> {outputs}"


def _some(dtypes: tuple[DType, ...]) -> str:
    names = ", ".join(map(dtype_name, dtypes[:4]))
    return names if len(dtypes) <= 4 else f"{names} and {len(dtypes) - 4} more"
