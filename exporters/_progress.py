"""Progress bars with rich."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pyops.errors import MissingDependencyError

T = TypeVar("T")


def with_progress(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
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


def with_progress_if_installed(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """Yield the items, with a progress bar if rich is installed."""
    try:
        return with_progress(items, description, total)
    except MissingDependencyError:
        return items
