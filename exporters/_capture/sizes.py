"""The sizes that were asked to be dynamic, and that a trace fixed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .calls import NOWHERE, Place
from .decisions import CaptureDecision, decision


def fixed_sizes(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any
) -> list[CaptureDecision]:
    """Return a decision for each size in ``dynamic_shapes``; ONNX Runtime refuses other sizes of an input.

    Parameters
    ----------
    shapes : any
        As ``torch.export.export`` takes it: by the names of the arguments, or in their order.
    """
    values = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    if not isinstance(shapes, Mapping):
        shapes = dict(zip(values, shapes or (), strict=False))
    found = [item for name, value in values.items() for item in _dynamic(name, value, shapes.get(name))]
    return [decision("size", text, model_place(model), "inputs", guarded=True) for text in found]


def model_place(model: torch.nn.Module) -> Place:
    """Return where the model's forward is defined."""
    code = getattr(inspect.unwrap(model.forward), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else NOWHERE


def _dynamic(name: str, value: Any, shapes: Any) -> Iterator[str]:
    """Yield ``"x.shape[0] == 3"`` for each dynamic dimension of the tensors of an argument."""
    if not isinstance(shapes, (Mapping, list, tuple)):
        return
    pairs = list(shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes))
    if isinstance(value, torch.Tensor):
        fixed = (None, torch.export.Dim.STATIC)
        for dim, size in pairs:
            if size not in fixed and not isinstance(size, int):
                yield f"{name}.shape[{dim}] == {value.shape[dim]}"
        return
    for key, item in pairs:
        inner = value[key] if isinstance(value, (Mapping, list, tuple)) else getattr(value, str(key), None)
        yield from _dynamic(f"{name}[{key!r}]", inner, item)
