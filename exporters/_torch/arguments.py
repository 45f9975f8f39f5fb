"""Conversion of torch's arguments and results to the flat arrays of ONNX models."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._torch_private.trees import as_dicts, present_leaves
from .recorded_arguments import input_values
from .tensors import as_onnx_array


def to_onnx_inputs(model: Any, *args: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Convert the arguments of a torch model to the feed of its exported model.

    Parameters
    ----------
    model : onnxruntime.InferenceSession, ONNXProgram, ModelProto, path or bytes
        The exported model.
    *args, **kwargs
        Arguments of the torch model. Nested tuples, lists and dicts are flattened. None is omitted, and so are
        arguments that the export fixed as constants, which must have the same values. Complex tensors become
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
        NumPy or ONNX has no such dtype as a tensor's.

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
        NumPy or ONNX has no such dtype as a tensor's.

    Examples
    --------
    >>> import exporters, torch
    >>> [array.shape for array in exporters.to_onnx_outputs({"loss": torch.ones(()), "past": (None, torch.ones(2))})]
    [(), (2,)]
    """
    return list(map(as_onnx_array, present_leaves(as_dicts(result))))
