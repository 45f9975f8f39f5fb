"""Type hints: resolution of their names, and what they declare, a tensor's type parameter or an attribute."""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from ..._support.annotations import annotations_of
from ..._support.element_types import DType, element_type, expand, format_scalar
from ...errors import InputError
from .attribute import Attribute, AttributeKind
from .signature import TypeParameter

# The type of ``type X = ...`` in Python 3.12; NumPy's NDArray is such an alias from NumPy 2.5 on.
_ALIAS: Any = getattr(typing, "TypeAliasType", ())


class HintError(Exception):
    """A mistake in a type hint, and what to write instead.

    The caller that knows the op and the parameter turns it into a DeclarationError.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem, self.fix = problem, fix


def resolve(annotated: Any, name: str, localns: Mapping[str, Any], globalns: Mapping[str, Any] | None = None) -> Any:
    """Resolve the annotation `name` of a function or class.

    Parameters
    ----------
    localns : mapping
        Local variables of the code that defines `annotated`; they take precedence over globals.
    globalns : mapping, optional
        Global variables; those of `annotated`'s module if not given.

    Raises
    ------
    HintError
        The annotation uses a name that is not defined, or raises when it is evaluated.
    """
    owner = inspect.unwrap(annotated)
    if globalns is None:
        module = sys.modules.get(annotated.__module__)
        globalns = getattr(owner, "__globals__", None) or (vars(module) if module else {})
    scope = {p.__name__: p for p in getattr(owner, "__type_params__", ())}
    if isinstance(owner, types.FunctionType):
        for variable, cell in zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # the enclosing function has not assigned the variable yet
                scope.setdefault(variable, cell.cell_contents)
    # Evaluated one at a time, so that an error names the right parameter.
    alone = types.SimpleNamespace(__annotations__={name: annotations_of(annotated)[name]})
    try:
        return plain(typing.get_type_hints(alone, dict(globalns), {**localns, **scope})[name])
    except NameError as error:
        raise HintError(
            f"its hint names {error.name!r}, which is not defined where the operator is declared",
            "import or define it before the declaration",
        ) from error
    except Exception as error:  # a hint may be any expression, and raise anything
        raise HintError(f"its hint cannot be read ({type(error).__name__}: {error})", "correct it") from error


def plain(hint: Any) -> Any:
    """Return `hint` with all type aliases expanded, nested ones included."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    alias = hint if isinstance(hint, _ALIAS) else origin
    if isinstance(alias, _ALIAS):
        return plain(substitute(alias.__value__, type_arguments(alias.__type_params__, args)))
    if not args or origin is Literal:
        return hint
    opened = tuple(map(plain, args))
    if all(new is old for new, old in zip(opened, args, strict=True)):
        return hint
    # typing.Unpack does not accept a tuple, even of one.
    return (Union if _is_union(hint) else origin)[opened if len(opened) > 1 else opened[0]]


def type_arguments(parameters: Sequence[Any], args: Sequence[Any]) -> dict[Any, Any]:
    """Return the type argument of each type parameter: the one given, else its default, if it has one."""
    given = dict(zip(parameters, args, strict=False))
    for parameter in parameters[len(args) :]:
        # Of Python 3.13 and typing_extensions.
        if hasattr(parameter, "has_default") and parameter.has_default():
            given[parameter] = substitute(parameter.__default__, given)
    return given


def substitute(hint: Any, given: Mapping[Any, Any]) -> Any:
    """Return `hint` with type variables replaced by the given type arguments."""
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(p, p) for p in parameters)] if parameters else hint


def strip_none(hint: Any) -> tuple[Any, bool]:
    """Return ``(X, True)`` for ``X | None``, and ``(hint, False)`` for any other hint."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is Literal and None in args and len(args) > 1:
        return Literal[tuple(arg for arg in args if arg is not None)], True
    if _is_union(hint) and types.NoneType in args:
        return Union[tuple(arg for arg in args if arg is not types.NoneType)], True  # noqa: UP007
    return hint, False


def split_variadic(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """Return ``((A,), B)`` for the arguments of ``tuple[A, *tuple[B, ...]]``, and ``(args, None)`` if not variadic."""
    if len(args) == 2 and args[1] is Ellipsis:
        return (), args[0]
    last = args[-1] if args else None
    if typing.get_origin(last) is typing.Unpack:
        last = typing.get_args(last)[0]
    inner = typing.get_args(last)
    if typing.get_origin(last) is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return args[:-1], inner[0]
    return args, None


def union_members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or a tuple of the hint alone if it is not a union."""
    return typing.get_args(hint) if _is_union(hint) else (hint,)


