"""What ONNX knows of an operator: frozen data that every engine and exporter reads."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .attribute import Attribute
from .dtypes import DType, dtype_name


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
class Signature:
    """An operator as ONNX sees it.

    Attributes
    ----------
    takes_out : bool
        The kernel accepts ONNX Runtime's own output buffers as the keyword `out`.
    may_inplace : tuple of (int, int)
        Positions of an output and of the input whose memory ONNX Runtime may give it.
    ignores_undeclared : bool
        A node may have attributes that are not declared, which the kernel does not get.
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
    ignores_undeclared: bool = False

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

    def ignores(self, name: str) -> bool:
        """Whether a node may have an attribute of this name that the kernel does not get."""
        return self.ignores_undeclared and self.attribute(name) is None

    @property
    def is_variadic(self) -> bool:
        """Whether the last input is variadic."""
        return bool(self.inputs) and self.inputs[-1].variadic

    def output(self, index: int) -> Output:
        """The declared output behind an actual one; a variadic one repeats."""
        return self.outputs[min(index, len(self.outputs) - 1)]

    def has_outputs(self, count: int) -> bool:
        """Whether a call may have this many outputs."""
        declared, variadic = len(self.outputs), self.outputs[-1].variadic
        return count == declared or (variadic and count >= declared - 1)

    def parameters(self, count: int) -> Iterator[Input]:
        """The declared input behind each of `count` actual ones; a variadic one repeats.

        Raises
        ------
        InputError
            More inputs than declared, or fewer than are required.
        """
        variadic = self.is_variadic
        singles = self.inputs[:-1] if variadic else self.inputs
        required = max((i + 1 for i, item in enumerate(singles) if not item.optional), default=0)
        if count < required or (count > len(singles) and not variadic):
            bounds = f"{required}" if required == len(singles) else f"{required} to {len(singles)}"
            takes = f"{required} or more" if variadic else bounds
            name = next((f"{item.name}=..." for item in self.attributes), "")
            hint = f", and attributes by name: {name}" if name and count > len(singles) else ""
            raise InputError(f"got {count} inputs; {self} takes {takes}{hint}")
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
            near = difflib.get_close_matches(unknown[0], [a.name for a in self.attributes if a.name not in given], 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise InputError(f"unknown attribute {unknown[0]!r}{meant}; {self} declares: {known}")
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
