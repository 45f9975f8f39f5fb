"""The functions registered for an op, held against the declared one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..op import Op
from ..signature import Attribute
from .attribute_values import spell_attribute


def differing_defaults(op: Op[..., Any]) -> Iterator[str]:
    """What defaults of the shape function and of other kernels are not the declared ones."""
    functions: dict[str, Callable[..., Any] | None] = {"the shape function": op.shape_function}
    functions |= {f"the {device} kernel": function for device, function in op.kernels.items()}
    for what, function in functions.items():
        if function is None:
            continue
        parameters = inspect.signature(function).parameters
        for attribute in op.signature.attributes:
            parameter = parameters.get(attribute.name)
            if attribute.required or parameter is None or parameter.default is parameter.empty:
                continue
            if not _is_default(attribute, parameter.default):
                yield (
                    f"{what} has the default {attribute.name}={parameter.default!r}; declared is "
                    f"{attribute.name}={attribute.default!r}"
                )


def _is_default(attribute: Attribute, value: Any) -> bool:
    try:
        converted = attribute.convert(value)
    except Exception:
        return False
    return spell_attribute(converted) == spell_attribute(attribute.default) or (
        isinstance(value, np.ndarray) and np.array_equal(value, attribute.default)
    )
