"""Reading type hints: resolving names, expanding aliases, and spelling hints for messages."""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

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
    # Evaluated one at a time, so that an error can be blamed on the right parameter.
    alone = types.SimpleNamespace(__annotations__={name: annotated.__annotations__[name]})
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
    if isinstance(hint, _ALIAS):
        return plain(hint.__value__)
    if isinstance(origin, _ALIAS):
        return plain(substitute(origin.__value__, dict(zip(origin.__type_params__, args, strict=False))))
    if not args or origin is Literal:
        return hint
    opened = tuple(map(plain, args))
    if all(new is old for new, old in zip(opened, args, strict=True)):
        return hint
    # typing.Unpack does not accept a tuple, even of one.
    return (Union if _is_union(hint) else origin)[opened if len(opened) > 1 else opened[0]]


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


def spell(hint: Any) -> str:
    """Return a hint as the user would write it, for messages."""
    if is_array(hint):
        scalar = scalar_of(hint)
        return "np.ndarray" if scalar is None else f"NDArray[{spell(scalar)}]"
    if isinstance(hint, TypeVar):
        return hint.__name__
    if hint is types.NoneType:
        return "None"
    if _is_union(hint):
        return " | ".join(map(spell, typing.get_args(hint)))
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(origin, type) and args:
        return f"{origin.__name__}[{', '.join('...' if arg is Ellipsis else spell(arg) for arg in args)}]"
    if isinstance(hint, type):
        return f"np.{hint.__name__}" if hint.__module__ == "numpy" else hint.__qualname__
    return str(hint).replace("typing.", "")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)


# The type variable of NDArray itself, which remains in a hint without an argument.
_UNPARAMETRIZED: Any = None
_UNPARAMETRIZED = scalar_of(plain(NDArray))
