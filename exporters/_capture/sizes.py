"""The sizes that are asked to be dynamic: whether the arguments have them, and those that a trace fixed."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import ExportError
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


def check_dynamic_shapes(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any) -> None:
    """Raise ExportError if ``dynamic_shapes`` has entries for arguments or dimensions that there are not."""
    if not shapes or isinstance(shapes, (torch.export.ShapesCollection, torch.export.AdditionalInputs)):
        return
    values = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    if isinstance(shapes, Mapping):
        _check_keys("dynamic_shapes", "the model's arguments", values, shapes)
    elif isinstance(shapes, (tuple, list)):
        _check_count("dynamic_shapes", f"the arguments are {', '.join(values)}", len(values), len(shapes))
        shapes = dict(zip(values, shapes, strict=True))
    else:
        raise ExportError(
            f"dynamic_shapes is {shapes!r}; expected a dict by the names of the model's arguments, or a tuple with an "
            'item for each: ({0: "batch"}, None)'
        )
    for name, value in values.items():
        _check_shape(name, value, shapes[name])


def _check_shape(path: str, value: Any, shapes: Any) -> None:
    if isinstance(value, torch.Tensor) and shapes is not None:
        size = f"{path} has shape {list(value.shape)}"
        if isinstance(shapes, Mapping):
            for dim in shapes:
                if dim not in range(value.dim()):
                    raise ExportError(
                        f"dynamic_shapes has dimension {dim!r} of {path}; {size}, whose dimensions count from 0"
                    )
        elif isinstance(shapes, (tuple, list)):
            _check_count(f"dynamic_shapes of {path}", size, value.dim(), len(shapes))
        else:
            raise ExportError(f'dynamic_shapes has {shapes!r} for {path}; {size}: expected a dict as {{0: "batch"}}')
    elif isinstance(value, (tuple, list)) and isinstance(shapes, (tuple, list)):
        _check_count(f"dynamic_shapes of {path}", f"it has {len(value)} items", len(value), len(shapes))
        for index, both in enumerate(zip(value, shapes, strict=True)):
            _check_shape(f"{path}[{index}]", *both)
    elif isinstance(value, Mapping) and isinstance(shapes, Mapping):
        _check_keys(f"dynamic_shapes of {path}", "its keys", value, shapes)
        for key, item in value.items():
            _check_shape(f"{path}[{key!r}]", item, shapes[key])


def _check_keys(what: str, whose: str, expected: Iterable[Any], given: Iterable[Any]) -> None:
    expected, given = list(expected), list(given)
    if set(expected) != set(given):
        raise ExportError(
            f"{what} has the keys {', '.join(map(str, given))}; {whose} are {', '.join(map(str, expected))}: give each "
            "an entry, None where no size is dynamic"
        )


def _check_count(what: str, whose: str, expected: int, given: int) -> None:
    if expected != given:
        raise ExportError(
            f"{what} has {given} of {expected} items; {whose}: give each one, None where nothing is dynamic"
        )


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
