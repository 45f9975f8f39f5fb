"""Reading a Python function's parameters and type hints into a `Signature`.

Every mistake in a declaration raises an error here, when the function is decorated; it names the parameter and the fix.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Literal

from ..._support.annotations import ANNOTATED, annotations_of, signature_of
from ...errors import DeclarationError
from . import hints
from .attribute import Attribute
from .hints import HintError, format_hint
from .signature import Input, Output, Signature, TypeParameter, check_returns

Compile = bool | Literal["try", "debug"]
FastMath = bool | Collection[str]

_HIGHEST_VERSION = 1000  # ONNX Runtime refuses custom operators of later versions
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
    check_function(function, op_type)
    return _Reader(function, op_type, version, localns or {}).read()


def read_name(op_type: Any, version: Any) -> tuple[str, str]:
    """Split ``"domain::Name"`` into ``("domain", "Name")``, and check the version.

    Raises
    ------
    DeclarationError
        `op_type` is not of this form, or `version` is not an opset version.
    """
    matched = _NAME.fullmatch(op_type) if isinstance(op_type, str) else None
    if matched is None:
        found = re.search(r"[^\w.\-:]", op_type) if isinstance(op_type, str) else None
        raise DeclarationError(
            f"onnx_op got {op_type!r} as the operator's name{f', with {found[0]!r}' if found else ''}; write "
            '@onnx_op("domain::Name"), for example @onnx_op("mylibrary::AddRound"): letters, digits and _, of which '
            "each begins with a letter or _, and in the domain also . and -"
        )
    if matched["name"].startswith("pyops_"):
        raise DeclarationError(
            f"{op_type}: names that begin with pyops_ are reserved for sessions, which rename ops that have the "
            "name of an ONNX operator; choose another name"
        )
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= _HIGHEST_VERSION:
        raise DeclarationError(
            f"{op_type}: version is {version!r}; an opset version is an int from 1 to {_HIGHEST_VERSION}, "
            "the highest that ONNX Runtime accepts for a custom operator"
        )
    return matched["domain"], matched["name"]


def check_function(function: Any, op_type: str) -> None:
    """Raise if `function` is a kind of callable that cannot be an operator's kernel.

    Raises
    ------
    DeclarationError
        It is not a plain function with type hints, but a class, a coroutine or generator function, a built-in, ...
    """
    name = getattr(function, "__qualname__", None)
    problem = None
    if not callable(function):
        problem = f"{function!r} is not a function; put @onnx_op on a function, under @staticmethod in a class"
    elif isinstance(function, type):
        problem = f"{name} is a class; put @onnx_op on a function"
    elif name is None or not hasattr(function, ANNOTATED):
        example = "def op(x: NDArray[np.float32]) -> NDArray[np.float32]: ..."
        problem = f"{function!r} has no signature with hints; write a def with hints that calls it: {example}"
    if problem:
        raise DeclarationError(f"{op_type}: {problem}")
    check_returns(function, op_type)


@dataclass
class _Reader:
    function: Callable[..., Any]
    op_type: str
    version: int
    localns: Mapping[str, Any]

    def read(self) -> Signature:
        domain, name = read_name(self.op_type, self.version)
        parameters = signature_of(self.function).parameters
        inputs: list[Input] = []
        attributes: list[Attribute] = []
        for parameter in parameters.values():
            with self.at(f"parameter {parameter.name!r}"):
                if parameter.kind is parameter.VAR_KEYWORD:
                    raise HintError("each attribute must be declared by name", "write each one after `*`, with a hint")
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    inputs.append(self.input(parameter))
                elif parameter.name == "state":
                    self.check_state(parameter)
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
            takes_state=any(p.name == "state" and p.kind is p.KEYWORD_ONLY for p in parameters.values()),
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
        if name in annotations_of(self.function):
            return hints.resolve(self.function, name, self.localns)
        if name in ("self", "cls"):
            raise HintError("an operator cannot be a method", "declare a function, or put @staticmethod above @onnx_op")
        raise HintError("it has no type hint", f"annotate it, for example {example}")

    def input(self, parameter: inspect.Parameter) -> Input:
        name, variadic = parameter.name, parameter.kind is parameter.VAR_POSITIONAL
        hint = self.hint(parameter, f"{'*' if variadic else ''}{name}: NDArray[np.float32]")
        inner, optional = hints.strip_none(hint)
        if variadic:
            if optional:
                raise HintError("a variadic input cannot be optional", f"write *{name}: {format_hint(inner)}")
            return Input(
                name, hints.type_parameter(inner, f"T_{name}"), variadic=True, homogeneous=not hints.is_abstract(inner)
            )
        if parameter.default is not parameter.empty and parameter.default is not None:
            raise HintError(
                f"an input cannot default to {parameter.default!r}",
                "put it after `*` if it is an attribute, or write `| None = None` for an optional input",
            )
        if optional != (parameter.default is None):
            raise HintError(
                "an optional input needs both `| None` in its hint and the default None",
                f"write {name}: {format_hint(inner)} | None = None, after the inputs that are required",
            )
        return Input(name, hints.type_parameter(inner, f"T_{name}"), optional=optional)

    def outputs(self) -> tuple[tuple[Output, ...], Any]:
        """Return the outputs, and the return type with a NamedTuple replaced by the equivalent tuple."""
        if "return" not in annotations_of(self.function):
            raise HintError("it is missing", "annotate what is returned, for example -> NDArray[np.float32]")
        hint = hints.resolve(self.function, "return", self.localns)
        origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
        if origin is not tuple and not (isinstance(origin, type) and issubclass(origin, tuple)):
            return (Output("output", self.output(hint)),), hint
        rest = None
        if origin is tuple:
            args, rest = hints.split_variadic(args)
        items = {f"output_{i}": arg for i, arg in enumerate(args)} if origin is tuple else self.fields(origin, args)
        if not items and rest is None:
            raise HintError(
                "it is a tuple without elements", "say what is in it, for example -> tuple[NDArray[np.float32]]"
            )
        outputs = []
        for name, item in items.items():
            with self.at(f"output {name!r} in the return type"):
                outputs.append(Output(name, self.output(item)))
        if rest is not None:
            abstract = hints.is_abstract(rest)
            types = hints.type_parameter(rest, "T_outputs") if abstract else self.output(rest)
            return (*outputs, Output("outputs", types, variadic=True, homogeneous=not abstract)), hint
        return tuple(outputs), GenericAlias(tuple, tuple(items.values()))

    def fields(self, origin: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the hints of a NamedTuple's fields by name, with the type arguments of ``Out[T]`` substituted."""
        names = getattr(origin, "_fields", None)
        if names is None or not annotations_of(origin).keys() >= set(names):
            raise HintError(
                f"the fields of {origin.__qualname__} have no hints",
                f"write class {origin.__name__}(NamedTuple), with a line such as values: NDArray[np.float32] for each",
            )
        # The hints of a class from another module must not resolve to names local to this declaration.
        localns: Mapping[str, Any] = {}
        globalns = None
        if origin.__module__ == self.function.__module__:
            localns, globalns = self.localns, getattr(inspect.unwrap(self.function), "__globals__", None)
        given = hints.type_arguments(getattr(origin, "__parameters__", ()), args)
        items = {}
        for name in names:
            with self.at(f"output {name!r} in the return type"):
                items[name] = hints.substitute(hints.resolve(origin, name, localns, globalns), given)
        return items

    def output(self, hint: Any) -> Any:
        if hints.is_abstract(hint):
            scalar = format_hint(hint)[len("NDArray[") : -1]
            raise HintError(
                f"{scalar} contains several types",
                f'use a TypeVar shared with an input: T = TypeVar("T", bound={scalar})',
            )
        return hints.type_parameter(hint, "T")

    def check_types(self, inputs: list[Input], outputs: tuple[Output, ...]) -> None:
        known: dict[str, TypeParameter] = {}
        for type in (*(item.type for item in inputs), *(item.type for item in outputs)):
            if known.setdefault(type.name, type) != type:
                raise HintError(f"two type variables are named {type.name}", "give one of them another name")
        for output in outputs:
            if output.homogeneous and len(output.type.dtypes) > 1 and output.type not in [item.type for item in inputs]:
                raise HintError(
                    f"no input is of type {output.type.name}, so the output's type cannot be inferred",
                    "annotate an input with it, or return one type",
                )

    def check_out(self, parameter: inspect.Parameter, returned: Any) -> None:
        expected = f"out: {format_hint(returned)} | None = None"
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise HintError("`out` is the buffer for the result", "put it after `*`, or rename the input")
        inner, optional = hints.strip_none(self.hint(parameter, expected))
        if not optional or parameter.default is not None or inner != returned:
            raise HintError(
                "it must be annotated like the return type, optional, and default to None", f"write {expected}"
            )

    def check_state(self, parameter: inspect.Parameter) -> None:
        if parameter.default is not parameter.empty and parameter.default is not None:
            raise HintError(
                f"`state` is what the setup function returns and not an attribute, so it cannot default to "
                f"{parameter.default!r}",
                "write state=None, or rename it if it is meant as an attribute",
            )

    def attribute(self, parameter: inspect.Parameter) -> Attribute:
        example = f"{parameter.name}: int, where attributes may be {hints.ATTRIBUTE_HINTS}"
        return hints.read_attribute(parameter.name, self.hint(parameter, example), parameter.default)
