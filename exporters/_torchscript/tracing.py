"""Calls of translated operators while TorchScript traces a model.

TorchScript's own tracer takes no lists of floats or strings, ends in an assertion of torch's for a
list with a traced number in it, and makes a constant of a traced number without a word. Python
calls are therefore seen before it, and traced as calls of one operator that takes tensors alone.
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
from .._torch.operators import written
from .._torch_private.operators import OpOverload, called_overload, qualified_name, schema_arguments, schema_returns
from .._torch_private.trees import present_leaves, replaced, tensor_leaves
from ..errors import ExportError

OPERATOR = "pyops_exporters::traced"
"""What a traced graph has instead of a call: the tensors, and the number of the call."""

_current: ContextVar[TracedCalls] = ContextVar("traced calls")


@dataclass
class Call:
    """A call of a torch operator, with its positional and keyword arguments, and what it returned."""

    target: OpOverload
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    outputs: list[torch.Tensor] = field(default_factory=list)


class TracedCalls(TorchFunctionMode):
    """A ``with`` block in which TorchScript traces calls of these operators as `OPERATOR`.

    Operators of torch's own (aten) are left out: torch's C++ code calls them too, and the tracer takes
    all their arguments.
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
                f"{qualified_name(target)} is called without a tensor, and TorchScript makes a constant of what it "
                "returns; leave out dynamo=False"
            )
        self.calls.append(call)
        traced = torch.ops.pyops_exporters.traced(tensor_leaves(call.arguments), len(self.calls) - 1)
        self._results += traced[:1]
        returned = schema_returns(target)
        if len(returned) > 1:
            return tuple(traced)
        return traced if "List" in returned[0] else traced[0]

    def with_results(self, returned: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """What a model returns and a result of every other call; TorchScript drops one that nobody uses."""
        added = [result for result in self._results if not any(result is item for item in returned)]
        self._added = len(added)
        return (*returned, *added)

    def remove_results(self, graph: onnx_ir.Graph) -> None:
        """Take what `with_results` added out of the outputs of the exported graph; its nodes stay."""
        del graph.outputs[len(graph.outputs) - self._added :]

    def _target(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> OpOverload | None:
        """The operator, if it is one of ours and takes these arguments; if not, torch says why."""
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
    """The arguments as ``torch.export`` writes them; a traced number is refused."""
    declared = schema_arguments(target)
    given = dict(zip((item.name for item in declared), args, strict=False)) | dict(kwargs)
    for item in declared:
        if not item.is_tensor and tensor_leaves(given.get(item.name)):
            raise ExportError(
                f"{symbolic_message(qualified_name(target), item.name)}; TorchScript traces every size: where this one "
                "is the same in every run, write int(...) or float(...) around it"
            )
    positional, keywords = written(declared, [given.get(item.name, item.default) for item in declared])
    return tuple(positional), keywords


def _run(given: list[torch.Tensor], number: int) -> list[torch.Tensor]:
    call = _current.get().calls[number]
    args, kwargs = replaced(call.arguments, given)
    call.outputs = present_leaves(call.target(*args, **kwargs))
    return call.outputs


torch.library.define(OPERATOR, "(Tensor[] tensors, int number) -> Tensor[]")
torch.library.impl(OPERATOR, "CompositeImplicitAutograd", _run)
