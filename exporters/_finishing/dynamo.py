"""Export by torch's exporter that is built on ``torch.export``, with a `Lowering`, and the finishing of its model."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir
import torch
from torch.export.graph_signature import ArgumentSpec, ConstantArgument, InputKind

from pyops._progress import step

from .._arguments import Constant, as_json, record_arguments
from .._capture.sizes import constant_sizes
from .._torch_private.exporter import Lowering, adapted_exporter
from .._torch_private.trees import is_tensor
from ..errors import ExportError
from .finish import finish
from .program import Model, Program


def capture(
    model: Model,
    args: tuple[Any, ...],
    lowering: Lowering,
    *,
    custom_opsets: Mapping[str, int] | None = None,
    keep_functions: bool = False,
    optimize: bool = True,
    **arguments: Any,
) -> Program:
    """Export a model, and finish it; take and raise what `exporters.export` does.

    Parameters
    ----------
    lowering : Lowering
        What decomposes and translates the calls.
    """
    return finish(
        lambda: lower(model, args, lowering, arguments),
        keep_functions=keep_functions,
        custom_opsets=custom_opsets,
        optimize=optimize,
    )


def lower(model: Model, args: tuple[Any, ...], lowering: Lowering, arguments: Mapping[str, Any]) -> Program:
    """Run torch's exporter without optimization."""
    step("capturing the model")
    arguments = {**arguments, "optimize": False, "verbose": arguments.get("verbose") is True}
    if args and isinstance(args[-1], dict) and not arguments.get("kwargs"):
        args = (*args, {})  # otherwise torch reads the last dict as keyword arguments
    with adapted_exporter(lowering), warnings.catch_warnings():
        # Raised by torch's own copy of its exported program, which the user cannot change.
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
        # It works, and is what the TorchScript exporter takes.
        warnings.filterwarnings("ignore", r"(# )?'dynamic_axes' is not recommended", UserWarning)
        warnings.filterwarnings("ignore", ".*is deprecated", DeprecationWarning, r"torch\.onnx")
        # The names that torch loses there are given later.
        warnings.filterwarnings("ignore", "# ONNX model has different number of inputs", UserWarning)
        # Inputs that share a dimension share its name on purpose.
        warnings.filterwarnings("ignore", r"# The axis name: (\w+) will not be used.*another axis: \1\.", UserWarning)
        try:
            exported = torch.onnx.export(model, args, dynamo=True, **arguments)
        except ValueError as error:
            if not str(error).startswith("Target opset version"):
                raise
            if not 1 <= arguments["opset_version"] <= onnx.defs.onnx_opset_version():
                raise ExportError(
                    f"opset_version is {arguments['opset_version']}, but this onnx has opsets 1 to "
                    f"{onnx.defs.onnx_opset_version()}; pass one of these, or leave out opset_version"
                ) from None
            # torch cannot convert to this version; without a node of ONNX's own, there is nothing to convert.
            exported = torch.onnx.export(model, args, dynamo=True, **{**arguments, "opset_version": None})
            assert exported is not None
            exported.model.opset_imports[""] = arguments["opset_version"]
    assert exported is not None  # None only with dynamo=False
    wanted, version = arguments.get("opset_version"), exported.model.opset_imports.get("")
    if wanted and version != wanted:
        raise ExportError(
            f"torch's exporter makes a model of opset {version}, which it cannot convert to opset {wanted}; leave out "
            "opset_version"
        )
    assert exported.exported_program is not None
    specs = exported.exported_program.graph_signature.input_specs
    record_arguments(exported.model, [_constant(item.arg) for item in specs if item.kind is InputKind.USER_INPUT])
    _fix_sizes(exported.model, exported.exported_program)
    program = Program(exported.model, exported.exported_program)
    vars(program).update(vars(exported))
    return program


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
