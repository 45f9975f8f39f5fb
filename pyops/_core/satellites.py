"""What the core asks of the satellites that stand on it, which it does not know: `pyops._wiring` enters them here."""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

modules: dict[str, Callable[[], Any]] = {}
"""Functions that import the satellites, by the part that each plays: bodies, compiler, machine, extensions, filling."""

providers: dict[str, Callable[[], Any]] = {}
"""Functions that return the provider of a domain, which declares ops on request, as they are too many to declare all.

Its `provide` returns the op of a name, or raises a `ModelError` that says why there is none. Declared ops come first.
"""

makers: dict[str, Callable[[], Any]] = {}
"""Functions that import what makes the things in pickles, by the names that pickles have for these."""


def satellite(part: str) -> Any:
    """Import the satellite that plays a part, and return its module."""
    return modules[part]()


def register_provider(domain: str, load: Callable[[], Any]) -> None:
    """Let a provider declare the ops of a domain, unless the domain has one."""
    providers.setdefault(domain, load)
