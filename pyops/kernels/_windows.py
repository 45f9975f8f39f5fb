"""The windows of adaptive poolings, and what all poolings but those of a grid expect of their input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_spatial(x: NDArray[Any], sizes: list[int], name: str) -> None:
    """Raise a ValueError unless an input has a spatial dimension, not an empty one, for each of the sizes so named."""
    rank = len(sizes)
    if any(size < 0 for size in sizes):
        raise ValueError(f"{name} is {sizes}; sizes are not negative")
    if not 0 < rank <= x.ndim or 0 in x.shape[x.ndim - rank :]:
        raise ValueError(
            f"x has shape {x.shape}; by its {name} it has {rank} spatial dimensions at the end, none of them empty"
        )


def adaptive_bounds(size: int, windows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each of the windows that cover a dimension begins and ends."""
    numbers = np.arange(windows)
    return numbers * size // windows, -(-(numbers + 1) * size // windows)
