"""What to say where a release of torch lacks a private interface."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from pyops._releases import tested

from ..errors import ExportError

P = ParamSpec("P")
T = TypeVar("T")

USE = f"use {tested('torch')}, with which this version of exporters is tested"


def guarded(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function that reads this private interface raise an error that names it, where it is gone."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def read(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except (AttributeError, ImportError) as error:
                raise ExportError(
                    f"torch {torch.__version__} does not have the private interface {name} any more; {USE}"
                ) from error

        return read

    return decorate
