"""The module of the function that made a session of a pickle."""

from __future__ import annotations

from typing import Any

from ..errors import PickleError


def __getattr__(name: str) -> Any:
    if name in ("unpickled", "InferenceSession"):
        raise PickleError(
            "this pickle of a session was made by pyops 0.2, which named its parts otherwise; pickle the session again "
            'with this release, or load it with the old one: pip install "onnx-pyops<0.3"'
        )
    raise AttributeError(f"module 'pyops._runtime' has no attribute {name!r}")
