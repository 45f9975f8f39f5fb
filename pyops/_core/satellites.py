"""What the core asks of the satellites that stand on it, which it does not know: `pyops._wiring` enters them here."""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Provider(Protocol):
        """A module or object that declares a domain's ops on request, because there are too many to declare all."""

        def provide(self, name: str) -> Any:
            """Return the op of this name, not yet declared; raise a ModelError that says why if there is none."""


modules: dict[str, Callable[[], Any]] = {}
"""Functions that import the satellites, by the part that each plays: compiler, machine, extensions, filling."""

providers: dict[str, Callable[[], Provider]] = {}
"""Functions that return the provider of a domain. A declared op takes precedence over the provider's of its name."""


def satellite(part: str) -> Any:
    """Import the satellite that plays a part, and return its module."""
    return modules[part]()


def register_provider(domain: str, load: Callable[[], Provider]) -> None:
    """Let a provider declare the ops of a domain, unless the domain has one."""
    providers.setdefault(domain, load)
