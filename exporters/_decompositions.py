"""Decompositions that are written in torch: their bodies, by an export, and what they compute.

`pyops` finds this module by its entry point. A body is right for every floating-point type of the type parameter of
the first input that has one: it is exported in float64, and casts its constants to the type of that input.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch

from pyops._core import AttributeKind, Decomposition, TypeParameter
from pyops.errors import DeclarationError
from pyops.shapes import Dim, SymbolicDim, TensorSpec

from ._capture.graph_calls import format_place
from ._capture.sizes import recorded_conditions, size_conditions
from ._export import export
from ._finishing.graph_as_function import as_function, has_limits
from ._program import Program
from ._torch.decomposition_calls import call, call_validated, with_tensors
from ._torch.private.onnx_exporter import Lowering, adapted_exporter
from ._torch.private.patching import quiet
from ._torch.private.trees import replace_leaves, tensor_leaves
from ._torch.tensors import as_array, as_tensor, torch_dtype

_FLOATS = {"float16", "bfloat16", "float32", "float64"}

Inputs = Sequence[tuple[str, TypeParameter, TensorSpec | None]]
"""The name, the declared type and the spec of each input of a call; the spec of an absent one is None."""


def reference(decomposition: Decomposition, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
    """Return what a decomposition computes for arrays, as arrays."""
    cpu = torch.device("cpu")
    tensors = [None if array is None else as_tensor(array, cpu) for array in arrays]
    with torch.no_grad():
        return [as_array(tensor.contiguous()) for tensor in call(decomposition, tensors, with_tensors(attributes))]


@quiet()
def body(
    decomposition: Decomposition, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any], opset: int
) -> onnx.FunctionProto:
    """Return the nodes, inputs and outputs of a function that computes a call; see `pyops._onnx.bodies.body`.

    It takes float attributes from its caller, unless the decomposition needs a Python number: then, as for all other
    attributes, it is right for the values given here.
    """
    signature = decomposition.signature
    declared = enumerate(zip(signature.parameters(len(specs)), specs, strict=True))
    inputs = [(f"{item.name}_{index}", item.type, spec) for index, (item, spec) in declared]
    kinds = {item.name: item.kind for item in signature.attributes}
    numbers = [name for name, kind in kinds.items() if kind is AttributeKind.FLOAT and attributes[name] is not None]
    call = _Export(decomposition, inputs, attributes, opset, numbers, _wide(decomposition, inputs))
    model, taken = _exported(call)
    if call.wide is not None and has_limits(model.graph):  # which differ between types
        call = replace(call, wide=None)
        model, taken = _exported(call)
    like = next((name for name, type, spec in inputs if spec and type == call.wide), None)
    return as_function(model.graph, signature.domain, signature.name, [name for name, *_ in inputs], taken, like)


@quiet()
def calls_model(
    decomposition: Decomposition,
    calls: Sequence[tuple[Sequence[TensorSpec], Mapping[str, Any]]],
    opset: int,
    plain: bool,
) -> onnx.ModelProto | None:
    """Return a model of calls, as `export` or torch's exporter make it; see `pyops._onnx.bodies.calls_model`."""
    exports = []
    for index, (specs, attributes) in enumerate(calls):
        declared = zip(decomposition.signature.parameters(len(specs)), specs, strict=True)
        inputs = [(f"{item.name}_{index}", item.type, spec) for item, spec in declared]
        exports.append(_Export(decomposition, inputs, attributes, opset, is_fixed=True))
    with recorded_conditions() as asked:
        program = (_plain_program if plain else _program)(decomposition, _prepared(*exports))
    if program is None or program.exported_program is None:
        return None
    for condition in size_conditions(program.exported_program, asked):
        raise DeclarationError(
            f"{decomposition.name} depends on a size that is dynamic in the model: {format_place(condition.place)}"
        )
    return onnx_ir.serde.serialize_model(program.model)


