"""The sizes that an export asks to be dynamic: whether the arguments have them, and which a capture specialized."""

from __future__ import annotations

import inspect
import itertools
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._torch.private.torch_export import asked_sizes, traced_frames, with_equal_sizes
from .._torch.private.trees import children, flatten, registering, unflatten
from ..errors import CaptureError, ExportError
from .graph_calls import Place, calling_place, definition_place, in_torch, innermost

_SYMBOL = re.compile(r"\bs\d+\b")  # torch's names of dynamic sizes: s0, s1, ...
_LOOPS = "/torch/_higher_order_ops/"  # whose code depends on sizes as a model's does
_EVALUATION = (torch.__file__, "/torch/fx/experimental/", "/exporters/_torch/private/", __file__)


@dataclass(frozen=True)
class SizeCondition:
    """A condition on the sizes of a model's inputs that held in a capture.

    Attributes
    ----------
    violation : sympy.Basic
        What must not hold, in torch's symbols for sizes.
    place : (str, int)
        Where Python code asked for it.
    sizes : mapping
        By name of each symbol, the number of an input, among the tensors, and of its dimension.
    text : str
        The condition: ``"x.shape[0] > 3"``.
    """

    violation: Any
    place: Place
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False)
    text: str = ""


@contextmanager
def recorded_conditions() -> Iterator[dict[SizeCondition, None]]:
    """Context manager: record which conditions on sizes code outside torch asks for, and which sizes become numbers.

    The conditions that torch itself asks for mostly hold for all sizes that it accepts; of these, only comparisons of
    remainders are recorded.
    """
    asked: dict[SizeCondition, None] = {}

    def ask(violation: Any, is_number: bool) -> None:
        symbols = {str(symbol) for symbol in violation.free_symbols}
        if not symbols or not all(map(_SYMBOL.fullmatch, symbols)):
            return
        compares_remainder = getattr(violation, "rel_op", "==") not in ("==", "!=") and "Mod(" in str(violation)
        place = _asking_place()
        if is_number or compares_remainder or place:
            asked[SizeCondition(violation, place or calling_place())] = None

    def contradict() -> None:
        if _asking_place():
            raise CaptureError(
                "torch.export takes a dynamic size of 0 or 1 in the example for one of 2 or more, and the model's code "
                "depends on it: pass an example of another size, or leave the dimension out of dynamic_shapes"
            )

    with asked_sizes(ask, contradict):
        yield asked


def _asking_place() -> Place | None:
    """Return the line outside of torch that asks for a condition; None if torch's own code asks."""
    stack = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)]
    inner = list(itertools.takewhile(lambda frame: any(part in frame[0] for part in _EVALUATION), stack))
    asking = stack[len(inner) :]
    if "/torch/_dynamo/" in asking[0][0]:
        asking = traced_frames()
    # Python code asks by the methods of torch.SymInt in torch/__init__.py, and C++ code does not.
    elif torch.__file__ not in [file for file, _ in inner]:
        return None
    if not asking or (in_torch(asking[0][0]) and _LOOPS not in asking[0][0]):
        return None
    return innermost(asking)


def _format(condition: Any) -> str:
    return f"{condition.lhs} {condition.rel_op} {condition.rhs}" if hasattr(condition, "rel_op") else str(condition)


def size_conditions(program: torch.export.ExportedProgram, asked: Iterable[SizeCondition]) -> Iterator[SizeCondition]:
    """Yield the conditions on sizes of inputs, with these sizes and a text."""
    inputs = _sizes_of_inputs(program)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    dynamic = [size for shape in shapes for size in shape if isinstance(size, torch.SymInt)]
    for condition in asked if dynamic else ():
        violation = with_equal_sizes(dynamic[0], condition.violation)
        symbols = list(map(str, violation.free_symbols))
        if symbols and all(symbol in inputs for symbol in symbols):
            text = _SYMBOL.sub(lambda symbol: inputs[symbol[0]][0], _format(~violation))
            sizes = {symbol: inputs[symbol][1] for symbol in symbols}
            yield replace(condition, violation=violation, sizes=sizes, text=text)


def fixed_sizes(
    program: torch.export.ExportedProgram,
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    shapes: Any,
) -> list[str]:
    """Return ``"x.shape[0] == 3"`` for each size that was to be dynamic, and that the captured program specializes.

    ONNX Runtime rejects any other size.

    Parameters
    ----------
    args, kwargs
        The example arguments.
    shapes : any
        The sizes that were to be dynamic, as ``torch.export.export`` takes them.
    """
    inputs = _sizes_of_inputs(program)
    fixed = [f"{inputs[name][0]} == {value}" for name, value in constant_sizes(program).items() if name in inputs]
    return fixed + [
        f"{path} == {size}"
        for path, size, asked in _asked_sizes(program, model, args, kwargs, shapes)
        # A draft export leaves the sizes that it specializes symbolic.
        if asked not in (None, torch.export.Dim.STATIC) and not isinstance(asked, int) and size.isdigit()
    ]


