"""The attribute that the hint and the default of a keyword-only parameter stand for."""

from __future__ import annotations

import inspect
import typing
from collections import abc
from typing import Any, Literal

import numpy as np

from .attribute import Attribute, AttributeKind
from .errors import InputError
from .hints import HintError, is_array, spell, strip_none

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
    """The attribute behind a parameter.

    Parameters
    ----------
    default : object
        ``inspect.Parameter.empty`` where there is none.

    Raises
    ------
    HintError
        ONNX has no such attribute, or the default is not of its type.
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
            "an absent attribute takes the default, so that None could never be told from it",
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
    # A Literal of floats is none in typing, and ONNX would round its values.
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
    raise HintError(f"{spell(hint)} is no attribute type of ONNX", f"use {ATTRIBUTE_HINTS}")
