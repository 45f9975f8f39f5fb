"""Signatures: all that ONNX knows about an operator, as frozen data for engines and exporters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from ..._support.annotations import signature_of
from ..._support.element_types import DType, dtype_name, element_type
from ...errors import DeclarationError, InputError, did_you_mean
from ..unpickling import Pickled
from .attribute import Attribute


@dataclass(frozen=True)
class TypeParameter(Pickled):
    """A named set of element types; all tensors of a call that share the parameter have the same type.

    A concrete type is a parameter with a single dtype, named as ONNX spells it (``tensor(float)``).
    """

    name: str
    dtypes: tuple[DType, ...]

    def __post_init__(self) -> None:
        # An unpickled dtype is equal, but not identical to NumPy's own, and kernel nodes compare identities.
        rows = zip(map(element_type, self.dtypes), self.dtypes, strict=True)
        object.__setattr__(self, "dtypes", tuple(row.dtype if row else dtype for row, dtype in rows))

    def __str__(self) -> str:
        names = ", ".join(map(dtype_name, self.dtypes))
        return names if len(self.dtypes) == 1 else f"{self.name} (one of {names})"


@dataclass(frozen=True)
class Input(Pickled):
    """An input: one tensor, an optional tensor (None if absent), or, in the last place, a variadic input.

    The tensors of a variadic input share one element type if it is homogeneous.
    """

    name: str
    type: TypeParameter
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True


@dataclass(frozen=True)
class Output(Pickled):
    """An output: one tensor, or, in the last place, a variadic output; `homogeneous` is as for `Input`."""

    name: str
    type: TypeParameter
    variadic: bool = False
    homogeneous: bool = True


@dataclass(frozen=True)
class Signature(Pickled):
    """An operator's name, version, inputs, outputs and attributes.

    Attributes
    ----------
    takes_out : bool
        Whether the kernel accepts ONNX Runtime's output buffers as the keyword argument `out`.
    takes_state : bool
        Whether the kernel takes what the op's setup function made as the keyword argument `state`.
    returns_tuple : bool
        Whether the kernel returns a tuple, which may have a single output, rather than an array.
    may_inplace : tuple of (int, int)
        Positions of an output and of an input whose memory ONNX Runtime may reuse for it.
    ignores_undeclared : bool
        Whether nodes may have undeclared attributes, which the kernel does not receive.
    """

    domain: str
    name: str
    version: int
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    attributes: tuple[Attribute, ...] = ()
    takes_out: bool = False
    returns_tuple: bool = False
    may_inplace: tuple[tuple[int, int], ...] = ()
    ignores_undeclared: bool = False
    takes_state: bool = False

    @property
    def qualified_name(self) -> str:
        """Return ``domain::Name``."""
        return f"{self.domain}::{self.name}"

    @property
    def type_parameters(self) -> tuple[TypeParameter, ...]:
        """Return the distinct type parameters, in order of first use."""
        types = (*(item.type for item in self.inputs), *(item.type for item in self.outputs))
        return tuple(dict.fromkeys(types))

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute of this name, or None if there is none."""
        return next((a for a in self.attributes if a.name == name), None)

    def ignores(self, name: str) -> bool:
        """Return whether nodes may have this undeclared attribute, which the kernel does not receive."""
        return self.ignores_undeclared and self.attribute(name) is None

    @property
    def is_variadic(self) -> bool:
        """Return whether the last input is variadic."""
        return bool(self.inputs) and self.inputs[-1].variadic

    def output(self, index: int) -> Output:
        """Return the declaration of the output at `index` of a call, the variadic one from its position on."""
        return self.outputs[min(index, len(self.outputs) - 1)]

    def has_outputs(self, count: int) -> bool:
        """Return whether a call may return `count` outputs."""
        declared, variadic = len(self.outputs), self.outputs[-1].variadic
        return count == declared or (variadic and count >= declared - 1)

    def parameters(self, count: int) -> Iterator[Input]:
        """Iterate over the declarations of the `count` inputs of a call, repeating the variadic one.

        Raises
        ------
        InputError
            `count` is more than declared, or less than required.
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
        """Return the value of every declared attribute as kernels receive it, defaults included.

        Raises
        ------
        InputError
            An attribute is unknown, missing, or has an invalid value.
        """
        unknown = [name for name in given if self.attribute(name) is None]
        if unknown:
            known = ", ".join(a.name for a in self.attributes) or "none"
            meant = did_you_mean(unknown[0], [a.name for a in self.attributes if a.name not in given])
            raise InputError(f"unknown attribute {unknown[0]!r}{meant}; {self} declares: {known}")
        values = {}
        for attribute in self.attributes:
            if attribute.name in given:
                values[attribute.name] = attribute.convert(given[attribute.name])
            elif attribute.required:
                raise InputError(f"attribute {attribute.name!r} is missing; {self} requires it")
            else:
                # A copy, so that a kernel that modifies its list does not change the default.
                values[attribute.name] = copy(attribute.default) if attribute.is_list else attribute.default
        return values

    @property
    def kernel_keywords(self) -> tuple[str, ...]:
        """Return the keywords besides attributes with which kernels are called: `out` and `state`."""
        return ("out",) * self.takes_out + ("state",) * self.takes_state

    def check_callable(self, function: Callable[..., Any], keywords: tuple[str, ...] = ()) -> None:
        """Check that a kernel or a shape function can be called as the declared function says.

        Of a function that wraps another, both must take the arguments: what is declared is the wrapped one.

        Parameters
        ----------
        keywords : tuple of str
            The keywords besides attributes with which it is called.

        Raises
        ------
        DeclarationError
            Its parameters do not accept the declared inputs and attributes, or the keywords, or it is a generator or
            async.
        """
        check_returns(function, self.qualified_name)
        names = [*(attribute.name for attribute in self.attributes), *keywords]
        required = sum(not item.optional and not item.variadic for item in self.inputs)
        try:
            for follows in (True, not inspect.isfunction(function)):  # staticmethod and lru_cache have no signatures
                bind = signature_of(function, follow_wrapped=follows).bind
                for count in (required, len(self.inputs) + self.is_variadic):
                    bind(*[None] * count, **dict.fromkeys(names))
        except (TypeError, ValueError) as error:
            name = getattr(function, "__qualname__", repr(function))
            name = f"what wraps {name}" if hasattr(function, "__wrapped__") else name
            more = "".join(f", and {keyword}=None" for keyword in keywords)
            raise DeclarationError(
                f"{self.qualified_name}: {name} cannot be called like the declared function ({error}); give it the "
                f"same parameters (hints may be left out): {self}{more}"
            ) from None

    def check_setup(self, function: Callable[..., Any]) -> None:
        """Check that kernels take `state`, and that a function that makes it can be called with the attributes.

        Raises
        ------
        DeclarationError
            Kernels do not take `state`, or the function cannot be called like that, or is a generator or async.
        """
        check_returns(function, self.qualified_name)
        if not self.takes_state:
            raise DeclarationError(
                f"{self.qualified_name}: register_setup makes `state`, which the declared function does not take; add "
                "the keyword-only parameter `state=None` to it"
            )
        names = [attribute.name for attribute in self.attributes]
        try:
            signature_of(function).bind(**dict.fromkeys(names))
        except (TypeError, ValueError) as error:
            raise DeclarationError(
                f"{self.qualified_name}: the setup function is called with nothing but the attributes ({error}); write "
                f"def _({', '.join(['*', *names] if names else [])})"
            ) from None

    def with_may_inplace(self, names: Mapping[str, str]) -> Signature:
        """Return a signature that lets ONNX Runtime place outputs in the memory of inputs.

        Parameters
        ----------
        names : mapping of str to str
            Output name to input name.

        Raises
        ------
        DeclarationError
            An output or input is unknown, or the types of a pair differ.
        """
        where = f"{self.qualified_name}: may_inplace"
        if not isinstance(names, Mapping):
            raise DeclarationError(f'{where} is {names!r}; write output and input: {{"output": "x"}}')
        outputs = {item.name: index for index, item in enumerate(self.outputs)}
        inputs = {item.name: index for index, item in enumerate(self.inputs)}
        for output, input in names.items():
            for name, known, kind in ((output, outputs, "output"), (input, inputs, "input")):
                if not isinstance(name, str) or name not in known:
                    raise DeclarationError(f"{where} names the {kind} {name!r}; the {kind}s are: {', '.join(known)}")
            written, read = self.outputs[outputs[output]].type, self.inputs[inputs[input]].type
            if written != read:
                raise DeclarationError(
                    f"{where}: output {output!r} is {written} and input {input!r} is {read}; only equal types can "
                    "share memory; leave the pair out"
                )
        return replace(self, may_inplace=tuple((outputs[output], inputs[input]) for output, input in names.items()))

    def __str__(self) -> str:
        return f"{self.qualified_name}{self._format(str)}"

    @property
    def brief(self) -> str:
        """Return the parameters and outputs as text, followed by the types of each type parameter."""
        parameters = [parameter for parameter in self.type_parameters if len(parameter.dtypes) > 1]
        text = self._format(lambda type: type.name if type in parameters else str(type))
        return "; ".join([text, *(f"{parameter.name}: {_abbreviate(parameter.dtypes)}" for parameter in parameters)])

    def _format(self, format_type: Callable[[TypeParameter], str]) -> str:
        inputs = [
            f"{'*' if item.variadic else ''}{item.name}: {format_type(item.type)}{' | None' if item.optional else ''}"
            for item in self.inputs
        ]
        attributes = [str(attribute) for attribute in self.attributes]
        if attributes:
            inputs.append("*")
        outputs = ", ".join(f"{'*' if item.variadic else ''}{format_type(item.type)}" for item in self.outputs)
        return f"({', '.join(inputs + attributes)}) -> {outputs}"


def check_returns(function: Callable[..., Any], name: str) -> None:
    """Raise if a call of `function` gives a generator or a coroutine, which has not run yet, in place of a result.

    Raises
    ------
    DeclarationError
        The function is a generator or async; `name` is the qualified name of the op.
    """
    kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
    if any(kind(function) for kind in kinds):
        spelled = getattr(function, "__qualname__", repr(function))
        raise DeclarationError(
            f"{name}: {spelled} is a generator or async, but it is called once and returns; write def, and return"
        )


def _abbreviate(dtypes: tuple[DType, ...]) -> str:
    names = ", ".join(map(dtype_name, dtypes[:4]))
    return names if len(dtypes) <= 4 else f"{names} and {len(dtypes) - 4} more"