def is_array(hint: Any) -> bool:
    """Return whether the hint is an ``NDArray[...]``, in any spelling."""
    return typing.get_origin(hint) is np.ndarray


def scalar_of(hint: Any) -> Any:
    """Return the argument of ``NDArray[...]``, or None if it has none."""
    for arg in typing.get_args(hint):
        if typing.get_origin(arg) is np.dtype:
            scalar = typing.get_args(arg)[0]
            # np.floating[Any]: NumPy's abstract scalar classes are generic in their precision.
            origin = typing.get_origin(scalar)
            if isinstance(origin, type) and issubclass(origin, np.generic):
                scalar = origin
            return None if scalar is _UNPARAMETRIZED else scalar
    return None


def format_hint(hint: Any) -> str:
    """Return a hint as the user would write it, for messages."""
    if is_array(hint):
        scalar = scalar_of(hint)
        return "np.ndarray" if scalar is None else f"NDArray[{format_hint(scalar)}]"
    if isinstance(hint, TypeVar):
        return hint.__name__
    if hint is types.NoneType:
        return "None"
    if _is_union(hint):
        return " | ".join(map(format_hint, typing.get_args(hint)))
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(origin, type) and args:
        return f"{origin.__name__}[{', '.join('...' if arg is Ellipsis else format_hint(arg) for arg in args)}]"
    if isinstance(hint, type):
        return f"np.{hint.__name__}" if hint.__module__ == "numpy" else hint.__qualname__
    return str(hint).replace("typing.", "")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)


# The type variable of NDArray itself, which remains in a hint without an argument.
_UNPARAMETRIZED: Any = None
_UNPARAMETRIZED = scalar_of(plain(NDArray))


def type_parameter(hint: Any, own_name: str) -> TypeParameter:
    """Return the type parameter that ``NDArray[...]`` declares.

    Parameters
    ----------
    own_name : str
        The name of the type parameter if the hint is an abstract class; no other input or output shares it.

    Raises
    ------
    HintError
        The hint is not an ``NDArray[...]``, or ONNX has no such element type.
    """
    if not is_array(hint):
        raise _not_a_tensor(hint)
    scalar = scalar_of(hint)
    if scalar is None or scalar is Any:
        raise _missing_type("NDArray[Any]" if scalar is Any else "np.ndarray")
    if isinstance(scalar, TypeVar):
        return TypeParameter(scalar.__name__, _variable_dtypes(scalar))
    if len(union_members(scalar)) > 1:
        raise HintError(
            f"{format_hint(scalar)} is not an element type", f"use {_variable(union_members(scalar))} and NDArray[T]"
        )
    dtypes = _dtypes(scalar)
    row = element_type(dtypes[0])
    return TypeParameter(row.type_str if row and len(dtypes) == 1 else own_name, dtypes)


def is_abstract(hint: Any) -> bool:
    """Return whether the hint is ``NDArray[...]`` of an abstract class, such as ``np.floating``."""
    return is_array(hint) and _count(scalar_of(hint)) > 1


def _count(scalar: Any) -> int:
    """Return how many element types a NumPy scalar class contains; 0 for anything else."""
    return len(expand(scalar)) if isinstance(scalar, type) and issubclass(scalar, np.generic) else 0


def _variable_dtypes(variable: TypeVar) -> tuple[DType, ...]:
    members = variable.__constraints__ or union_members(plain(variable.__bound__))
    if members == (None,):
        raise HintError(
            f"the TypeVar {variable.__name__} allows any type",
            f"constrain it: {_variable((np.float32, np.float64), variable.__name__)}",
        )
    try:
        # A dict removes duplicates and keeps the order.
        return tuple(dict.fromkeys(dtype for member in members for dtype in _dtypes(plain(member))))
    except HintError as error:
        raise HintError(f"in the TypeVar {variable.__name__}, {error.problem}", error.fix) from None


def _dtypes(scalar: Any) -> tuple[DType, ...]:
    if not isinstance(scalar, type):
        raise HintError(f"{format_hint(scalar)} is not an element type", "write a NumPy scalar type such as np.float32")
    # The types of ml_dtypes are subclasses of np.generic too.
    if not issubclass(scalar, np.generic):
        raise HintError(f"{format_hint(scalar)} is not a NumPy type", f"write {_numpy_name(scalar)}")
    dtypes = expand(scalar)
    if not dtypes:
        raise HintError(f"ONNX has no element type for {format_hint(scalar)}", "use one that ONNX has, such as float64")
    return dtypes


