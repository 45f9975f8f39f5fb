"""Reading a Python function's parameters and type hints into a `Signature`.

Every mistake in a declaration is raised here, when the function is decorated, with the name of the parameter and
the fix.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import GenericAlias
from typing import Any

from ..errors import DeclarationError
from .attribute import Attribute
from .callables import check_function
from .hints import HintError, resolve, spell, split_variadic, strip_none, substitute
from .parameters import ATTRIBUTE_HINTS, is_abstract, read_attribute, type_parameter
from .signature import Input, Output, Signature, TypeParameter

_HIGHEST_VERSION = 2**31 - 2  # ONNX Runtime stores the end of the version range, one higher, in 32 bits
_NAME = re.compile(r"(?P<domain>[A-Za-z_][\w.\-]*)::(?P<name>[A-Za-z_]\w*)")


def read_signature(
    function: Callable[..., Any], op_type: str, version: int, localns: Mapping[str, Any] | None = None
) -> Signature:
    """Read the Signature that `function`'s parameters and type hints declare.

    Parameters
    ----------
    op_type : str
        ``"domain::Name"``.
    localns : mapping, optional
        Local variables of the code that declares the op, for hints that refer to them.

    Raises
    ------
    DeclarationError
        Anything is wrong with the declaration.
    """
    split_op_type(op_type)
    check_version(version, op_type)
    check_function(function, op_type)
    return _Reader(function, op_type, version, localns or {}).read()


def split_op_type(op_type: Any) -> tuple[str, str]:
    """Split ``"domain::Name"`` into ``("domain", "Name")``.

    Raises
    ------
    DeclarationError
        `op_type` is not of this form.
    """
    matched = _NAME.fullmatch(op_type) if isinstance(op_type, str) else None
    if matched is None:
        raise DeclarationError(
            f'onnx_op got {op_type!r} as the operator\'s name; write @onnx_op("domain::Name"), for example '
            '@onnx_op("mylibrary::AddRound")'
        )
    return matched["domain"], matched["name"]


def check_version(version: Any, op_type: str) -> None:
    """Raise if `version` cannot be an opset version.

    Raises
    ------
    DeclarationError
        It is not an int, or out of range.
    """
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= _HIGHEST_VERSION:
        raise DeclarationError(
            f"{op_type}: version is {version!r}; an opset version is an int from 1 on, up to {_HIGHEST_VERSION}"
        )


def with_may_inplace(signature: Signature, names: Mapping[str, str]) -> Signature:
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
    if not isinstance(names, Mapping):
        raise DeclarationError(
            f'{signature.qualified_name}: may_inplace is {names!r}; write output and input: {{"output": "x"}}'
        )
    outputs = {item.name: (position, item.type) for position, item in enumerate(signature.outputs)}
    inputs = {item.name: (position, item.type) for position, item in enumerate(signature.inputs)}
    pairs = []
    for output, input in names.items():
        for name, known, kind in ((output, outputs, "output"), (input, inputs, "input")):
            if not isinstance(name, str) or name not in known:
                raise DeclarationError(
                    f"{signature.qualified_name}: may_inplace names the {kind} {name!r}; there are: {', '.join(known)}"
                )
        if outputs[output][1] != inputs[input][1]:
            raise DeclarationError(
                f"{signature.qualified_name}: output {output!r} is {outputs[output][1]} and input {input!r} is "
                f"{inputs[input][1]}; only equal types can share memory, leave it out of may_inplace"
            )
        pairs.append((outputs[output][0], inputs[input][0]))
    return replace(signature, may_inplace=tuple(pairs))


@dataclass
class _Reader:
    function: Callable[..., Any]
    op_type: str
    version: int
    localns: Mapping[str, Any]

    def read(self) -> Signature:
        domain, name = split_op_type(self.op_type)
        parameters = inspect.signature(self.function).parameters
        inputs: list[Input] = []
        attributes: list[Attribute] = []
        for parameter in parameters.values():
            with self.at(f"parameter {parameter.name!r}"):
                if parameter.kind is parameter.VAR_KEYWORD:
                    raise HintError("attributes have names of their own", "declare each one after `*`, with a hint")
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    inputs.append(self.input(parameter))
                elif parameter.name != "out":
                    attributes.append(self.attribute(parameter))
        with self.at("the return type"):
            outputs, hint = self.outputs()
            self.check_types(inputs, outputs)
        if "out" in parameters:
            with self.at("parameter 'out'"):
                self.check_out(parameters["out"], hint)
        return Signature(
            domain,
            name,
            self.version,
            tuple(inputs),
            outputs,
            tuple(attributes),
            takes_out="out" in parameters,
            returns_tuple=typing.get_origin(hint) is tuple,
        )

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Turn a HintError raised in the block into a DeclarationError that names the place."""
        try:
            yield
        except HintError as error:
            raise DeclarationError(
                f"{self.op_type}, {where} of {self.function.__qualname__}: {error.problem}; {error.fix}"
            ) from error.__cause__

    def hint(self, parameter: inspect.Parameter, example: str) -> Any:
        name = parameter.name
        if name in self.function.__annotations__:
            return resolve(self.function, name, self.localns)
        if name in ("self", "cls"):
            raise HintError("an operator is no method", "declare a function, or put @staticmethod above @onnx_op")
        raise HintError("it has no type hint", f"annotate it, for example {example}")

    def input(self, parameter: inspect.Parameter) -> Input:
        name, variadic = parameter.name, parameter.kind is parameter.VAR_POSITIONAL
        hint = self.hint(parameter, f"{'*' if variadic else ''}{name}: NDArray[np.float32]")
        inner, optional = strip_none(hint)
        if variadic:
            if optional:
                raise HintError("a variadic input cannot be optional", f"write *{name}: {spell(inner)}")
            return Input(name, type_parameter(inner, f"T_{name}"), variadic=True, homogeneous=not is_abstract(inner))
        if parameter.default is not parameter.empty and parameter.default is not None:
            raise HintError(
                f"an input cannot default to {parameter.default!r}",
                "put it after `*` if it is an attribute, or write `| None = None` for an optional input",
            )
        if optional and parameter.default is not None:
            raise HintError(
                "an input that may be None needs the default None",
                f"write {name}: {spell(hint)} = None, after the inputs that are required",
            )
        if parameter.default is None and not optional:
            raise HintError(
                "it defaults to None, and its hint does not say so", f"write {name}: {spell(hint)} | None = None"
            )
        return Input(name, type_parameter(inner, f"T_{name}"), optional=optional)

    def outputs(self) -> tuple[tuple[Output, ...], Any]:
        """Return the outputs, and the return type with a NamedTuple replaced by the equivalent tuple."""
        if "return" not in self.function.__annotations__:
            raise HintError("it is missing", "annotate what is returned, for example -> NDArray[np.float32]")
        hint = resolve(self.function, "return", self.localns)
        origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
        if origin is not tuple and not (isinstance(origin, type) and issubclass(origin, tuple)):
            return (Output("output", self.output(hint)),), hint
        rest = None
        if origin is tuple:
            args, rest = split_variadic(args)
        items = {f"output_{i}": arg for i, arg in enumerate(args)} if origin is tuple else self.fields(origin, args)
        if not items and rest is None:
            raise HintError("it is a tuple of nothing", "say what is in it, for example -> tuple[NDArray[np.float32]]")
        outputs = []
        for name, item in items.items():
            with self.at(f"output {name!r} in the return type"):
                outputs.append(Output(name, self.output(item)))
        if rest is not None:
            abstract = is_abstract(rest)
            types = type_parameter(rest, "T_outputs") if abstract else self.output(rest)
            return (*outputs, Output("outputs", types, variadic=True, homogeneous=not abstract)), hint
        return tuple(outputs), GenericAlias(tuple, tuple(items.values()))

    def fields(self, origin: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the hints of a NamedTuple's fields by name, with the type arguments of ``Out[T]`` substituted."""
        names = getattr(origin, "_fields", None)
        if names is None or any(name not in getattr(origin, "__annotations__", {}) for name in names):
            raise HintError(
                f"the fields of {origin.__qualname__} have no hints",
                f"write class {origin.__name__}(NamedTuple), with a line such as values: NDArray[np.float32] for each",
            )
        # The hints of a class from another module must not resolve to names local to this declaration.
        localns: Mapping[str, Any] = {}
        globalns = None
        if origin.__module__ == self.function.__module__:
            localns, globalns = self.localns, getattr(inspect.unwrap(self.function), "__globals__", None)
        given = dict(zip(getattr(origin, "__parameters__", ()), args, strict=False))
        items = {}
        for name in names:
            with self.at(f"output {name!r} in the return type"):
                items[name] = substitute(resolve(origin, name, localns, globalns), given)
        return items

    def output(self, hint: Any) -> Any:
        inner, optional = strip_none(hint)
        if hint is type(None):
            raise HintError("it is None, and an operator has at least one output", "return an array")
        if optional:
            raise HintError("an output is an array on every call", f"write {spell(inner)}, and return an empty one")
        if is_abstract(hint):
            scalar = spell(hint)[len("NDArray[") : -1]
            raise HintError(
                f"{scalar} contains several types",
                f'use a TypeVar shared with an input: T = TypeVar("T", bound={scalar})',
            )
        if typing.get_origin(hint) is list:
            raise HintError(
                "a kernel returns arrays in a tuple", f"write tuple[{spell(typing.get_args(hint)[0])}, ...]"
            )
        return type_parameter(hint, "T")

    def check_types(self, inputs: list[Input], outputs: tuple[Output, ...]) -> None:
        known: dict[str, TypeParameter] = {}
        for type in (*(item.type for item in inputs), *(item.type for item in outputs)):
            if known.setdefault(type.name, type) != type:
                raise HintError(f"two type variables are named {type.name}", "give one of them another name")
        for output in outputs:
            if output.homogeneous and len(output.type.dtypes) > 1 and output.type not in [item.type for item in inputs]:
                raise HintError(
                    f"no input is of type {output.type.name}, so that nothing tells which of its types comes out",
                    "annotate an input with it, or return one type",
                )

    def check_out(self, parameter: inspect.Parameter, returned: Any) -> None:
        expected = f"out: {spell(returned)} | None = None"
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise HintError("`out` is the buffer for the result", "put it after `*`, or call the input otherwise")
        inner, optional = strip_none(self.hint(parameter, expected))
        if not optional or parameter.default is not None or inner != returned:
            raise HintError(
                "it must be annotated like the return type, optional, and default to None", f"write {expected}"
            )

    def attribute(self, parameter: inspect.Parameter) -> Attribute:
        example = f"{parameter.name}: int, where attributes may be {ATTRIBUTE_HINTS}"
        return read_attribute(parameter.name, self.hint(parameter, example), parameter.default)
