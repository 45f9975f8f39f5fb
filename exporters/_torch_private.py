"""The private interfaces of torch that the exporters need, because torch has no public ones.

Nothing else in this package touches a private name of torch. Where a torch release renames one,
the error says so, and so does the test of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload
from torch.fx import operator_schemas
from torch.utils import _pytree

from .errors import ExportError

__all__ = [
    "Argument",
    "CustomOpDef",
    "OpOverload",
    "clone_tensors",
    "flatten",
    "forget_schema",
    "is_mutable",
    "operator_names",
    "qualified_name",
    "schema_arguments",
    "schema_returns",
    "spell",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Argument:
    """An argument of a torch operator: its schema type (``Tensor[]``), and its default if it has one."""

    name: str
    type: str
    keyword_only: bool
    has_default: bool
    default: Any

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, an optional tensor, or a list of tensors."""
        return "Tensor" in self.type

    @property
    def is_tensor_list(self) -> bool:
        """Whether it is a list of tensors."""
        return self.is_tensor and "List" in self.type


def qualified_name(overload: OpOverload) -> str:
    """``ns::name.overload``, or ``ns::name`` of the default overload."""
    return _guarded("OpOverload.name", lambda: str(overload.name()))


def schema_arguments(overload: OpOverload) -> tuple[Argument, ...]:
    """The arguments in the schema of an operator, in order."""
    return _guarded(
        "OpOverload._schema.arguments",
        lambda: tuple(
            Argument(item.name, str(item.type), item.kwarg_only, item.has_default_value(), item.default_value)
            for item in overload._schema.arguments
        ),
    )


def schema_returns(overload: OpOverload) -> tuple[str, ...]:
    """The types of what an operator returns: ``("Tensor", "Tensor")``."""
    return _guarded("OpOverload._schema.returns", lambda: tuple(str(item.type) for item in overload._schema.returns))


def is_mutable(overload: OpOverload) -> bool:
    """Whether the operator writes to an argument, as in-place and ``out`` variants do."""
    return _guarded("OpOverload._schema.is_mutable", lambda: bool(overload._schema.is_mutable))


def spell(overload: OpOverload) -> str:
    """The schema as torch writes it: ``aten::gelu(Tensor self, *, str approximate="none") -> Tensor``."""
    return _guarded("OpOverload._schema", lambda: str(overload._schema))


def forget_schema(name: str) -> None:
    """Drop what torch remembers of the schema of ``ns::name``, which it does not when that is replaced."""
    _guarded(
        "torch.fx.operator_schemas._SCHEMA_TO_SIGNATURE_CACHE",
        lambda: operator_schemas._SCHEMA_TO_SIGNATURE_CACHE.pop((name, ""), None),
    )


def operator_names() -> set[str]:
    """``ns::name`` of every operator that torch has."""
    return _guarded(
        "torch._C._dispatch_get_all_op_names",
        lambda: {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()},
    )


def flatten(tree: Any) -> list[Any]:
    """The leaves of nested tuples, lists, dicts and registered classes, in the order of torch.export."""
    return _guarded("torch.utils._pytree.tree_leaves", lambda: _pytree.tree_leaves(tree))


def clone_tensors(tree: Any) -> Any:
    """The same structure with every tensor cloned."""
    return _guarded(
        "torch.utils._pytree.tree_map_only",
        lambda: _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), tree),
    )


def _guarded(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except AttributeError as error:
        raise ExportError(
            f"torch {torch.__version__} does not have the private interface {name} any more; "
            "use torch 2.13, which this version of exporters was written for"
        ) from error
