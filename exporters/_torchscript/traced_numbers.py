"""Numbers among a model's arguments, traced as inputs where the model asks nothing of them that a trace cannot hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.jit import TracerWarning, is_tracing
from torch.overrides import TorchFunctionMode

T = TypeVar("T")

_CONVERSIONS = {
    *(torch.Tensor.__index__, torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__bool__),
    *(torch.Tensor.item, torch.Tensor.tolist),
}


def is_number(leaf: Any) -> bool:
    """Whether an argument is a number; a bool chooses what the model does, and is none."""
    return isinstance(leaf, (int, float)) and not isinstance(leaf, bool)


def without_conversions(trace: Callable[[], T]) -> T | None:
    """Return what the trace does; None where it fails, or makes a Python number of a tensor, which no graph holds."""
    try:
        with warnings.catch_warnings(record=True) as caught, _Unconverted():
            warnings.simplefilter("always", TracerWarning)
            result = trace()
    except Exception:  # whatever the model, a translation or torch says to a tensor where it needs a number
        return None
    if any(issubclass(item.category, TracerWarning) for item in caught):
        return None
    for item in caught:
        warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
    return result


class _Unconverted(TorchFunctionMode):
    """A ``with`` block in which no traced tensor becomes a Python number; of an index the tracer does not warn."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse a conversion."""
        if func in _CONVERSIONS and is_tracing():
            raise TypeError(f"{func.__name__} of a traced tensor")
        return func(*args, **(kwargs or {}))
