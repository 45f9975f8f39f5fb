"""Progress bars with rich."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pyops.errors import MissingDependencyError

T = TypeVar("T")


def shown(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """Yield the items while a progress bar advances.

    Raises
    ------
    MissingDependencyError
        rich is not installed.
    """
    try:
        from rich.progress import track
    except ImportError as error:
        raise MissingDependencyError("the progress bar needs rich; pip install rich") from error
    return track(items, description, total)


def shown_if_possible(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """Yield the items, with a progress bar if rich is installed."""
    try:
        return shown(items, description, total)
    except MissingDependencyError:
        return items
