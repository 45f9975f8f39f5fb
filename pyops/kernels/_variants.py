"""Ops that differ in a few words, made of one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def variant(name: str, /, **words: str) -> Callable[[F], F]:
    """Decorator: give a function the name of one of the ops that it makes, and its docstring the words of that one."""

    def named(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = str(function.__doc__).format(**words)
        return function

    return named
