"""Numbers among a model's arguments, traced as inputs if the model does not convert them to Python numbers."""

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
    """Return whether an argument is an int or a float; a bool is not, since it chooses what the model does."""
    return isinstance(leaf, (int, float)) and not isinstance(leaf, bool)


def without_conversions(trace: Callable[[], T]) -> T | None:
    """Return the result of `trace`, or None if it fails or converts a tensor to a Python number.

    The trace would fix such a number as a constant.
    """
    try:
        with warnings.catch_warnings(record=True) as caught, _Unconverted():
            warnings.simplefilter("always", TracerWarning)
            result = trace()
    except Exception:  # the model, a translation or torch does not accept a tensor in place of a number
        return None
    if any(issubclass(item.category, TracerWarning) for item in caught):
        return None
    for item in caught:
        warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
    return result


class _Unconverted(TorchFunctionMode):
    """A mode in which converting a traced tensor to a Python number raises; the tracer does not warn of every one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, or raise TypeError if it is a conversion."""
        if func in _CONVERSIONS and is_tracing():
            raise TypeError(f"{func.__name__} of a traced tensor")
        return func(*args, **(kwargs or {}))
