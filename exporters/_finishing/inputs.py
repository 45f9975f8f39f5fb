"""What a captured program says about the inputs of its model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import onnx_ir
import torch
from torch.export.graph_signature import ArgumentSpec, ConstantArgument, InputKind

from .._arguments import Constant, as_json, record_arguments
from .._capture.sizes import constant_sizes
from .._torch_private.trees import is_tensor


def describe_inputs(model: onnx_ir.Model, program: torch.export.ExportedProgram) -> None:
    """Record the arguments of a captured program in its model, and the sizes of inputs that the program fixes."""
    specs = program.graph_signature.input_specs
    record_arguments(model, [_constant(item.arg) for item in specs if item.kind is InputKind.USER_INPUT])
    _fix_sizes(model, program)


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
