"""Complex tensors in operators that treat real and imaginary parts alike, such as those that move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .table import Pairs, constant, onnx_ops


def by_parts(emit: Callable[..., Any], *values: Any) -> Any:
    """Return what `emit` gives for the values; for `Pairs`, apply it to real and imaginary parts, and join the results.

    Return NotImplemented if some values are real and some complex.
    """
    if not any(isinstance(value, Pairs) for value in values):
        return emit(*values)
    if not all(isinstance(value, Pairs) for value in values):
        return NotImplemented
    return join(*(emit(*of_all) for of_all in zip(*map(split, values), strict=True)))


def split(pairs: Pairs) -> tuple[Any, Any]:
    """Return the real and the imaginary parts of a complex tensor."""
    parts = [onnx_ops.Gather(pairs.value, constant(index), axis=-1) for index in (0, 1)]
    for part in parts:
        part.dtype = pairs.value.dtype  # the validation of inputs reads it
    return parts[0], parts[1]


def join(real: Any, imaginary: Any) -> Any:
    """Return the pairs of real and imaginary parts."""
    return onnx_ops.Concat(*(onnx_ops.Unsqueeze(part, constant([-1])) for part in (real, imaginary)), axis=-1)
