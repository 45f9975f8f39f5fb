"""What TorchScript traces in place of a model: tensors as arguments and results, and one operator for our calls.

TorchScript's own tracer does not support lists of floats or strings, fails an internal assertion for a list with a
traced number, and silently makes a traced number a constant. Python calls of translated operators are therefore
intercepted, and traced as calls of one operator that takes only tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.jit import is_tracing
from torch.overrides import TorchFunctionMode

from .._lowering.node_emission import symbolic_message
from .._torch.private.operators import OpOverload, as_exported, called_overload, qualified_name, schema_arguments
from .._torch.private.trees import as_dicts, is_tensor, present_leaves, replace_leaves, tensor_leaves
from ..errors import ExportError


def flat_model(model: torch.nn.Module, forward: Callable[..., tuple[torch.Tensor, ...]]) -> torch.nn.Module:
    """Return a module with the parameters, buffers and submodules of a model, and another forward.

    TorchScript therefore names parameters and nodes as in the model itself. The forward calls the model with its hooks.
    """
    shared = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
    flat = torch.nn.Module()
    vars(flat).update({name: vars(model)[name] for name in shared}, forward=forward, train=model.train)
    return flat


def flat_results(result: Any) -> list[torch.Tensor]:
    """Return what a model returns as tensors.

    Raises
    ------
    ExportError
        There is something other than tensors and numbers.
    """
    leaves = present_leaves(as_dicts(result))
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, int, float, complex)):
            raise ExportError(
                f"the model returns a {type(leaf).__name__}; the TorchScript exporter takes tensors and numbers, in "
                "tuples, lists and dicts: return those, or leave it out"
            )
    return [leaf if is_tensor(leaf) else torch.asarray(leaf) for leaf in leaves]


@dataclass
class Call:
    """A call of a torch operator: its positional and keyword arguments, and its result if it was run."""

    target: OpOverload
    arguments: tuple[Sequence[Any], dict[str, Any]]
    result: Any = None

    @property
    def outputs(self) -> list[torch.Tensor]:
        """Return the tensors of the result."""
        return present_leaves(self.result)


class TracedCalls(TorchFunctionMode):
    """A mode in which TorchScript traces calls of some operators as `OPERATOR`.

    aten operators are excluded: torch's C++ code calls them too, and the tracer supports all their arguments.
    """

    def __init__(self, targets: Iterable[OpOverload]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.unused: list[torch.Tensor] = []
        self._targets = {qualified_name(target) for target in targets if target.namespace != "aten"}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Trace a call of `func`."""
        kwargs = kwargs or {}
        target = called_overload(func) if is_tracing() else None
        if target is None or qualified_name(target) not in self._targets:
            return func(*args, **kwargs)
        declared = schema_arguments(target)
        given = {item.name: item.default for item in declared if item.has_default}
        given |= {**dict(zip([item.name for item in declared], args, strict=False)), **kwargs}
        if len(args) > len(declared) or given.keys() != {item.name for item in declared}:
            return func(*args, **kwargs)  # torch reports the error
        for item in declared:
            if not item.is_tensor and tensor_leaves(given[item.name]):
                raise ExportError(
                    f"{symbolic_message(qualified_name(target), item.name)}; TorchScript traces every size: if "
                    "this one is the same in every run, write int(...) or float(...) around it"
                )
        call = Call(target, as_exported(declared, [given[item.name] for item in declared]))
        self.calls.append(call)
        _started.append(call)
        torch.ops.pyops_exporters.traced(tensor_leaves(call.arguments), len(self.calls) - 1)
        return call.result

    def with_unused(self, returned: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the model's results and one result of every other call, since TorchScript drops unused calls."""
        results = [call.outputs[0] for call in self.calls if call.outputs]
        self.unused = [result for result in results if not any(result is item for item in returned)]
        return (*returned, *self.unused)


OPERATOR = "pyops_exporters::traced"
"""The operator that replaces a call in a traced graph; it takes the call's tensors and its index."""

_started: list[Call] = []  # and not run yet


def _run(given: list[torch.Tensor], number: int) -> list[torch.Tensor]:
    call = _started.pop()
    args, kwargs = replace_leaves(call.arguments, given)
    call.result = call.target(*args, **kwargs)
    return call.outputs


_library = torch.library.Library("pyops_exporters", "FRAGMENT")
# Conservative, because TorchScript computes a call without tensors otherwise, and makes its result a constant.
_library.define("traced(Tensor[] tensors, int number) -> Tensor[]", "CONSERVATIVE")
_library.impl("traced", _run, "CompositeImplicitAutograd")
