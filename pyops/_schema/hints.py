"""Type hints as the rest of pyops wants them: names resolved, aliases opened, spelled for messages."""

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

# ``type X = ...`` of Python 3.12; NumPy's own NDArray is one from NumPy 2.5 on.
_ALIAS: Any = getattr(typing, "TypeAliasType", ())


class HintError(Exception):
    """What is wrong with a hint, and what to write; whoever reads the hint adds where it stands."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem, self.fix = problem, fix


def resolve(annotated: Any, name: str, localns: Mapping[str, Any], globalns: Mapping[str, Any] | None = None) -> Any:
    """The hint `name` of a function or class, with everything it refers to by name put in.

    Parameters
    ----------
    localns : mapping
        Names local to where it is defined; they win over global ones.
    globalns : mapping, optional
        Its module's names, unless they are to be found from `annotated`.

    Raises
    ------
    HintError
        It refers to what is not there, or is no valid expression.
    """
    owner = inspect.unwrap(annotated)
    if globalns is None:
        module = sys.modules.get(annotated.__module__)
        globalns = getattr(owner, "__globals__", None) or (vars(module) if module else {})
    scope = {p.__name__: p for p in getattr(owner, "__type_params__", ())}
    if isinstance(owner, types.FunctionType):
        for variable, cell in zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # empty until the enclosing function assigns to it
                scope.setdefault(variable, cell.cell_contents)
    # On its own, so that an error can say which hint it is about.
    alone = types.SimpleNamespace(__annotations__={name: annotated.__annotations__[name]})
    try:
        return plain(typing.get_type_hints(alone, dict(globalns), {**localns, **scope})[name])
    except NameError as error:
        raise HintError(
            f"its hint names {error.name!r}, which is not defined where the operator is declared",
            "import or define it before the declaration",
        ) from error
    except Exception as error:  # a hint is any expression
        raise HintError(f"its hint cannot be read ({type(error).__name__}: {error})", "correct it") from error


def plain(hint: Any) -> Any:
    """`hint` with type aliases replaced by what they stand for, inside of it too."""
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
    # typing.Unpack takes no tuple, not even of one.
    return (Union if _is_union(hint) else origin)[opened if len(opened) > 1 else opened[0]]


def substitute(hint: Any, given: Mapping[Any, Any]) -> Any:
    """`hint` with type arguments put in for type variables."""
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(p, p) for p in parameters)] if parameters else hint


def strip_none(hint: Any) -> tuple[Any, bool]:
    """``X | None`` as ``(X, True)``, and any other hint as ``(hint, False)``."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is Literal and None in args and len(args) > 1:
        return Literal[tuple(arg for arg in args if arg is not None)], True
    if _is_union(hint) and types.NoneType in args:
        return Union[tuple(arg for arg in args if arg is not types.NoneType)], True  # noqa: UP007
    return hint, False


def split_variadic(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """``tuple[A, *tuple[B, ...]]`` as ``((A,), B)``, and a tuple without a variadic end as ``(args, None)``."""
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
    """What a union is of; the hint alone where it is none."""
    return typing.get_args(hint) if _is_union(hint) else (hint,)


def is_array(hint: Any) -> bool:
    """Whether the hint is an ``NDArray[...]``, in any spelling of it."""
    return typing.get_origin(hint) is np.ndarray


def scalar_of(hint: Any) -> Any:
    """What stands in the brackets of ``NDArray[...]``; None where nothing does."""
    for arg in typing.get_args(hint):
        if typing.get_origin(arg) is np.dtype:
            scalar = typing.get_args(arg)[0]
            # np.floating[Any], as type checkers know it: its precision is a type argument.
            origin = typing.get_origin(scalar)
            if isinstance(origin, type) and issubclass(origin, np.generic):
                scalar = origin
            return None if scalar is _UNSAID else scalar
    return None


def spell(hint: Any) -> str:
    """How messages spell a hint: as its author would."""
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


# The type variable in NDArray itself, which a hint without brackets still holds.
_UNSAID: Any = None
_UNSAID = scalar_of(plain(NDArray))
