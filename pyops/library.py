"""The kernel library's own domain: an op of it is declared when a model or an export asks for it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .op import Op

DOMAIN = "pyops"


class Library:
    """Provides the ops of `pyops.kernels`."""

    def provide(self, name: str) -> Op[..., Any] | None:
        """The op of this name; None if there is none."""
        return _ops().get(name)

    def refusal(self, name: str) -> str:
        """Why there is none of this name."""
        near = difflib.get_close_matches(name, _ops(), n=1)
        return f"pyops.kernels has no op {name}" + (f"; did you mean {DOMAIN}::{near[0]}?" if near else "")


def _ops() -> Mapping[str, Op[..., Any]]:
    # Late, since there are many of them, and few models need any.
    from .kernels import OPS

    return OPS
