"""torch's operators: by name, with their schemas and properties."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import operator_schemas

from ...errors import ExportError, NoOperatorError
from .patching import USE, guarded

try:
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
except ImportError as error:
    raise ImportError(f"torch {torch.__version__} lacks a private interface ({error}); {USE}") from error


_NAME = re.compile(r"(?P<namespace>\w*)::(?P<name>\w+)(\.(?P<overload>\w+))?")


@dataclass(frozen=True)
class Argument:
    """An argument of a torch operator, with its schema type (``List[Tensor]``) and its default, if any."""

    name: str
    type: str
    keyword_only: bool
    has_default: bool
    default: Any

    @property
    def is_tensor(self) -> bool:
        """Return whether it is a tensor, an optional tensor, or a list of tensors."""
        return "Tensor" in self.type

    @property
    def is_dtype(self) -> bool:
        """Return whether it is a ``torch.dtype``."""
        return "ScalarType" in self.type

    @property
    def is_tensor_list(self) -> bool:
        """Return whether it is a list of tensors."""
        return self.is_tensor and "List" in self.type


def find_overload(name: str) -> OpOverload | None:
    """Return the overload named ``"ns::name"`` (the default one) or ``"ns::name.overload"``, or None."""
    name, _, overload = name.partition(".")
    found = getattr(packet(name), overload or "default", None)
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
    operator = f"{matched['namespace'] or 'aten'}::{matched['name']}"
    found = packet(operator)
    if found is None:
        raise NoOperatorError(f"torch {torch.__version__} has no operator {name}{_suggestion(operator)}")
    known = {item or "default": getattr(found, item or "default") for item in found.overloads()}
    if matched["overload"] is None:
        return list(known.values())
    if matched["overload"] not in known:
        raise NoOperatorError(f"{operator} has no overload {matched['overload']!r}; it has {', '.join(known)}")
    return [known[matched["overload"]]]


def packet(name: str) -> OpOverloadPacket | None:
    """Return all overloads of ``"ns::name"``, or None if torch has no such operator."""
    namespace, _, name = name.partition("::")
    found = getattr(getattr(torch.ops, namespace), name, None)
    return found if isinstance(found, OpOverloadPacket) else None  # a namespace has other attributes, too


def _suggestion(operator: str) -> str:
    names, ending = operator_names(), operator[operator.index("::") :]
    near = difflib.get_close_matches(operator, names, n=3, cutoff=0.75)
    near += sorted(other for other in names if other.endswith(ending) and other not in near)
    if near:
        return f"; near matches: {', '.join(near)}"
    return "; if it is an operator of your own, register it first (exporters.custom_op, torch.library.custom_op)"


# Only values of these types can equal a default; comparing a tensor or a graph value would not give a bool.
_CONSTANTS = (type(None), bool, int, float, str, list)


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


def qualified_name(overload: OpOverload) -> str:
    """Return ``"ns::name.overload"``, or ``"ns::name"`` for the default overload."""
    return str(overload.name())


def called_overload(function: Any) -> OpOverload | None:
    """Return the overload that a call of ``torch.ops.ns.name`` or one of its overloads runs, or None if unknown."""
    if isinstance(function, OpOverloadPacket) and len(function.overloads()) == 1:
        function = getattr(function, function.overloads()[0])
    return function if isinstance(function, OpOverload) else None


@guarded("OpOverload._schema.arguments")
def schema_arguments(overload: OpOverload) -> tuple[Argument, ...]:
    """Return the arguments in the schema of an operator, in order."""
    return tuple(
        Argument(item.name, str(item.real_type), item.kwarg_only, item.has_default_value(), item.default_value)
        for item in overload._schema.arguments
    )


@guarded("OpOverload._schema.returns")
def schema_returns(overload: OpOverload) -> tuple[str, ...]:
    """Return the types of an operator's results: ``("Tensor", "Tensor")``."""
    return tuple(str(item.type) for item in overload._schema.returns)


@guarded("OpOverload._schema.is_mutable")
def is_mutable(overload: OpOverload) -> bool:
    """Return whether the operator writes to an argument, as in-place and ``out`` variants do."""
    return bool(overload._schema.is_mutable)


@guarded("OpOverload._schema.arguments")
def aliased_names(overload: OpOverload) -> list[str]:
    """Return the names of the arguments that the operator writes to, or returns a view of."""
    return [item.name for item in overload._schema.arguments if item.alias_info is not None]


def is_random(overload: OpOverload) -> bool:
    """Return whether the operator's results depend on the state of a random generator."""
    return torch.Tag.nondeterministic_seeded in overload.tags


@guarded("OpOverload._can_decompose")
def can_decompose(overload: OpOverload) -> bool:
    """Return whether torch decomposes the operator by itself, whatever decomposition table is given."""
    return bool(overload._can_decompose())


@guarded("OpOverload._schema")
def describe(overload: OpOverload) -> str:
    """Return the schema as torch writes it: ``aten::gelu(Tensor self, *, str approximate="none") -> Tensor``."""
    return str(overload._schema)


@guarded("torch.fx.operator_schemas._SCHEMA_TO_SIGNATURE_CACHE")
def forget_schema(name: str) -> None:
    """Remove ``ns::name`` from torch's cache of schemas, which torch does not do when the operator is replaced."""
    operator_schemas._SCHEMA_TO_SIGNATURE_CACHE.pop((name, ""), None)


@guarded("OpOverload._op")
def call_instead(overload: OpOverload, function: Callable[..., Any]) -> None:
    """Make an overload that torch has destroyed, and its packet, call a function; otherwise they call freed memory."""
    for caller in (overload, overload._overloadpacket):
        assert callable(caller._op)
        caller._op = function


@guarded("OpOverload._op")
def explain_mismatches(overload: OpOverload, explain: Callable[[], Exception]) -> None:
    """Make an overload, and its packet, raise another error where torch rejects a call that does not match the schema.

    Parameters
    ----------
    explain : callable
        Makes the error; torch's own is its cause.
    """

    def explained(call: Callable[..., Any]) -> Callable[..., Any]:
        def explaining(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except RuntimeError as error:
                if "Declaration: " not in str(error):
                    raise
                raise explain() from error

        return explaining

    for caller in (overload, overload._overloadpacket):
        caller._op = explained(caller._op)


@guarded("torch._check")
def promise(condition: Any) -> None:
    """Tell the running capture that a condition on sizes or indices known only at run time holds."""
    torch._check(condition)


@guarded("torch._C._dispatch_get_all_op_names")
def operator_names() -> set[str]:
    """Return ``"ns::name"`` of every operator that torch has."""
    return {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
