"""Attributes as text that tells any two apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import STRING


def spell_attribute(value: Any) -> str:
    """The type and all of the value of an attribute: NaN equals itself, and 1 is not True."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape} {value.tolist() if value.dtype == STRING else value.tobytes().hex()}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} {list(map(spell_attribute, value))}"
    return f"{type(value).__name__} {value!r}"