def _numpy_name(scalar: type[Any]) -> str:
    names = {float: "np.float32 or np.float64", int: "np.int64", bool: "np.bool_", str: "np.str_", object: "np.str_"}
    return names.get(scalar, "a NumPy scalar type such as np.float32")


def _not_a_tensor(hint: Any) -> HintError:
    if hint is np.ndarray:
        return _missing_type("np.ndarray")
    members = tuple(map(plain, hint.__constraints__ if isinstance(hint, TypeVar) else union_members(hint)))
    if len(members) > 1 and all(map(is_array, members)):
        variable = _variable([scalar_of(member) for member in members])
        return HintError(
            f"{format_hint(hint)} is not a tensor type", f"put the types inside: {variable} and NDArray[T]"
        )
    if getattr(hint, "__module__", "").partition(".")[0] == "torch":
        return HintError(
            f"torch.{format_hint(hint)} is a type of torch, but kernels get NumPy arrays",
            "write NDArray[np.float32], or NDArray[T] with a TypeVar T for several types; exporters.custom_op makes "
            "a torch operator of the op",
        )
    return HintError(
        f"{format_hint(hint)} is not a tensor type",
        "annotate inputs as NDArray[...], outputs as that or a tuple or NamedTuple of them; attributes go after `*`",
    )


def _missing_type(spelled: str) -> HintError:
    return HintError(
        f"{spelled} has no element type", "write NDArray[np.float32], or NDArray[np.generic] for an input of any type"
    )


def _variable(members: Any, name: str = "T") -> str:
    scalars = [format_scalar(member) if _count(member) == 1 else format_hint(member) for member in members]
    return f'{name} = TypeVar("{name}", {", ".join(scalars)})'


ATTRIBUTE_HINTS = "int, float, str, bool, list[int], list[float], list[str], Literal[...] or np.ndarray"

_LISTS = {list, tuple, Sequence}
_SCALARS = {
    bool: AttributeKind.INT,
    int: AttributeKind.INT,
    float: AttributeKind.FLOAT,
    str: AttributeKind.STRING,
}
_PLURAL = {kind.element: kind for kind in AttributeKind if kind is not kind.element}


def read_attribute(name: str, hint: Any, default: Any) -> Attribute:
    """Return the attribute that a keyword-only parameter declares.

    Parameters
    ----------
    default : object
        The parameter's default, ``inspect.Parameter.empty`` if it has none.

    Raises
    ------
    HintError
        ONNX has no attribute of this type, or the default is not of this type.
    """
    required = default is inspect.Parameter.empty
    inner, nullable = strip_none(hint)
    kind, options = _attribute_kind(inner)
    if nullable != (default is None):
        other = f", or {format_hint(inner)} = {default!r}" if nullable and not required else ""
        raise HintError(
            "an attribute needs both `| None` in its hint and the default None, or neither",
            f"write {format_hint(inner)} | None = None{other}",
        )
    attribute = Attribute(name, kind, required, **options)
    try:
        for choice in attribute.choices:
            attribute.convert(choice)
        if not required and default is not None:
            attribute = Attribute(name, kind, required, attribute.convert(default), **options)
    except InputError as error:
        raise HintError(f"its hint and its default do not fit: {error}", "change the default or the hint") from None
    return attribute


def _attribute_kind(hint: Any) -> tuple[AttributeKind, dict[str, Any]]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is np.ndarray:
        return AttributeKind.TENSOR, {}
    if isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint], {"boolean": hint is bool}
    # Floats are left out: typing does not allow them in Literal, and ONNX would round them to float32.
    if origin is Literal and {type(arg) for arg in args} in ({int}, {str}, {bool}):
        scalar = type(args[0])
        return _SCALARS[scalar], {"boolean": scalar is bool, "choices": args}
    any_length = origin is not tuple or args[1:] == (Ellipsis,)
    if origin in _LISTS and any_length and args and args[0] in (int, float, str):
        return _PLURAL[_SCALARS[args[0]]], {"as_tuple": origin is tuple}
    if is_array(hint):
        raise HintError(
            "a keyword-only parameter is an attribute",
            "write np.ndarray for a tensor attribute, or put it before `*` for an input",
        )
    raise HintError(f"{format_hint(hint)} is not an ONNX attribute type", f"use {ATTRIBUTE_HINTS}")


def named_tuple_of(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the NamedTuple class that a function is hinted to return, or None."""
    try:
        hint = resolve(inspect.unwrap(function), "return", {})
    except (HintError, KeyError):  # names local to the declaring function, or no hint
        return None
    hint = typing.get_origin(hint) or hint
    return hint if hasattr(hint, "_fields") else None
