"""The steps that finish an exported model, in order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir
import torch
from torch.export.graph_signature import ArgumentSpec, ConstantArgument, InputKind

from pyops._progress import step

from .._arguments import Constant, as_json, record_arguments
from .._capture.sizes import constant_sizes
from .._lowering.emission import Emission
from .._optimization import optimize
from .._torch_private.trees import is_tensor
from . import function_bodies, integer_division, opset_imports


@dataclass(frozen=True)
class Finishing:
    """How a model is finished; the attributes are arguments of `exporters.export`."""

    keep_functions: bool = False
    custom_opsets: Mapping[str, int] = field(default_factory=dict)
    optimize: bool = True


def finish(
    model: onnx_ir.Model, program: torch.export.ExportedProgram | None, emitted: Emission, how: Finishing
) -> None:
    """Finish a model, in place.

    Record its arguments and the sizes that a captured program fixes; add the functions and the opset imports that its
    nodes need; optimize it; guard integer divisions.

    Raises
    ------
    ExportError
        The nodes do not match the declared ops, the opset versions or each other.
    """
    step("finishing the model")
    if program is not None:
        specs = program.graph_signature.input_specs
        record_arguments(model, [_constant(item.arg) for item in specs if item.kind is InputKind.USER_INPUT])
        _fix_sizes(model, program)
    if how.optimize:
        # Before functions are added, because the optimization inlines functions.
        optimize(model, emitted.functions)
    inlined = bool(emitted.functions) and function_bodies.add_functions(model, emitted, keep=how.keep_functions)
    opset_imports.set_opset_imports(model, emitted.versions, how.custom_opsets)
    opset_imports.validate_nodes(model, how.custom_opsets)
    if inlined and how.optimize:
        optimize(model)
    integer_division.guard_divisions(model)


def _fix_sizes(model: onnx_ir.Model, program: torch.export.ExportedProgram) -> None:
    """Write the sizes that the program fixes into the model's inputs, so that ONNX Runtime rejects others."""
    constants = constant_sizes(program)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    tensors = [values[name] for name in program.graph_signature.user_inputs if isinstance(name, str) and name in values]
    for value, tensor in zip(model.graph.inputs, filter(is_tensor, tensors), strict=False):
        if value.shape is not None:
            fixed = [_number(str(size), constants) for size in tensor.shape]
            sizes = itertools.zip_longest(value.shape, fixed)  # a complex tensor has one dimension more in the model
            value.shape = onnx_ir.Shape([size if number is None else number for size, number in sizes])


def _number(size: str, constants: Mapping[str, int]) -> int | None:
    return int(size) if size.isdigit() else constants.get(size)


def _constant(argument: ArgumentSpec) -> Constant | None:
    return Constant(argument.name, as_json(argument.value)) if isinstance(argument, ConstantArgument) else None
