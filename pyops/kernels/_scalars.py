"""Numbers that come as tensors."""

from __future__ import annotations

from typing import Any


def scalar(name: str, x: Any) -> Any:
    """The one number of an array, as a number of Python's; a ValueError that names it if there are none or several."""
    if x.size != 1:
        raise ValueError(f"{name} is {list(x.shape)}; it is one number")
    return x.reshape(()).item()
