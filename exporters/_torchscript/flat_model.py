"""A wrapper that presents a model to TorchScript's tracer with only tensors as arguments and results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.jit import TracerWarning

from .._torch_private.trees import as_dicts, present_leaves, replace_leaves
from ..errors import ExportError

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


class FlatModel(torch.nn.Module):
    """A module that takes the leaves of a model's arguments that are inputs, and returns flat tensors.

    It calls the model with its hooks. It shares the model's parameters, buffers and submodules, so that TorchScript
    names parameters and nodes as in the model itself.

    Parameters
    ----------
    given
        The example arguments; leaves that are not inputs keep these values.
    is_input : callable
        Returns whether a leaf of the arguments is an input.
    finish : callable
        Returns the outputs that TorchScript traces, given the model's results.
    """

    model: torch.nn.Module
    given: Given
    is_input: Callable[[Any], bool]
    finish: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]

    def __init__(
        self,
        model: torch.nn.Module,
        given: Given,
        is_input: Callable[[Any], bool],
        finish: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]],
    ) -> None:
        super().__init__()
        own = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
        vars(self).update({name: vars(model)[name] for name in own})
        # Module.__setattr__ would register the model as a submodule.
        vars(self).update(model=model, given=given, is_input=is_input, finish=finish)

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model with `values` as its inputs, and return its results as flat tensors."""
        args, kwargs = replace_leaves(self.given, values, self.is_input)
        return self.finish([_as_tensor(leaf) for leaf in present_leaves(as_dicts(self.model(*args, **kwargs)))])

    def train(self, mode: bool = True) -> FlatModel:
        """Set the training mode of the module and of the model."""
        self.model.train(mode)
        self.training = mode
        return self


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    try:
        with warnings.catch_warnings():
            # The tracer warns that the number becomes a constant.
            warnings.simplefilter("ignore", TracerWarning)
            return torch.tensor(leaf)
    except (TypeError, ValueError, RuntimeError):
        raise ExportError(
            f"the model returns a {type(leaf).__name__}; the TorchScript exporter takes tensors and numbers, in "
            "tuples, lists and dicts: return those, or leave it out"
        ) from None
