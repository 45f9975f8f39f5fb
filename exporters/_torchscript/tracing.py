"""What TorchScript traces in place of a model: tensors as arguments and results, and one operator for our calls.

TorchScript's own tracer does not support lists of floats or strings, fails an internal assertion for a list with a
traced number, and silently makes a traced number a constant. Python calls of translated operators are therefore
intercepted, and traced as calls of one operator that takes only tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import onnx_ir
import torch
from torch.jit import TracerWarning, is_tracing
from torch.overrides import TorchFunctionMode

from .._lowering.nodes import symbolic_message
from .._torch.operators import as_exported
from .._torch_private.operators import OpOverload, called_overload, qualified_name, schema_arguments, schema_returns
from .._torch_private.trees import as_dicts, present_leaves, replace_leaves, tensor_leaves
from ..errors import ExportError

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


class FlatModel(torch.nn.Module):
    """A module that takes the tensors of a model's arguments, and returns flat tensors.

    It calls the model with its hooks. It shares the model's parameters, buffers and submodules, so that TorchScript
    names parameters and nodes as in the model itself.

    Parameters
    ----------
    given
        The example arguments; all but tensors keep these values.
    finish : callable
        Returns the outputs that TorchScript traces, given the model's results.
    """

    model: torch.nn.Module
    given: Given
    finish: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]

    def __init__(
        self,
        model: torch.nn.Module,
        given: Given,
        finish: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]],
    ) -> None:
        super().__init__()
        own = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
        vars(self).update({name: vars(model)[name] for name in own})
        # Not by Module.__setattr__, which would register the model as a submodule.
        vars(self).update(model=model, given=given, finish=finish)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model with other tensors, and return its results as flat tensors."""
        args, kwargs = replace_leaves(self.given, tensors)
        return self.finish([_as_tensor(leaf) for leaf in present_leaves(as_dicts(self.model(*args, **kwargs)))])

    def train(self, mode: bool = True) -> FlatModel:
        """Set the training mode of the module and of the model."""
        self.model.train(mode)
        self.training = mode
        return self


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, (int, float, complex)):
        with warnings.catch_warnings():
            # The tracer warns that the number becomes a constant.
            warnings.simplefilter("ignore", TracerWarning)
            return torch.tensor(leaf)
    raise ExportError(
        f"the model returns a {type(leaf).__name__}; the TorchScript exporter takes tensors and numbers, in "
        "tuples, lists and dicts: return those, or leave it out"
    )


OPERATOR = "pyops_exporters::traced"
"""The operator that replaces a call in a traced graph; it takes the call's tensors and its index."""

_current: ContextVar[TracedCalls] = ContextVar("traced calls")


@dataclass
class Call:
    """A call of a torch operator: its positional and keyword arguments, and its results."""

    target: OpOverload
    arguments: tuple[Sequence[Any], dict[str, Any]]
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
        target = called_overload(func) if is_tracing() else None
        if target is None or qualified_name(target) not in self._targets:
            return func(*args, **kwargs)
        declared = schema_arguments(target)
        given = {**dict(zip([item.name for item in declared], args, strict=False)), **kwargs}
        required = {item.name for item in declared if not item.has_default}
        if len(args) > len(declared) or not required <= given.keys() <= {item.name for item in declared}:
            return func(*args, **kwargs)  # torch reports the error
        for item in declared:
            if not item.is_tensor and tensor_leaves(given.get(item.name)):
                raise ExportError(
                    f"{symbolic_message(qualified_name(target), item.name)}; TorchScript traces every size: if "
                    "this one is the same in every run, write int(...) or float(...) around it"
                )
        arguments = as_exported(declared, [given.get(item.name, item.default) for item in declared])
        tensors = tensor_leaves(arguments)
        if not tensors:
            raise ExportError(
                f"{qualified_name(target)} is called without a tensor, so TorchScript would fix its result as a "
                "constant; leave out dynamo=False"
            )
        self.calls.append(Call(target, arguments))
        traced = torch.ops.pyops_exporters.traced(tensors, len(self.calls) - 1)
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


def _run(given: list[torch.Tensor], number: int) -> list[torch.Tensor]:
    call = _current.get().calls[number]
    args, kwargs = replace_leaves(call.arguments, given)
    call.outputs = present_leaves(call.target(*args, **kwargs))
    return call.outputs


torch.library.define(OPERATOR, "(Tensor[] tensors, int number) -> Tensor[]")
torch.library.impl(OPERATOR, "CompositeImplicitAutograd", _run)
