"""What torch knows of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import operator_schemas

from .guard import USE, guarded

try:
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
except ImportError as error:
    raise ImportError(f"torch {torch.__version__} lacks a private interface ({error}); {USE}") from error


@dataclass(frozen=True)
class Argument:
    """An argument of a torch operator: its schema type (``List[Tensor]``), and its default if it has one."""

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
    def is_dtype(self) -> bool:
        """Whether it is a ``torch.dtype``."""
        return "ScalarType" in self.type

    @property
    def is_tensor_list(self) -> bool:
        """Whether it is a list of tensors."""
        return self.is_tensor and "List" in self.type


def qualified_name(overload: OpOverload) -> str:
    """``ns::name.overload``, or ``ns::name`` of the default overload."""
    return str(overload.name())


def called_overload(function: Any) -> OpOverload | None:
    """The overload that calling ``torch.ops.ns.name`` or one of its overloads calls, if that is known."""
    if isinstance(function, OpOverloadPacket) and len(function.overloads()) == 1:
        function = getattr(function, function.overloads()[0])
    return function if isinstance(function, OpOverload) else None


@guarded("OpOverload._schema.arguments")
def schema_arguments(overload: OpOverload) -> tuple[Argument, ...]:
    """The arguments in the schema of an operator, in order."""
    return tuple(
        Argument(item.name, str(item.real_type), item.kwarg_only, item.has_default_value(), item.default_value)
        for item in overload._schema.arguments
    )


@guarded("OpOverload._schema.returns")
def schema_returns(overload: OpOverload) -> tuple[str, ...]:
    """The types of what an operator returns: ``("Tensor", "Tensor")``."""
    return tuple(str(item.type) for item in overload._schema.returns)


@guarded("OpOverload._schema.is_mutable")
def is_mutable(overload: OpOverload) -> bool:
    """Whether the operator writes to an argument, as in-place and ``out`` variants do."""
    return bool(overload._schema.is_mutable)


def is_random(overload: OpOverload) -> bool:
    """Whether what the operator returns depends on the state of a random generator."""
    return torch.Tag.nondeterministic_seeded in overload.tags


@guarded("OpOverload._can_decompose")
def can_decompose(overload: OpOverload) -> bool:
    """Whether torch itself makes the operator of others, whatever the decompositions that it is given."""
    return bool(overload._can_decompose())


@guarded("OpOverload._schema")
def spell(overload: OpOverload) -> str:
    """The schema as torch writes it: ``aten::gelu(Tensor self, *, str approximate="none") -> Tensor``."""
    return str(overload._schema)


@guarded("torch.fx.operator_schemas._SCHEMA_TO_SIGNATURE_CACHE")
def forget_schema(name: str) -> None:
    """Drop what torch remembers of the schema of ``ns::name``, which it does not when that is replaced."""
    operator_schemas._SCHEMA_TO_SIGNATURE_CACHE.pop((name, ""), None)


@guarded("OpOverload._op")
def call_instead(overload: OpOverload, function: Callable[..., Any]) -> None:
    """Let an overload that torch has destroyed, and its packet, call a function: what they call is freed memory."""
    for caller in (overload, overload._overloadpacket):
        assert callable(caller._op)
        caller._op = function


@guarded("OpOverload._op")
def explain_refusals(overload: OpOverload, refusal: Callable[[], Exception]) -> None:
    """Let an overload, and its packet, raise an error of ours where torch refuses a call that does not fit the schema.

    Parameters
    ----------
    refusal : callable
        Makes the error; torch's own is its cause.
    """

    def explained(call: Callable[..., Any]) -> Callable[..., Any]:
        def explaining(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except RuntimeError as error:
                if "Declaration: " not in str(error):
                    raise
                raise refusal() from error

        return explaining

    for caller in (overload, overload._overloadpacket):
        caller._op = explained(caller._op)


@guarded("torch._check")
def promise(condition: Any) -> None:
    """Say what holds of sizes and indices that only a run knows, to a capture that goes on."""
    torch._check(condition)


@guarded("torch._C._dispatch_get_all_op_names")
def operator_names() -> set[str]:
    """``ns::name`` of every operator that torch has."""
    return {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
