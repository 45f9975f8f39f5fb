"""Lookup of torch's operators by name."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from typing import Any

import torch

from .._torch_private.exporter import own_translation
from .._torch_private.operators import Argument, OpOverload, OpOverloadPacket, can_decompose, operator_names
from ..errors import ExportError, NoOperatorError

_NAME = re.compile(r"(?P<namespace>\w*)::(?P<name>\w+)(\.(?P<overload>\w+))?")

# Only values of these types can equal a default; comparing a tensor or a graph value would not give a bool.
_CONSTANTS = (type(None), bool, int, float, str, list)


def find_overload(name: str) -> OpOverload | None:
    """Return the overload named ``"ns::name"`` (the default one) or ``"ns::name.overload"``, or None."""
    namespace, _, rest = name.partition("::")
    name, _, overload = rest.partition(".")
    found = getattr(_packet(namespace, name), overload or "default", None)
    return found if isinstance(found, OpOverload) else None


def overloads(name: Any) -> list[OpOverload]:
    """Return the overloads that a name means: one for ``"ns::name.overload"``, all for ``"ns::name"``.

    The default namespace is aten, as for ``torch.onnx.register_custom_op_symbolic``.

    Raises
    ------
    NoOperatorError
        torch has no such operator.
    ExportError
        `name` is not a name of this form.
    """
    matched = _NAME.fullmatch(name) if isinstance(name, str) else None
    if matched is None:
        raise ExportError(
            f'{name!r} is not the name of a torch operator; write a str like "aten::gelu", or "aten::add.Tensor" '
            "for one overload"
        )
    namespace = matched["namespace"] or "aten"
    packet = _packet(namespace, matched["name"])
    if packet is None:
        raise NoOperatorError(
            f"torch {torch.__version__} has no operator {name}{_suggestion(namespace, matched['name'])}"
        )
    known = {item or "default": getattr(packet, item or "default") for item in packet.overloads()}
    if matched["overload"] is None:
        return list(known.values())
    if matched["overload"] not in known:
        raise NoOperatorError(
            f"{namespace}::{matched['name']} has no overload {matched['overload']!r}; it has {', '.join(known)}"
        )
    return [known[matched["overload"]]]


def is_native(target: OpOverload) -> bool:
    """Return whether torch's exporter translates or decomposes an operator."""
    return can_decompose(target) or target in _decompositions() or own_translation(target) is not None


def as_exported(declared: Sequence[Argument], values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments as ``torch.export`` writes a call.

    Values that equal their defaults are omitted where possible.

    Parameters
    ----------
    values : sequence
        One value per declared argument.
    """
    default = [
        item.has_default and type(value) in _CONSTANTS and value == item.default
        for item, value in zip(declared, values, strict=True)
    ]
    positional = [index for index, item in enumerate(declared) if not item.keyword_only]
    while positional and default[positional[-1]]:
        positional.pop()
    keywords = [index for index, item in enumerate(declared) if item.keyword_only and not default[index]]
    return [values[index] for index in positional], {declared[index].name: values[index] for index in keywords}


@functools.cache
def _decompositions() -> frozenset[object]:
    # Cached because reading the table searches all of torch, for operators that can_decompose knows anyway.
    return frozenset(torch.export.default_decompositions())


def _packet(namespace: str, name: str) -> OpOverloadPacket | None:
    found = getattr(getattr(torch.ops, namespace), name, None)
    return found if isinstance(found, OpOverloadPacket) else None  # a namespace has other attributes, too


def _suggestion(namespace: str, name: str) -> str:
    names = operator_names()
    near = difflib.get_close_matches(f"{namespace}::{name}", names, n=3, cutoff=0.75)
    near += sorted(other for other in names if other.partition("::")[2] == name and other not in near)
    if near:
        return f"; near matches: {', '.join(near)}"
    return "; if it is an operator of your own, register it first (exporters.custom_op, torch.library.custom_op)"