def _sizes_of_inputs(program: torch.export.ExportedProgram) -> dict[str, tuple[str, tuple[int, int]]]:
    """Return, for each size of an input, ``"x.shape[0]"`` with the number of the input and of the dimension."""
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    tensors = [node for node in inputs if isinstance(node.meta.get("val"), torch.Tensor)]
    found: dict[str, tuple[str, tuple[int, int]]] = {}
    for number, node in enumerate(tensors):
        for dim, size in enumerate(node.meta["val"].shape):
            found.setdefault(str(size), (f"{node.name}.shape[{dim}]", (number, dim)))
    return found


def constant_sizes(program: torch.export.ExportedProgram) -> dict[str, int]:
    """Return the sizes of a captured program that have a symbol, as dynamic ones do, but only one value."""
    ranges = program.range_constraints.items()
    return {str(size): int(found.lower) for size, found in ranges if found.lower == found.upper}


def size_names(
    program: torch.export.ExportedProgram, model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], shapes: Any
) -> dict[Any, str]:
    """Return the name that ``dynamic_shapes`` gives to each size of a captured program."""
    names: dict[Any, str] = {}
    for _, size, asked in _asked_sizes(program, model, args, kwargs, shapes):
        name = asked if isinstance(asked, str) else getattr(asked, "__name__", "")
        if name and not size.isdigit():
            names.setdefault(size, name)
    return names


def _asked_sizes(
    program: torch.export.ExportedProgram, model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], shapes: Any
) -> list[tuple[str, str, Any]]:
    """Return ``"x.shape[0]"``, the captured size and what ``dynamic_shapes`` has, for each size in `shapes`."""
    if isinstance(shapes, (torch.export.ShapesCollection, torch.export.AdditionalInputs)):
        shapes = shapes.dynamic_shapes(model, args, kwargs)  # type: ignore[no-untyped-call] # torch has no types for it
    if not shapes:
        return []
    inputs = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    with registering() as register:
        register((args, dict(kwargs)))
        count = len(flatten((args, dict(kwargs))))
        args, kwargs = unflatten((args, dict(kwargs)), inputs[len(inputs) - count :])
        values = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        if not isinstance(shapes, Mapping):
            shapes = dict(zip(values, shapes, strict=False))
        return [item for name, value in values.items() for item in _dynamic(name, value, shapes.get(name))]


def check_dynamic_shapes(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any) -> None:
    """Raise ExportError if the structure of ``dynamic_shapes`` does not match the arguments and their dimensions."""
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
                        f"dynamic_shapes has dimension {dim!r} of {path}, but {size}; dimensions are numbered from 0"
                    )
        elif isinstance(shapes, (tuple, list)):
            _check_count(f"dynamic_shapes of {path}", size, value.dim(), len(shapes))
        else:
            raise ExportError(
                f'dynamic_shapes has {shapes!r} for {path}; expected a dict such as {{0: "batch"}}, or None ({size})'
            )
    elif isinstance(value, (tuple, list)) and isinstance(shapes, (tuple, list)):
        _check_count(f"dynamic_shapes of {path}", f"it has {len(value)} items", len(value), len(shapes))
        for index, both in enumerate(zip(value, shapes, strict=True)):
            _check_shape(f"{path}[{index}]", *both)
    elif isinstance(value, Mapping) and isinstance(shapes, Mapping):
        _check_keys(f"dynamic_shapes of {path}", "its keys", value, shapes)
        for key, item in value.items():
            _check_shape(f"{path}[{key!r}]", item, shapes[key])
    elif isinstance(value, (tuple, list, Mapping)) and shapes is not None:
        raise ExportError(
            f"dynamic_shapes has {shapes!r} for {path}, a {type(value).__name__} of {len(value)} items; expected a "
            f"{type(value).__name__} with an entry for each, None where nothing is dynamic"
        )


def _check_keys(what: str, whose: str, expected: Iterable[Any], given: Iterable[Any]) -> None:
    expected, given = list(expected), list(given)
    if set(expected) != set(given):
        raise ExportError(
            f"{what} has the keys {', '.join(map(str, given))}, but {whose} are {', '.join(map(str, expected))}; give "
            "each of them an entry, None where no size is dynamic"
        )


def _check_count(what: str, whose: str, expected: int, given: int) -> None:
    if expected != given:
        raise ExportError(
            f"{what} has {given} items; expected {expected}, because {whose}: one each, None where nothing is dynamic"
        )


def model_place(model: torch.nn.Module) -> Place:
    """Return where the model's forward is defined."""
    return definition_place(model.forward)


def _dynamic(name: str, value: Any, shapes: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the items of `_asked_sizes` for an argument."""
    if not isinstance(shapes, (Mapping, list, tuple)):
        return
    pairs = list(shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes))
    if isinstance(value, torch.Tensor):
        yield from ((f"{name}.shape[{dim}]", str(value.shape[dim]), size) for dim, size in pairs)
        return
    for key, item in pairs:
        if isinstance(value, (Mapping, list, tuple)):
            inner = value[key]
        else:
            inner = getattr(value, str(key), dict(enumerate(children(value))).get(key))
        yield from _dynamic(f"{name}[{key!r}]", inner, item)
