"""Decompositions that are written in torch: their bodies, by an export, and what they compute.

`pyops` finds this module by its entry point. A body is right for every floating-point type of the type parameter of
the first input that has one: it is exported in float64, and casts its constants to the type of that input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch

from pyops._core import AttributeKind, Decomposition, Signature, TypeParameter
from pyops.errors import DeclarationError
from pyops.shapes import Dim, SymbolicDim, TensorSpec

from . import _pipeline as pipeline
from ._capture.preparation import Example
from ._finishing.finish import Finishing
from ._finishing.graph_as_function import as_function, has_limits
from ._torch.decomposition_calls import call, call_validated, with_tensors
from ._torch.private.patching import one_at_a_time, quiet
from ._torch.private.trees import replace_leaves, tensor_leaves
from ._torch.tensors import as_array, as_tensor, torch_dtype

_FLOATS = {"float16", "bfloat16", "float32", "float64"}

Specs = Sequence[TensorSpec | None]
"""One spec per input of a call, None for an absent one."""


def reference(decomposition: Decomposition, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
    """Return what a decomposition computes for arrays, as arrays."""
    cpu = torch.device("cpu")
    tensors = [None if array is None else as_tensor(array, cpu) for array in arrays]
    with torch.no_grad():
        return [as_array(tensor.contiguous()) for tensor in call(decomposition, tensors, with_tensors(attributes))]


@one_at_a_time
@quiet()
def body(decomposition: Decomposition, inputs: Specs, attributes: Mapping[str, Any], opset: int) -> onnx.FunctionProto:
    """Return the nodes, inputs and outputs of a function that computes a call; see `pyops._onnx.bodies.body`.

    It takes float attributes from its caller, unless the decomposition needs a Python number: then, as for all other
    attributes, it is right for the values given here.
    """
    signature, wide = decomposition.signature, _wide(decomposition.signature, inputs)
    kinds = {item.name: item.kind for item in signature.attributes}
    numbers = [name for name, kind in kinds.items() if kind is AttributeKind.FLOAT and attributes[name] is not None]
    model, taken = _exported(decomposition, inputs, attributes, numbers, opset, wide)
    if wide is not None and has_limits(model.graph):  # which differ between types
        wide = None
        model, taken = _exported(decomposition, inputs, attributes, numbers, opset, wide)
    if foreign := {node.domain for node in model.graph.all_nodes()} - {""}:
        raise DeclarationError(f"{decomposition.name} needs operators of {foreign.pop()!r}, and a body has ONNX's own")
    names = _names(signature, inputs)
    typed = zip(names, inputs, signature.parameters(len(inputs)), strict=True)
    like = next((name for name, spec, item in typed if spec and item.type == wide), None)
    return as_function(model.graph, signature.domain, signature.name, names, taken, like)


class _Call(torch.nn.Module):
    """A call of a decomposition, as a module that takes the tensors among the inputs, and some of the attributes."""

    def __init__(self, decomposition: Decomposition, taken: Any, attributes: Mapping[str, Any]) -> None:
        super().__init__()
        self._call = decomposition, taken, with_tensors(attributes)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        decomposition, taken, attributes = self._call
        inputs, numbers = replace_leaves(taken, tensors)
        return tuple(call_validated(decomposition, inputs, {**attributes, **numbers}))


def _exported(
    decomposition: Decomposition,
    inputs: Specs,
    attributes: Mapping[str, Any],
    numbers: Sequence[str],
    opset: int,
    wide: TypeParameter | None,
) -> tuple[onnx_ir.Model, Sequence[str]]:
    """Return the model of a call of a decomposition, and those of the attributes `numbers` that it takes as inputs.

    Raises
    ------
    DeclarationError
        It cannot be exported, or returns other outputs than declared.
    """
    names = _names(decomposition.signature, inputs)
    present = {name: spec for name, spec in zip(names, inputs, strict=True) if spec is not None}
    axes = [*map(_axes, present.values()), *[{}] * len(numbers)]
    taken = _examples(decomposition.signature, inputs, wide), {name: torch.tensor(attributes[name]) for name in numbers}
    call = _Call(decomposition, taken, attributes).eval()
    example = Example(call, tuple(tensor_leaves(taken)), {}, (tuple(axes),))
    settings = {"opset_version": opset, "input_names": [*present, *numbers]}
    try:
        with torch.no_grad():
            program = pipeline.export(example, pipeline.Request(True, False, "export", Finishing(), settings))
    except Exception as error:  # whatever torch, a translation or the decomposition raises
        if numbers:  # it may need them as Python's
            return _exported(decomposition, inputs, attributes, (), opset, wide)
        if isinstance(error, DeclarationError):
            raise
        raise DeclarationError(f"{decomposition.name} cannot be exported: {type(error).__name__}: {error}") from error
    return program.model, numbers


def _names(signature: Signature, inputs: Specs) -> list[str]:
    return [f"{item.name}_{index}" for index, item in enumerate(signature.parameters(len(inputs)))]


def _wide(signature: Signature, inputs: Specs) -> TypeParameter | None:
    """Return the type parameter that the body is exported in float64 for; None if it would be mistaken for another."""
    typed = [(item.type, spec) for item, spec in zip(signature.parameters(len(inputs)), inputs, strict=True) if spec]
    wide = next((type for type, spec in typed if len(type.dtypes) > 1 and spec.dtype.name in _FLOATS), None)
    others = {spec.dtype for type, spec in typed if type != wide}
    others |= {dtype for item in signature.outputs if item.type != wide for dtype in item.type.dtypes}
    return None if np.dtype(np.float64) in others else wide


def _examples(signature: Signature, inputs: Specs, wide: TypeParameter | None) -> list[torch.Tensor | None]:
    """Return a tensor for each input, whose values nothing reads; sizes of the same name are the same."""
    sizes: dict[Dim, int] = {}
    made: list[torch.Tensor | None] = []
    for item, spec in zip(signature.parameters(len(inputs)), inputs, strict=True):
        if spec is None:
            made.append(None)
            continue
        shape = [dim if isinstance(dim, int) else sizes.setdefault(dim, 11 + 2 * len(sizes)) for dim in spec.shape]
        made.append(torch.empty(shape, dtype=torch.float64 if item.type == wide else torch_dtype(spec.dtype)))
    return made


def _axes(spec: TensorSpec) -> dict[int, Any]:
    """Return the sizes that stay dynamic: it is an error if a named one cannot, and others may be fixed."""
    dim = torch.export.Dim
    return {axis: dim.DYNAMIC if isinstance(size, SymbolicDim) else dim.AUTO for axis, size in enumerate(spec.shape)}
