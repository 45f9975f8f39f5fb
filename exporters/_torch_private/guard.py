"""The error for a private interface of torch that the installed release does not have."""

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
    """Decorate a function to raise ExportError naming the private interface that it uses if torch no longer has it."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def read(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except (AttributeError, ImportError) as error:
                raise ExportError(
                    f"torch {torch.__version__} no longer has the private interface {name}; {USE}"
                ) from error

        return read

    return decorate