class _Calls(torch.nn.Module):
    """Calls of a decomposition, as a module that takes the tensors among the inputs, and some of the attributes."""

    def __init__(self, decomposition: Decomposition, taken: Any, attributes: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._calls = decomposition, taken, [with_tensors(item) for item in attributes]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        decomposition, taken, attributes = self._calls
        calls = zip(replace_leaves(taken, tensors), attributes, strict=True)
        results = (call_validated(decomposition, inputs, {**given, **numbers}) for (inputs, numbers), given in calls)
        return tuple(itertools.chain.from_iterable(results))


@dataclass(frozen=True)
class _Export:
    """The export of one call of a decomposition.

    Attributes
    ----------
    numbers : sequence of str
        The attributes that are inputs of the model.
    wide : TypeParameter or None
        The type parameter that is exported as float64.
    is_fixed : bool
        Whether the sizes that are numbers stay as they are; others may.
    """

    decomposition: Decomposition
    inputs: Inputs
    attributes: Mapping[str, Any]
    opset: int
    numbers: Sequence[str] = ()
    wide: TypeParameter | None = None
    is_fixed: bool = False


@dataclass(frozen=True)
class _Prepared:
    """A module to export, its tensors and how their sizes are exported, and the names of the inputs."""

    call: torch.nn.Module
    args: tuple[torch.Tensor, ...]
    axes: tuple[dict[int, Any], ...]
    names: Sequence[str]
    opset: int

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of an export."""
        return {
            "dynamic_shapes": (self.axes,),
            "opset_version": self.opset,
            "input_names": self.names,
            "verify": False,
        }


def _exported(export_of: _Export) -> tuple[onnx_ir.Model, Sequence[str]]:
    """Return the model of a call of a decomposition, and the attributes that it takes as inputs.

    Raises
    ------
    DeclarationError
        It cannot be exported, or returns other outputs than declared.
    """
    numbers, prepared = export_of.numbers, _prepared(export_of)
    if not numbers:
        return _program(export_of.decomposition, prepared).model, numbers
    try:  # it may ask whether they are tensors
        examples = _examples(export_of.inputs, export_of.wide)
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            plain = call_validated(export_of.decomposition, examples, with_tensors(export_of.attributes))
            torch.testing.assert_close(prepared.call(*prepared.args), tuple(plain), equal_nan=True)
        return _program(export_of.decomposition, prepared).model, numbers
    except Exception:  # it may need them as Python's
        return _exported(replace(export_of, numbers=()))


def _plain_program(decomposition: Decomposition, prepared: _Prepared) -> torch.onnx.ONNXProgram | None:
    """Return what torch's exporter makes of calls, None if it fails: `export` has more translations."""
    with adapted_exporter(Lowering()), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            return torch.onnx.export(prepared.call, prepared.args, dynamo=True, verbose=False, **prepared.options)
        except Exception:  # whatever torch's exporter raises
            return None


def _program(decomposition: Decomposition, prepared: _Prepared) -> Program:
    try:
        # Warnings about sizes that are specialized concern models of users.
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            program = export(prepared.call, prepared.args, **prepared.options)
            if _foreign(program.model):  # ops of pyops.kernels, which another translation may do without
                program = export(prepared.call, prepared.args, **prepared.options, kernels=False)
        if foreign := _foreign(program.model):
            raise DeclarationError(
                f"{decomposition.name} needs operators of {foreign.pop()!r}, and a body has ONNX's own alone; write "
                "it with other functions"
            )
    except DeclarationError:
        raise
    except Exception as error:  # whatever torch, a translation or the decomposition raises
        raise DeclarationError(f"{decomposition.name} cannot be exported: {type(error).__name__}: {error}") from error
    for name, value in zip(prepared.names, program.model.graph.inputs, strict=True):
        value.name = name
    return program


def _prepared(*exports: _Export) -> _Prepared:
    """Return what is exported of calls, so that named sizes are dynamic."""
    taken, axes, names = [], list[dict[int, Any]](), list[str]()
    for item in exports:
        present = {name: spec for name, _, spec in item.inputs if spec is not None}
        numbers = {name: torch.tensor(item.attributes[name]) for name in item.numbers}
        taken.append((_examples(item.inputs, item.wide), numbers))
        axes += [*(_axes(spec, item.is_fixed) for spec in present.values()), *[{}] * len(numbers)]
        names += [*present, *numbers]
    calls = _Calls(exports[0].decomposition, taken, [item.attributes for item in exports]).eval()
    return _Prepared(calls, tuple(tensor_leaves(taken)), tuple(axes), names, exports[0].opset)


def _foreign(model: onnx_ir.Model) -> set[str]:
    return {node.domain for node in model.graph.all_nodes()} - {""}


def _wide(decomposition: Decomposition, inputs: Inputs) -> TypeParameter | None:
    """Return the type parameter that the body is exported in float64 for; None if it would be mistaken for another."""
    typed = [(type, spec.dtype) for _, type, spec in inputs if spec is not None]
    wide = next((type for type, dtype in typed if len(type.dtypes) > 1 and dtype.name in _FLOATS), None)
    others = {dtype for type, dtype in typed if type != wide}
    others |= {dtype for item in decomposition.signature.outputs if item.type != wide for dtype in item.type.dtypes}
    return None if np.dtype(np.float64) in others else wide


def _examples(inputs: Inputs, wide: TypeParameter | None) -> list[torch.Tensor | None]:
    """Return a tensor for each input; sizes of the same name are the same."""
    sizes: dict[Dim, int] = {}
    made: list[torch.Tensor | None] = []
    for _, type, spec in inputs:
        if spec is None:
            made.append(None)
            continue
        shape = [dim if isinstance(dim, int) else sizes.setdefault(dim, 11 + 2 * len(sizes)) for dim in spec.shape]
        made.append(torch.ones(shape, dtype=torch.float64 if type == wide else torch_dtype(spec.dtype)))
    return made


def _axes(spec: TensorSpec, is_fixed: bool) -> dict[int, Any]:
    """Return how the sizes are exported: it is an error if a dynamic one has to be fixed, and automatic ones may be.

    Automatic ones of 1 are fixed by torch in any case, and fail beside dynamic ones.
    """
    dim = torch.export.Dim

    def how(size: Dim) -> Any:
        if isinstance(size, SymbolicDim):
            return dim.DYNAMIC
        return dim.STATIC if is_fixed or size == 1 else dim.AUTO

    return {axis: how(size) for axis, size in enumerate(spec.shape)}
