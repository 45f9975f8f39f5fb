"""Reads a Python function as the declaration of an operator.

Every error in a declaration is raised here, when the function is declared, and names the
parameter and the fix.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar, Union

import numpy as np

from .errors import DeclarationError, InputError
from .signature import Attribute, AttributeKind, Input, Output, Signature, TypeParameter
from .types import element_type, expand

_NAME = re.compile(r"(?P<domain>[A-Za-z_][\w.\-]*)::(?P<name>[A-Za-z_]\w*)")
_LISTS = {list, tuple, abc.Sequence}
_SCALARS = {
    bool: AttributeKind.INT,
    int: AttributeKind.INT,
    float: AttributeKind.FLOAT,
    str: AttributeKind.STRING,
}
_PLURAL = {
    AttributeKind.INT: AttributeKind.INTS,
    AttributeKind.FLOAT: AttributeKind.FLOATS,
    AttributeKind.STRING: AttributeKind.STRINGS,
}
_ATTRIBUTE_KINDS = "int, float, str, bool, list[int], list[float], list[str], Literal[...] or np.ndarray"


def read_signature(
    function: Callable[..., Any], op_type: str, version: int, localns: Mapping[str, Any] | None = None
) -> Signature:
    """The Signature that `function`'s parameters and hints declare.

    Parameters
    ----------
    op_type : str
        ``"domain::Name"``.
    localns : mapping, optional
        Names local to the function that declares, for hints that refer to them.

    Raises
    ------
    DeclarationError
        Anything wrong with the declaration.
    """
    return _Reader(function, op_type, version, localns or {}).read()


def split_op_type(op_type: Any) -> tuple[str, str]:
    """``("domain", "Name")`` of ``"domain::Name"``.

    Raises
    ------
    DeclarationError
        It is spelled otherwise.
    """
    matched = _NAME.fullmatch(op_type) if isinstance(op_type, str) else None
    if matched is None:
        raise DeclarationError(
            f'onnx_op got {op_type!r} as the operator\'s name; write @onnx_op("domain::Name"), for example '
            '@onnx_op("mylibrary::AddRound")'
        )
    return matched["domain"], matched["name"]


def check_version(version: Any, op_type: str) -> None:
    """Refuse what cannot be an opset version."""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise DeclarationError(f"{op_type}: version is {version!r}; an opset version is an int from 1 on")


def check_kernel_parameters(function: Callable[..., Any], signature: Signature) -> None:
    """Check that a second kernel or a shape function can be called like the declared function.

    Raises
    ------
    DeclarationError
        Its parameters cannot take the declared inputs and attributes.
    """
    inputs: list[object] = [None] * len(signature.inputs)
    attributes: dict[str, object] = {a.name: None for a in signature.attributes}
    try:
        inspect.signature(function).bind(*inputs, **attributes)
    except TypeError as error:
        raise DeclarationError(
            f"{signature.qualified_name}: {function.__qualname__} cannot be called like the declared function "
            f"({error}); give it the same parameters, without annotations: {signature}"
        ) from None


@dataclass
class _Reader:
    function: Callable[..., Any]
    op_type: str
    version: int
    localns: Mapping[str, Any]

    def read(self) -> Signature:
        domain, name = split_op_type(self.op_type)
        check_version(self.version, self.op_type)
        hints = self.hints(self.function)
        parameters = inspect.signature(self.function).parameters
        inputs: list[Input] = []
        attributes: list[Attribute] = []
        for parameter in parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                self.fail(parameter, "attributes have names of their own", "declare each one after `*`, with a hint")
            if parameter.kind is parameter.KEYWORD_ONLY:
                if parameter.name != "out":
                    attributes.append(self.attribute(parameter, self.hint(hints, parameter)))
            else:
                inputs.append(self.input(parameter, self.hint(hints, parameter)))
        outputs, returns_tuple = self.outputs(hints)
        self.check_out(parameters, hints)
        for output in outputs:
            if len(output.type.dtypes) > 1 and output.type not in [item.type for item in inputs]:
                self.fail(
                    "the return type",
                    f"no input is of type {output.type.name}, so that nothing tells which of its types comes out",
                    "annotate an input with it, or return one type",
                )
        return Signature(
            domain,
            name,
            self.version,
            tuple(inputs),
            outputs,
            tuple(attributes),
            takes_out="out" in parameters,
            returns_tuple=returns_tuple,
        )

    def fail(self, parameter: inspect.Parameter | str, problem: str, fix: str) -> NoReturn:
        if isinstance(parameter, inspect.Parameter):
            parameter = f"parameter {parameter.name!r}"
        raise DeclarationError(f"{self.op_type}, {parameter} of {self.function.__qualname__}: {problem}; {fix}")

    def hints(self, annotated: Any) -> dict[str, Any]:
        scope = {p.__name__: p for p in getattr(annotated, "__type_params__", ())}
        if isinstance(annotated, types.FunctionType):
            scope |= {k: v for k, v in inspect.getclosurevars(annotated).nonlocals.items() if k not in scope}
        try:
            return typing.get_type_hints(annotated, localns={**self.localns, **scope})
        except NameError as error:
            raise DeclarationError(
                f"{self.op_type}: a hint of {annotated.__qualname__} names {error.name!r}, which is not defined "
                "where the operator is declared; import or define it before the declaration"
            ) from error

    def hint(self, hints: dict[str, Any], parameter: inspect.Parameter) -> Any:
        if parameter.name not in hints:
            fix = f"annotate it, for example {parameter.name}: NDArray[np.float32]"
            if parameter.kind is parameter.KEYWORD_ONLY:
                fix = f"annotate it as {_ATTRIBUTE_KINDS}"
            self.fail(parameter, "it has no type hint", fix)
        return hints[parameter.name]

    def input(self, parameter: inspect.Parameter, hint: Any) -> Input:
        inner, optional = _strip_none(hint)
        if parameter.kind is parameter.VAR_POSITIONAL:
            if optional:
                self.fail(parameter, "a variadic input cannot be optional", "write *xs: NDArray[T]")
            homogeneous = not _is_abstract(inner)
            return Input(parameter.name, self.tensor(parameter, inner), variadic=True, homogeneous=homogeneous)
        if parameter.default is not parameter.empty and parameter.default is not None:
            self.fail(
                parameter,
                f"an input cannot default to {parameter.default!r}",
                "put it after `*` if it is an attribute, or write `| None = None` for an optional input",
            )
        if optional != (parameter.default is None):
            self.fail(parameter, "an optional input needs both halves", "write NDArray[...] | None = None")
        return Input(parameter.name, self.tensor(parameter, inner), optional=optional)

    def tensor(self, where: inspect.Parameter | str, hint: Any) -> TypeParameter:
        """The type parameter behind ``NDArray[...]``."""
        if typing.get_origin(hint) is not np.ndarray:
            if hint is np.ndarray:
                self.fail(where, "np.ndarray says no element type", "write NDArray[np.float32]")
            self.fail(
                where,
                f"{_spell(hint)} is not a tensor type",
                "annotate it as NDArray[...], or put it after `*` to make it an attribute"
                if isinstance(where, inspect.Parameter)
                else "annotate it as NDArray[...], a tuple of them, or a NamedTuple of them",
            )
        scalars = [arg for arg in typing.get_args(hint) if typing.get_origin(arg) is np.dtype]
        scalar = typing.get_args(scalars[0])[0] if scalars else Any
        if isinstance(scalar, TypeVar):
            return self.type_variable(where, scalar)
        if not isinstance(scalar, type):
            self.fail(where, f"{_spell(scalar)} is no element type", "write a NumPy scalar type, or a TypeVar")
        dtypes = expand(scalar)
        if not dtypes:
            self.fail(where, f"ONNX has no element type for {_spell(scalar)}", "use one that ONNX has, such as float64")
        if len(dtypes) == 1:
            row = element_type(dtypes[0])
            assert row is not None
            return TypeParameter(row.type_str, dtypes)
        if isinstance(where, str):
            names = f'T = TypeVar("T", bound=np.{scalar.__name__})'
            self.fail(
                where,
                f"np.{scalar.__name__} contains {len(dtypes)} types",
                f"use a TypeVar shared with an input: {names}",
            )
        return TypeParameter(f"T_{where.name}", dtypes)

    def type_variable(self, where: inspect.Parameter | str, variable: TypeVar) -> TypeParameter:
        members = variable.__constraints__ or ((variable.__bound__,) if variable.__bound__ else ())
        if not members:
            example = f'{variable.__name__} = TypeVar("{variable.__name__}", np.float32, np.float64)'
            self.fail(where, f"the TypeVar {variable.__name__} allows any type", f"constrain it: {example}")
        dtypes: list[Any] = []
        for member in members:
            found = expand(member) if isinstance(member, type) else ()
            if not found:
                self.fail(
                    where, f"ONNX has no element type for {_spell(member)} in {variable.__name__}", "leave it out"
                )
            dtypes.extend(dtype for dtype in found if dtype not in dtypes)
        return TypeParameter(variable.__name__, tuple(dtypes))

    def outputs(self, hints: dict[str, Any]) -> tuple[tuple[Output, ...], bool]:
        where = "the return type"
        if hints.get("return", type(None)) is type(None):
            self.fail(where, "it is missing", "annotate what is returned, for example -> NDArray[np.float32]")
        hint = hints["return"]
        origin = typing.get_origin(hint) or hint
        if origin is tuple:
            args = typing.get_args(hint)
            if len(args) == 2 and args[1] is Ellipsis:
                return (Output("outputs", self.tensor(where, args[0]), variadic=True),), True
            items = {f"output_{i}": arg for i, arg in enumerate(args)}
        elif isinstance(origin, type) and issubclass(origin, tuple) and hasattr(origin, "_fields"):
            given = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(hint), strict=False))
            fields = self.hints(origin)
            items = {name: _substitute(fields[name], given) for name in origin._fields}
        else:
            return (Output("output", self.tensor(where, hint)),), False
        if not items:
            self.fail(where, "it is an empty tuple", "an operator has at least one output")
        return tuple(
            Output(name, self.tensor(f"output {name!r} in {where}", item)) for name, item in items.items()
        ), True

    def check_out(self, parameters: Mapping[str, inspect.Parameter], hints: dict[str, Any]) -> None:
        parameter = parameters.get("out")
        if parameter is None:
            return
        if parameter.kind is not parameter.KEYWORD_ONLY:
            self.fail(parameter, "`out` is the buffer for the result", "put it after `*`, or call the input otherwise")
        inner, optional = _strip_none(self.hint(hints, parameter))
        if not optional or parameter.default is not None or inner != hints["return"]:
            self.fail(
                parameter,
                "it must be annotated like the return type, optional, and default to None",
                f"write out: {_spell(hints['return'])} | None = None",
            )

    def attribute(self, parameter: inspect.Parameter, hint: Any) -> Attribute:
        inner, nullable = _strip_none(hint)
        kind, options = self.attribute_kind(parameter, inner)
        required = parameter.default is parameter.empty
        if required and nullable:
            self.fail(
                parameter, "an attribute that may be None needs a default", f"write {_spell(inner)} | None = None"
            )
        if parameter.default is None and not nullable:
            self.fail(parameter, "None is not of its type", f"write {_spell(inner)} | None = None")
        if nullable and parameter.default is not None:
            self.fail(
                parameter,
                "an absent attribute takes the default, so that None could never be told from it",
                f"write {_spell(inner)} = {parameter.default!r} or {_spell(inner)} | None = None",
            )
        attribute = Attribute(parameter.name, kind, required, **options)
        if required or parameter.default is None:
            return attribute
        try:
            default = attribute.convert(parameter.default)
        except InputError as error:
            self.fail(parameter, f"its default does not fit: {error}", "change the default or the hint")
        return Attribute(parameter.name, kind, required, default, **options)

    def attribute_kind(self, parameter: inspect.Parameter, hint: Any) -> tuple[AttributeKind, dict[str, Any]]:
        if hint is np.ndarray:
            return AttributeKind.TENSOR, {}
        if isinstance(hint, type) and hint in _SCALARS:
            return _SCALARS[hint], {"boolean": hint is bool}
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is Literal and len({type(arg) for arg in args}) == 1 and type(args[0]) in _SCALARS:
            scalar = type(args[0])
            return _SCALARS[scalar], {"boolean": scalar is bool, "choices": args}
        if origin in _LISTS and args and args[0] in (int, float, str):
            if origin is not tuple or args[1:] == (Ellipsis,):
                return _PLURAL[_SCALARS[args[0]]], {"as_tuple": origin is tuple}
        if origin is np.ndarray:
            self.fail(
                parameter,
                "a keyword-only parameter is an attribute",
                "write np.ndarray for a tensor attribute, or put it before `*` for an input",
            )
        self.fail(parameter, f"{_spell(hint)} is no attribute type of ONNX", f"use {_ATTRIBUTE_KINDS}")


def _strip_none(hint: Any) -> tuple[Any, bool]:
    """``X | None`` as ``(X, True)``."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(rest) < len(typing.get_args(hint)) and len(rest) == 1:
            return rest[0], True
    return hint, False


def _is_abstract(hint: Any) -> bool:
    """Whether ``NDArray[...]`` holds an abstract class, which is a type of its own each time."""
    scalars = [typing.get_args(arg)[0] for arg in typing.get_args(hint) if typing.get_origin(arg) is np.dtype]
    return bool(scalars) and isinstance(scalars[0], type) and len(expand(scalars[0])) > 1


def _substitute(hint: Any, given: Mapping[Any, Any]) -> Any:
    """A NamedTuple's field with the type arguments of ``Out[T]`` put in."""
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(p, p) for p in parameters)] if parameters else hint


def _spell(hint: Any) -> str:
    if typing.get_origin(hint) is np.ndarray:
        scalars = [arg for arg in typing.get_args(hint) if typing.get_origin(arg) is np.dtype]
        return f"NDArray[{_spell(typing.get_args(scalars[0])[0])}]" if scalars else "np.ndarray"
    if isinstance(hint, TypeVar):
        return hint.__name__
    if isinstance(hint, type) and not typing.get_args(hint):
        return f"np.{hint.__name__}" if issubclass(hint, np.generic) else hint.__qualname__
    return str(hint).replace("typing.", "")
