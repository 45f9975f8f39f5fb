"""Calls of torch's exporter that is built on ``torch.export``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export.graph_signature import ArgumentSpec, ConstantArgument, InputKind

from ._arguments import Constant, as_json, record_arguments
from ._finishing.finish import finish
from ._finishing.program import Model, Program
from ._library.library import translation_table
from ._torch_private.exporter import caching_torchlib, decomposing_without_gradients, supporting_complex32
from .errors import ExportError


def capture(
    model: Model,
    args: tuple[Any, ...],
    *,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    kernels: bool = True,
    keep_functions: bool = False,
    optimize: bool = True,
    **arguments: Any,
) -> Program:
    """Run torch's exporter with every registration applied; take and raise what `exporters.export` does."""
    table = {**translation_table(kernels=kernels), **(custom_translation_table or {})}
    arguments |= {"custom_translation_table": table, "optimize": False}
    if args and isinstance(args[-1], dict) and not arguments.get("kwargs"):
        args = (*args, {})  # otherwise torch reads the last dict as keyword arguments
    return finish(
        lambda: _export(model, args, arguments),
        keep_functions=keep_functions,
        custom_opsets=custom_opsets,
        optimize=optimize,
    )


def _export(model: Model, args: tuple[Any, ...], arguments: dict[str, Any]) -> Program:
    with caching_torchlib(), supporting_complex32(), decomposing_without_gradients(), warnings.catch_warnings():
        # Raised by torch's own copy of its exported program, which the user cannot change.
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
        # Inputs that share a dimension share its name on purpose.
        warnings.filterwarnings("ignore", r"# The axis name: (\w+) will not be used.*another axis: \1\.", UserWarning)
        try:
            exported = torch.onnx.export(model, args, dynamo=True, **arguments)
        except ValueError as error:
            if not str(error).startswith("Target opset version"):
                raise
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
    program = Program(exported.model, exported.exported_program)
    vars(program).update(vars(exported))
    return program


def _constant(argument: ArgumentSpec) -> Constant | None:
    return Constant(argument.name, as_json(argument.value)) if isinstance(argument, ConstantArgument) else None
