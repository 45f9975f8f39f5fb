"""Torch's arguments and results as ONNX models have them: flat, without None, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from pyops import model as models

from ._torch_private.trees import present_leaves, tensor_leaves
from .errors import ExportError
from .tensors import as_onnx_array


def to_onnx_inputs(model: Any, *args: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arguments of a torch model as the feed of its exported model.

    Parameters
    ----------
    model : onnxruntime.InferenceSession, ONNXProgram, ModelProto, path or bytes
        The exported model.
    *args, **kwargs
        As for the torch model: nested tuples, lists and dicts are taken apart, None is left out,
        and so are numbers that the export made constants of. Complex numbers become pairs along a
        last dimension. Keywords go to the inputs that are named after them; where there are none, in
        the order in which the model was exported with them.

    Returns
    -------
    dict of str to numpy.ndarray
        For ``session.run(None, feed)``.

    Raises
    ------
    ExportError
        More or fewer tensors than inputs.
    InputError
        A tensor's dtype is one that NumPy and ONNX lack.

    Examples
    --------
    >>> import exporters, onnx, torch
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20]>
    ... main (float[n] x, float[n] past) => (float[n] y) { y = Add(x, past) }''')
    >>> exporters.to_onnx_inputs(model, torch.zeros(1), {"mask": None, "past": torch.ones(1)})
    {'x': array([0.], dtype=float32), 'past': array([1.], dtype=float32)}
    """
    names = _input_names(model)
    values = input_values(names, args, kwargs)
    return {name: as_onnx_array(value) for name, value in zip(names, values, strict=True)}


def to_onnx_outputs(result: Any) -> list[np.ndarray[Any, Any]]:
    """What a torch model returns as ``session.run`` of its exported model gives it.

    Parameters
    ----------
    result : any
        Tensors in nested tuples, lists and dicts; None is left out, numbers are arrays without
        dimensions, and complex tensors have pairs along a last dimension.

    Returns
    -------
    list of numpy.ndarray

    Raises
    ------
    InputError
        A tensor's dtype is one that NumPy and ONNX lack.

    Examples
    --------
    >>> import exporters, torch
    >>> [array.shape for array in exporters.to_onnx_outputs({"loss": torch.ones(()), "past": (None, torch.ones(2))})]
    [(), (2,)]
    """
    return list(map(as_onnx_array, present_leaves(result)))


def input_values(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The argument for each input of an exported model: nested ones flattened, None dropped.

    Keywords go by name where inputs are named after them, the rest in order.

    Raises
    ------
    ExportError
        More or fewer tensors than inputs.
    """
    named = {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor) and name in names}
    unnamed = (args, _in_order(names, {name: value for name, value in kwargs.items() if name not in named}))
    leaves = present_leaves(unnamed)
    given = tensor_leaves(unnamed)
    missing = len(names) - len(named)
    if missing not in (len(given), len(leaves)):
        raise ExportError(
            f"the arguments have {len(given) + len(named)} tensors and the program {len(names)} inputs "
            f"({', '.join(names)}); pass the arguments that the model was exported with, or others like them"
        )
    # Numbers are constants of the graph, unless they were exported as dynamic.
    rest = iter(given if len(given) == missing else leaves)
    return [named[name] if name in named else next(rest) for name in names]


def _in_order(names: Sequence[str], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nested keywords as the inputs named after them follow each other (``past_0`` is of ``past``); else as given."""
    owners = [max((key for key in kwargs if name.startswith(f"{key}_")), key=len, default="") for name in names]
    nested = [key for key, value in kwargs.items() if tensor_leaves(value)]
    if not set(nested) <= set(owners):
        return kwargs
    following = iter(sorted(nested, key=owners.index))
    keys = [next(following) if key in nested else key for key in kwargs]
    return {key: kwargs[key] for key in keys}


def _input_names(model: Any) -> list[str]:
    if hasattr(model, "get_inputs"):
        return [item.name for item in model.get_inputs()]
    if isinstance(getattr(model, "model", None), onnx_ir.Model):
        return [item.name or "" for item in model.model.graph.inputs]
    proto = models.load(model).proto
    if proto is None:
        raise ExportError("the names of the inputs of a model in ORT format are not readable; pass its session")
    initializers = {item.name for item in proto.graph.initializer}
    return [item.name for item in proto.graph.input if item.name not in initializers]
