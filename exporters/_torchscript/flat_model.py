"""A model as TorchScript's tracer takes it: with tensors alone for arguments and results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.jit import TracerWarning

from .._torch_private.trees import as_dicts, present_leaves, replaced
from ..errors import ExportError

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


class FlatModel(torch.nn.Module):
    """Takes those of a model's arguments that are inputs, and returns the tensors among its results.

    The model itself is called, with its hooks. What it consists of is this module's own, so that TorchScript's names
    for its parameters and nodes are those of the model.

    Parameters
    ----------
    given
        The example arguments; those that are no inputs stay as they are.
    is_input : callable
        Tells of each leaf of the arguments whether it is an input.
    finish : callable
        Returns what TorchScript shall see for a list of results.
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
        # Not as a submodule, which it would be for Module's own way of setting attributes.
        vars(self).update(model=model, given=given, is_input=is_input, finish=finish)

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model."""
        args, kwargs = replaced(self.given, values, self.is_input)
        return self.finish([_as_tensor(leaf) for leaf in present_leaves(as_dicts(self.model(*args, **kwargs)))])

    def train(self, mode: bool = True) -> FlatModel:
        """Set the mode of both."""
        self.model.train(mode)
        self.training = mode
        return self


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    try:
        with warnings.catch_warnings():
            # That it is a constant of the trace, which a number is.
            warnings.simplefilter("ignore", TracerWarning)
            return torch.tensor(leaf)
    except (TypeError, ValueError, RuntimeError):
        raise ExportError(
            f"the model returns a {type(leaf).__name__}; the TorchScript exporter takes tensors and numbers, in "
            "tuples, lists and dicts: return those, or leave it out"
        ) from None
