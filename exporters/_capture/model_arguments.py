"""Conversion of arguments and results of a torch model to those of the exported one, which records its constants."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir
import torch

from pyops._core import load_model

from .._torch.private.trees import as_dicts, flatten, is_tensor, named_leaves, present_leaves
from .._torch.tensors import as_onnx_array
from ..errors import ExportError

_KEY = "pyops.arguments"


def to_onnx_inputs(model: Any, *args: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Convert the arguments of a torch model to the feed of its exported model.

    Parameters
    ----------
    model : onnxruntime.InferenceSession, ONNXProgram, ModelProto, path or bytes
        The exported model.
    *args, **kwargs
        Arguments of the torch model. Nested tuples, lists and dicts are flattened. None is omitted, and so are
        arguments that the export made constants, which must have the same values. Complex tensors become
        pairs along a new last dimension. A keyword goes to the input of its name; if there is none, keywords go
        in the order in which the model was exported with them.

    Returns
    -------
    dict of str to numpy.ndarray
        The feed for ``session.run(None, feed)``.

    Raises
    ------
    ExportError
        The number of tensors is not that of the inputs, or a constant of the model has another value.
    InputError
        NumPy or ONNX does not have the dtype of a tensor.

    Examples
    --------
    >>> import exporters, onnx, torch
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20]>
    ... main (float[n] x, float[n] past) => (float[n] y) { y = Add(x, past) }''')
    >>> exporters.to_onnx_inputs(model, torch.zeros(1), {"mask": None, "past": torch.ones(1)})
    {'x': array([0.], dtype=float32), 'past': array([1.], dtype=float32)}
    """
    return {name: as_onnx_array(value) for name, value in input_values(model, args, kwargs).items()}


def to_onnx_outputs(result: Any) -> list[np.ndarray[Any, Any]]:
    """Convert the result of a torch model to the arrays that ``session.run`` of its exported model returns.

    Parameters
    ----------
    result : any
        Tensors in nested tuples, lists and dicts. None is omitted, numbers become arrays of shape ``()``, and
        complex tensors become pairs along a new last dimension.

    Returns
    -------
    list of numpy.ndarray

    Raises
    ------
    InputError
        NumPy or ONNX does not have the dtype of a tensor.

    Examples
    --------
    >>> import exporters, torch
    >>> [array.shape for array in exporters.to_onnx_outputs({"loss": torch.ones(()), "past": (None, torch.ones(2))})]
    [(), (2,)]
    """
    return list(map(as_onnx_array, present_leaves(as_dicts(result))))


@dataclass(frozen=True)
class Argument:
    """An argument of a model: its name, and its value in JSON if the export made it a constant.

    The value is ``""`` if the model does not use it or JSON cannot represent it, and None for an input of the model.
    """

    name: str
    value: str | None = None

    @property
    def is_none(self) -> bool:
        """Return whether the argument was None, which a call may omit."""
        return self.value == "null"

    def check(self, value: Any) -> None:
        """Raise ExportError if a call passes another value."""
        if self.value and as_json(value) != self.value:
            raise ExportError(
                f"the model was exported with {self.name}={json.loads(self.value)!r}, which is a constant in it, but "
                f"is called with {self.name}={value!r}; export another model with that value, or export it with "
                f"{self.name} as a tensor"
            )


def as_json(value: Any) -> str:
    """Return a value in JSON, or ``""`` if JSON cannot represent it."""
    with suppress(TypeError):
        return json.dumps(value)
    return ""


def check_model(function: str, model: Any) -> None:
    """Raise ExportError if the model that a public function got is not one."""
    if isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        return
    if isinstance(model, type):
        given, fix = f"the class {model.__name__}", f"write {model.__name__}(...)"
    else:
        given, fix = f"a {type(model).__name__}", "write a subclass of torch.nn.Module whose forward calls it"
    raise ExportError(
        f"{function} takes an instance of torch.nn.Module or a torch.export.ExportedProgram, not {given}; {fix}"
    )


def as_tuple(function: str, args: Any) -> tuple[Any, ...]:
    """Return the arguments of a model that a public function got, which may be a single tensor, as a tuple.

    Raises
    ------
    ExportError
        They are neither.
    """
    if isinstance(args, torch.Tensor):  # which torch.onnx.export takes too
        return (args,)
    if not isinstance(args, tuple):
        raise ExportError(f"{function} takes a model's arguments as a tuple, not {type(args).__name__}; write (x,)")
    return args


