"""Reading the type hints of single parameters: type parameters of tensors, and attributes."""

from __future__ import annotations

import inspect
import typing
from collections import abc
from typing import Any, Literal, TypeVar

import numpy as np

from ..errors import InputError
from .attribute import Attribute, AttributeKind
from .dtypes import DType, element_type, expand, spell_scalar
from .hints import HintError, is_array, plain, scalar_of, spell, strip_none, union_members
from .signature import TypeParameter


def type_parameter(hint: Any, own_name: str) -> TypeParameter:
    """Return the type parameter that ``NDArray[...]`` declares.

    Parameters
    ----------
    own_name : str
        The name of the type parameter if the hint is an abstract class, which is not shared with other parameters.

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
            f"{spell(scalar)} is not an element type", f"use {_variable(union_members(scalar))} and NDArray[T]"
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
        raise HintError(f"{spell(scalar)} is not an element type", "write a NumPy scalar type such as np.float32")
    # The types of ml_dtypes are subclasses of np.generic too.
    if not issubclass(scalar, np.generic):
        raise HintError(f"{spell(scalar)} is not a NumPy type", f"write {_numpy_name(scalar)}")
    dtypes = expand(scalar)
    if not dtypes:
        raise HintError(f"ONNX has no element type for {spell(scalar)}", "use one that ONNX has, such as float64")
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
        return HintError(f"{spell(hint)} is not a tensor type", f"put the types inside: {variable} and NDArray[T]")
    if getattr(hint, "__module__", "").partition(".")[0] == "torch":
        return HintError(
            f"torch.{spell(hint)} is torch's, and kernels get NumPy arrays",
            "write NDArray[np.float32], or NDArray[T] of a TypeVar for several types; exporters.custom_op makes "
            "torch's operator of it",
        )
    return HintError(
        f"{spell(hint)} is not a tensor type",
        "annotate inputs as NDArray[...], outputs as that or a tuple or NamedTuple of them; attributes go after `*`",
    )


def _missing_type(spelled: str) -> HintError:
    return HintError(
        f"{spelled} names no element type", "write NDArray[np.float32], or NDArray[np.generic] for an input of any type"
    )


def _variable(members: Any, name: str = "T") -> str:
    scalars = [spell_scalar(member) if _count(member) == 1 else spell(member) for member in members]
    return f'{name} = TypeVar("{name}", {", ".join(scalars)})'


ATTRIBUTE_HINTS = "int, float, str, bool, list[int], list[float], list[str], Literal[...] or np.ndarray"

_LISTS = {list, tuple, abc.Sequence}
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
    if required and nullable:
        raise HintError("an attribute that may be None needs a default", f"write {spell(inner)} | None = None")
    if default is None and not nullable:
        raise HintError("None is not of its type", f"write {spell(inner)} | None = None")
    if nullable and default is not None:
        raise HintError(
            "an absent attribute takes the default, so that a kernel would never receive None",
            f"write {spell(inner)} = {default!r} or {spell(inner)} | None = None",
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
    if origin in _LISTS and args and args[0] in (int, float, str):
        if origin is not tuple or args[1:] == (Ellipsis,):
            return _PLURAL[_SCALARS[args[0]]], {"as_tuple": origin is tuple}
        raise HintError("a list attribute has any length", f"write tuple[{spell(args[0])}, ...]")
    if is_array(hint):
        raise HintError(
            "a keyword-only parameter is an attribute",
            "write np.ndarray for a tensor attribute, or put it before `*` for an input",
        )
    raise HintError(f"{spell(hint)} is not an ONNX attribute type", f"use {ATTRIBUTE_HINTS}")
