"""The table of models: for each a name, a family, a package, and a function that makes it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Inputs = tuple[Any, ...] | dict[str, Any]
"""Positional or keyword arguments of a call."""

Made = tuple[torch.nn.Module, Callable[[int], Inputs]]
"""A model, and a function that makes its arguments, given the size that may grow: that of the batch, or of a graph."""


@dataclass(frozen=True)
class Model:
    """A model of the table.

    Attributes
    ----------
    name : str
    family : str
        The heading under which the table lists it.
    package : str
        The PyPI name of the package that it comes from.
    make : callable
        Returns a `Made`, and raises ImportError where the package is not installed.
    """

    name: str
    family: str
    package: str
    make: Callable[[], Made]


table: dict[str, Model] = {}
"""The models by name."""


def model(name: str, family: str, package: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Enter the function that makes a model in the table."""

    def enter(make: Callable[[], Made]) -> Callable[[], Made]:
        assert name not in table, f"two models have the name {name}"
        table[name] = Model(name, family, package, make)
        return make

    return enter


def load() -> dict[str, Model]:
    """Return the table, with the models of every module of `tests.model_coverage.models`."""
    from tests.model_coverage import models, packages  # noqa: F401  # noqa: F401  # noqa: F401  # noqa: F401

    for module in pkgutil.iter_modules(models.__path__, f"{models.__name__}."):
        importlib.import_module(module.name)
    return table
