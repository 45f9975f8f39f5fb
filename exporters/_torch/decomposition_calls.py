"""Calls of decompositions that are written in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pyops import Op
from pyops._core import Decomposition, output_dtypes
from pyops._support.element_types import dtype_name
from pyops.errors import DeclarationError

from .private.trees import tensor_leaves
from .tensors import as_tensor, numpy_dtype

Tensors = Sequence[torch.Tensor | None]
"""One tensor per input of a call, None for an absent one."""


def decomposition_in_torch(op: Op[..., Any]) -> Decomposition | None:
    """Return the decomposition of an op, if it is written in torch."""
    found = op.decomposition
    return None if found is None or found.is_onnxscript else found


def call(decomposition: Decomposition, tensors: Tensors, attributes: Mapping[str, Any]) -> list[torch.Tensor]:
    """Call a decomposition, with attributes as `with_tensors` returns them."""
    return tensor_leaves(decomposition.function(*tensors, **attributes))


def with_tensors(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with tensors in place of arrays."""
    arrays = {name: value for name, value in attributes.items() if isinstance(value, np.ndarray)}
    return {**attributes, **{name: as_tensor(value, torch.device("cpu")) for name, value in arrays.items()}}


def call_validated(decomposition: Decomposition, tensors: Tensors, attributes: Mapping[str, Any]) -> list[torch.Tensor]:
    """Call a decomposition as `call` does.

    Raises
    ------
    DeclarationError
        It returns other outputs than declared.
    """
    signature = decomposition.signature
    outputs = call(decomposition, tensors, attributes)
    if not signature.has_outputs(len(outputs)):
        raise DeclarationError(
            f"{decomposition.name} returns {len(outputs)} outputs; expected {len(signature.outputs)}"
        )
    declared = output_dtypes(signature, [None if tensor is None else numpy_dtype(tensor.dtype) for tensor in tensors])
    for index, output in enumerate(outputs):
        dtype, expected = numpy_dtype(output.dtype), declared[min(index, len(declared) - 1)]
        if expected is not None and dtype != expected:
            raise DeclarationError(
                f"{decomposition.name} returns {dtype_name(dtype)} for output {signature.output(index).name!r}, where "
                f"{dtype_name(expected)} is declared; convert it, for example with .to(x.dtype)"
            )
    return outputs


def computed(decomposition: Decomposition, tensors: Tensors, given: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return what the operator of an op returns, new contiguous tensors; the other attributes have their defaults."""
    attributes = with_tensors(decomposition.signature.convert_attributes(given))
    outputs = call_validated(decomposition, tensors, attributes)
    return [output.clone(memory_format=torch.contiguous_format) for output in outputs]


def gradients(
    decomposition: Decomposition, tensors: Tensors, given: Mapping[str, Any], of_outputs: Tensors
) -> list[torch.Tensor | None]:
    """Return the gradient of each input for gradients of the outputs, by computing the decomposition again."""
    inputs = [None if tensor is None else tensor.detach() for tensor in tensors]
    wanted = [tensor.requires_grad_() for tensor in inputs if tensor is not None and tensor.is_floating_point()]
    attributes = with_tensors(decomposition.signature.convert_attributes(given))
    with torch.enable_grad():
        outputs = call(decomposition, inputs, attributes)
    pairs = zip(outputs, of_outputs, strict=True)
    used = [(output, gradient) for output, gradient in pairs if output.requires_grad and gradient is not None]
    if not used:
        return [None] * len(inputs)
    results, of_results = zip(*used, strict=True)
    found = iter(torch.autograd.grad(results, wanted, of_results, allow_unused=True))
    return [next(found) if tensor is not None and tensor.requires_grad else None for tensor in inputs]
