"""Interception of the calls of translated operators while TorchScript traces a model.

TorchScript's own tracer does not support lists of floats or strings, fails an internal assertion for a list with a
traced number, and silently makes a traced number a constant. Python calls are therefore intercepted, and traced as
calls of one operator that takes only tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import onnx_ir
import torch
from torch.jit import is_tracing
from torch.overrides import TorchFunctionMode

from .._lowering.nodes import symbolic_message
from .._torch.operators import as_exported
from .._torch_private.operators import OpOverload, called_overload, qualified_name, schema_arguments, schema_returns
from .._torch_private.trees import present_leaves, replace_leaves, tensor_leaves
from ..errors import ExportError

OPERATOR = "pyops_exporters::traced"
"""The operator that replaces a call in a traced graph; it takes the call's tensors and its index."""

_current: ContextVar[TracedCalls] = ContextVar("traced calls")


@dataclass
class Call:
    """A call of a torch operator: its positional and keyword arguments, and its results."""

    target: OpOverload
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    outputs: list[torch.Tensor] = field(default_factory=list)


class TracedCalls(TorchFunctionMode):
    """A mode in which TorchScript traces calls of some operators as `OPERATOR`.

    aten operators are excluded: torch's C++ code calls them too, and the tracer supports all their arguments.
    """

    def __init__(self, targets: Iterable[OpOverload]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._results: list[torch.Tensor] = []
        self._added = 0
        self._targets = {qualified_name(target) for target in targets if target.namespace != "aten"}

    def __enter__(self) -> TracedCalls:
        self._token = _current.set(self)
        super().__enter__()  # type: ignore[no-untyped-call] # torch has no types for it
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call] # nor for this
        _current.reset(self._token)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Trace a call of `func`."""
        kwargs = kwargs or {}
        target = self._target(func, args, kwargs) if is_tracing() else None
        if target is None:
            return func(*args, **kwargs)
        call = Call(target, _arguments(target, args, kwargs))
        if not tensor_leaves(call.arguments):
            raise ExportError(
                f"{qualified_name(target)} is called without a tensor, so TorchScript would fix its result as a "
                "constant; leave out dynamo=False"
            )
        self.calls.append(call)
        traced = torch.ops.pyops_exporters.traced(tensor_leaves(call.arguments), len(self.calls) - 1)
        self._results += traced[:1]
        returned = schema_returns(target)
        if len(returned) > 1:
            return tuple(traced)
        return traced if "List" in returned[0] else traced[0]

    def with_results(self, returned: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the model's results and one result of every other call, since TorchScript drops unused calls."""
        added = [result for result in self._results if not any(result is item for item in returned)]
        self._added = len(added)
        return (*returned, *added)

    def remove_results(self, graph: onnx_ir.Graph) -> None:
        """Remove the outputs that `with_results` added from the exported graph; its nodes stay."""
        del graph.outputs[len(graph.outputs) - self._added :]

    def _target(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> OpOverload | None:
        """Return the overload if it is one of ours and accepts these arguments; otherwise torch reports the error."""
        target = called_overload(func)
        if target is None or qualified_name(target) not in self._targets:
            return None
        declared = schema_arguments(target)
        names = {item.name for item in declared}
        given = {item.name for item, _ in zip(declared, args, strict=False)} | set(kwargs)
        required = {item.name for item in declared if not item.has_default}
        return target if len(args) <= len(declared) and required <= given <= names else None


def _arguments(
    target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments as ``torch.export`` writes them.

    Raises
    ------
    ExportError
        A traced number is among them.
    """
    declared = schema_arguments(target)
    given = dict(zip((item.name for item in declared), args, strict=False)) | dict(kwargs)
    for item in declared:
        if not item.is_tensor and tensor_leaves(given.get(item.name)):
            raise ExportError(
                f"{symbolic_message(qualified_name(target), item.name)}; TorchScript traces every size: where this one "
                "is the same in every run, write int(...) or float(...) around it"
            )
    positional, keywords = as_exported(declared, [given.get(item.name, item.default) for item in declared])
    return tuple(positional), keywords


def _run(given: list[torch.Tensor], number: int) -> list[torch.Tensor]:
    call = _current.get().calls[number]
    args, kwargs = replace_leaves(call.arguments, given)
    call.outputs = present_leaves(call.target(*args, **kwargs))
    return call.outputs


torch.library.define(OPERATOR, "(Tensor[] tensors, int number) -> Tensor[]")
torch.library.impl(OPERATOR, "CompositeImplicitAutograd", _run)