def split_arguments(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments.

    As in torch, keyword arguments may be a dict at the end of the positional ones.
    """
    keywords = dict(kwargs or {})
    trailing = args[-1] if args else None
    if keywords or not isinstance(trailing, dict) or not isinstance(model, torch.nn.Module):
        return args, keywords
    try:
        inspect.signature(model.forward).bind(*args[:-1], **trailing)
    except (TypeError, ValueError):  # the dict is an argument itself, or forward has no signature
        return args, keywords
    return args[:-1], trailing


def record_arguments(model: onnx_ir.Model, arguments: Iterable[Argument | None]) -> None:
    """Write the arguments of a model into its metadata, in order: each constant, and None for each input."""
    model.metadata_props[_KEY] = json.dumps([item and [item.name, item.value] for item in arguments])


def input_values(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the argument for each input of an exported model.

    Nested arguments are flattened. A keyword goes to the input or constant of its name; the others go in order.

    Raises
    ------
    ExportError
        The number of tensors is not that of the inputs, or a constant of the model has another value.
    """
    args, kwargs = as_dicts((args, dict(kwargs)))
    names, metadata = _interface(model)
    places = _places(names, metadata)
    by_name = {place.name: place for place in (map(Argument, names) if places is None else places)}
    keywords = {identifier(path): leaf for path, leaf in named_leaves(kwargs)}
    pairs = [(by_name.pop(name), keywords.pop(name)) for name in list(keywords) if name in by_name]
    rest, values = list(by_name.values()), flatten((args, keywords))
    if len(rest) != len(values):
        rest, values = [place for place in rest if not place.is_none], [leaf for leaf in values if leaf is not None]
    if len(rest) != len(values):
        # Without a record, numbers were constants. With one, constants may be omitted from the call.
        values = list(filter(is_tensor, values)) if places is None else values
        rest = [place for place in rest if place.value is None] if all(map(is_tensor, values)) else rest
    pairs += zip(rest, values, strict=False)
    found = {place.name: value for place, value in pairs if place.value is None and value is not None}
    if len(rest) != len(values) or len(found) != len(names):
        raise ExportError(_mismatch(places or [], names, flatten((args, kwargs))))
    for place, value in pairs:
        place.check(value)
    return {name: found[name] if places is None else as_input(found[name]) for name in names}


def as_input(value: Any) -> torch.Tensor:
    """Return the tensor that an input gets for a number; a tensor is returned unchanged."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _places(names: list[str], metadata: Mapping[str, str]) -> list[Argument] | None:
    """Return the arguments that `record_arguments` wrote.

    None if another exporter made the model, or if its inputs were edited since.
    """
    written = json.loads(metadata.get(_KEY, "null"))
    if written is None or written.count(None) != len(names):
        return None
    inputs = iter(names)
    return [Argument(*item) if item else Argument(next(inputs)) for item in written]


def identifier(path: tuple[str, ...]) -> str:
    """Return the name that torch's exporter gives to the argument at a path."""
    return re.sub(r"\W", "_", "_".join(path))


def _mismatch(places: list[Argument], names: list[str], values: list[Any]) -> str:
    tensors = sum(map(is_tensor, values))
    others = [repr(value) for value in values if value is not None and not is_tensor(value)]
    known = [(item.name, item.value) for item in places if item.value and not item.is_none]
    constants = [f"{name}={json.loads(value)!r}" for name, value in known]
    return (
        f"the arguments have {tensors} tensors{_and('the values', others)}, but the model has {len(names)} inputs "
        f"({', '.join(names)}){_and('the constants', constants)}; pass arguments with the structure of those that the "
        "model was exported with"
    )


def _and(what: str, values: list[str]) -> str:
    return f" and {what} {', '.join(values)}" if values else ""


def _interface(model: Any) -> tuple[list[str], Mapping[str, str]]:
    """Return the names of a model's inputs, and its metadata."""
    if hasattr(model, "get_inputs"):
        return [item.name for item in model.get_inputs()], model.get_modelmeta().custom_metadata_map
    if isinstance(getattr(model, "model", None), onnx_ir.Model):
        return [item.name or "" for item in model.model.graph.inputs], model.model.metadata_props
    proto = load_model(model).proto
    if proto is None:
        raise ExportError("cannot read the names of the inputs of a model in ORT format; pass a session of the model")
    initializers = {item.name for item in proto.graph.initializer}
    names = [item.name for item in proto.graph.input if item.name not in initializers]
    return names, {item.key: item.value for item in proto.metadata_props}
