"""The module of the function that made a session of a pickle."""

from __future__ import annotations

from typing import Any

from ..errors import PickleError


def __getattr__(name: str) -> Any:
    if name in ("unpickled", "InferenceSession"):
        raise PickleError(
            "this pickle of a session was made by pyops 0.2.0, a development version, which named its parts otherwise; "
            "pickle the session again with this release"
        )
    raise AttributeError(f"module 'pyops._runtime' has no attribute {name!r}")
