"""numba's decorators, with the types that numba does not declare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numba
from numba import extending

INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of numba's for functions that only compiled code calls."""

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Takes a function for what numba makes of it, which is called alike."""

    def __call__(self, function: F, /) -> F:
        """Decorate."""


# The function that it makes takes no typing context, and gives what the code that it emits computes.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic
register_jitable: Decorator = extending.register_jitable


def overload(function: Callable[..., Any]) -> Decorator:
    """What compiled code calls in place of `function`; parameters may go by other names."""
    decorator: Decorator = extending.overload(function, strict=False)
    return decorator


def inner_njit(fastmath: bool | set[str] = False) -> Decorator:
    """For functions that only compiled code calls."""
    decorator: Decorator = numba.njit(fastmath=fastmath, **INNER)
    return decorator


def vectorize(fastmath: set[str]) -> Decorator:
    """For functions of one element."""
    decorator: Decorator = numba.vectorize(fastmath=fastmath)
    return decorator
