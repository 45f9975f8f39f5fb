"""Torch's arguments and results as ONNX models have them: flat, without None, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._torch_private.trees import as_dicts, present_leaves
from .recorded_arguments import input_values
from .tensors import as_onnx_array


def to_onnx_inputs(model: Any, *args: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arguments of a torch model as the feed of its exported model.

    Parameters
    ----------
    model : onnxruntime.InferenceSession, ONNXProgram, ModelProto, path or bytes
        The exported model.
    *args, **kwargs
        As for the torch model: nested tuples, lists and dicts are taken apart, None is left out,
        and so are values that the export made constants of, which must be the exported ones. Complex
        numbers become pairs along a last dimension. Keywords go to the inputs that are named after them;
        where there are none, in the order in which the model was exported with them.

    Returns
    -------
    dict of str to numpy.ndarray
        For ``session.run(None, feed)``.

    Raises
    ------
    ExportError
        More or fewer tensors than inputs, or another value for a constant of the model.
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
    return {name: as_onnx_array(value) for name, value in input_values(model, args, kwargs).items()}


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
    return list(map(as_onnx_array, present_leaves(as_dicts(result))))
