"""What TorchScript traces in place of a model: tensors alone as arguments and results, and no call that it would break.

TorchScript's own tracer does not support lists of floats or strings, fails an internal assertion for a bool among
numbers, and silently makes a traced number a constant. Python calls of translated operators are checked for these.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.jit import TracerWarning, is_tracing
from torch.overrides import TorchFunctionMode

from .._lowering.nodes import symbolic_message
from .._torch_private.operators import OpOverload, called_overload, qualified_name, schema_arguments
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
    """

    model: torch.nn.Module
    given: Given

    def __init__(self, model: torch.nn.Module, given: Given) -> None:
        super().__init__()
        own = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
        vars(self).update({name: vars(model)[name] for name in own})
        # Module.__setattr__ would register the model as a submodule.
        vars(self).update(model=model, given=given)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model with other tensors, and return its results as flat tensors."""
        args, kwargs = replace_leaves(self.given, tensors)
        return tuple(_as_tensor(leaf) for leaf in present_leaves(as_dicts(self.model(*args, **kwargs))))

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


class CheckedCalls(TorchFunctionMode):
    """A mode that refuses calls of some operators with arguments that TorchScript would fix or cannot trace.

    aten operators are excluded: the tracer supports all their arguments.
    """

    def __init__(self, targets: Iterable[OpOverload]) -> None:
        super().__init__()
        self._targets = {qualified_name(target) for target in targets if target.namespace != "aten"}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func` if TorchScript can trace its arguments."""
        kwargs = kwargs or {}
        target = called_overload(func) if is_tracing() else None
        if target is not None and qualified_name(target) in self._targets:
            _check(target, args, kwargs)
            numbers = {item.name for item in schema_arguments(target) if "number" in item.type}
            kwargs = {
                name: int(value) if name in numbers and isinstance(value, bool) else value
                for name, value in kwargs.items()
            }
        return func(*args, **kwargs)


def _check(target: OpOverload, args: Any, kwargs: Mapping[str, Any]) -> None:
    declared = schema_arguments(target)
    given = {**dict(zip([item.name for item in declared], args, strict=False)), **kwargs}
    for item in declared:
        if not item.is_tensor and tensor_leaves(given.get(item.name)):
            raise ExportError(
                f"{symbolic_message(qualified_name(target), item.name)}; TorchScript traces every size: where "
                "this one is the same in every run, write int(...) or float(...) around it"
            )
        if given.get(item.name) is not None and ("List[number]" in item.type or "List[str]" in item.type):
            raise ExportError(
                f"{qualified_name(target)}: TorchScript has no lists of floats or strings, as attribute {item.name!r} "
                "is one; leave out dynamo=False"
            )
    if not tensor_leaves(given):
        raise ExportError(
            f"{qualified_name(target)} is called without a tensor, so TorchScript would fix its result as a "
            "constant; leave out dynamo=False"
        )
