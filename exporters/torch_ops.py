"""Torch's operators by name."""

from __future__ import annotations

import difflib
import re
from typing import Any

import torch

from ._torch_private import OpOverload, operator_names
from .errors import ExportError

_NAME = re.compile(r"(?P<namespace>\w+)::(?P<name>\w+)(\.(?P<overload>\w+))?")


def find_overload(name: str) -> OpOverload | None:
    """The overload that ``"ns::name"`` (its default one) or ``"ns::name.overload"`` means, if torch has it."""
    matched = _NAME.fullmatch(name)
    if matched is None:
        return None
    return getattr(_packet(matched["namespace"], matched["name"]), matched["overload"] or "default", None)


def overloads(name: Any) -> list[OpOverload]:
    """The overloads that a name means: one for ``"ns::name.overload"``, all for ``"ns::name"``.

    Raises
    ------
    ExportError
        It is no such name, or torch has no such operator.
    """
    matched = _NAME.fullmatch(name) if isinstance(name, str) else None
    if matched is None:
        raise ExportError(
            f'{name!r} is not the name of a torch operator; write a str like "aten::gelu", or "aten::add.Tensor" '
            "for one overload"
        )
    packet = _packet(matched["namespace"], matched["name"])
    if packet is None:
        raise ExportError(f"torch has no operator {name}{_suggestion(matched['namespace'], matched['name'])}")
    known = {item or "default": getattr(packet, item or "default") for item in packet.overloads()}
    if matched["overload"] is None:
        return list(known.values())
    if matched["overload"] not in known:
        raise ExportError(
            f"{matched['namespace']}::{matched['name']} has no overload {matched['overload']!r}; it has "
            f"{', '.join(known)}"
        )
    return [known[matched["overload"]]]


def _packet(namespace: str, name: str) -> Any:
    return getattr(getattr(torch.ops, namespace), name, None)


def _suggestion(namespace: str, name: str) -> str:
    names = operator_names()
    near = difflib.get_close_matches(f"{namespace}::{name}", names, n=3, cutoff=0.75)
    near += sorted(other for other in names if other.partition("::")[2] == name and other not in near)
    if near:
        return f"; near matches: {', '.join(near)}"
    return "; for an operator of your own, register it first (exporters.custom_op, torch.library.custom_op)"
