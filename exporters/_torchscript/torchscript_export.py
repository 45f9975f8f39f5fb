"""Export by the exporter that is built on TorchScript's tracing (``dynamo=False``).

For each call of a translated operator, TorchScript emits a node with an op type that no other call has, in a private
domain. The translations emit their nodes as in the other exporter; these become functions for the op types, and are
inlined into the model that TorchScript returns.
"""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir
import torch

from .._capture.model_arguments import Argument, as_json, identifier, record_arguments
from .._capture.preparation import Model
from .._finishing.finish import Finishing, finish
from .._library.elementwise import OF_INTEGERS
from .._lowering.emission_record import record_emission
from .._lowering.lower import unwrapped
from .._lowering.translations import functional_overloads, registered
from .._program import Program
from .._torch.private.onnx_exporter import default_opset, lowest_opset
from .._torch.private.torchscript_values import symbolic_function
from .._torch.private.trees import as_dicts, is_tensor, named_leaves, replace_leaves, tensor_leaves
from ..errors import ExportError
from .symbolics import Symbolics
from .traced_model import TracedCalls, flat_model, flat_results

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""

_DYNAMO_ONLY = ("dynamic_shapes", "report", "profile", "dump_exported_program", "artifacts_dir")
_OPSETS = range(7, 21)


def export(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    finishing: Finishing,
    *,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    **arguments: Any,
) -> Program:
    """Run torch's TorchScript exporter with every registration applied; take and raise what `exporters.export` does.

    Nothing stays registered with torch afterwards.
    """
    version = arguments.get("opset_version") or default_opset()
    _check(model, version, arguments)
    names = OF_INTEGERS if version >= lowest_opset() else {}
    corrected = {target: OF_INTEGERS[name] for name in names for target in functional_overloads(name)}
    ours = {**registered(), **(custom_translation_table or {})}
    table = {**ours, **corrected, **ours}  # ours are tried before corrections of other overloads
    given = as_dicts((args, dict(kwargs)))
    failure = None
    try:
        with record_emission() as emitted:
            exported = _captured(model, given, table, {**arguments, "opset_version": version})
    except Exception as error:  # torch has no common base class for export errors
        failure = unwrapped(error)
    if failure is not None:
        raise failure
    finish(exported, None, emitted, finishing)
    return Program(exported, None)


def _captured(model: Any, given: Given, table: Mapping[Any, Any], arguments: dict[str, Any]) -> onnx_ir.Model:
    calls = TracedCalls(table)
    symbolics = Symbolics(table, arguments["opset_version"], calls.calls)

    def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = replace_leaves(given, tensors)
        return calls.with_unused(flat_results(model(*args, **kwargs)))

    scripted = isinstance(model, torch.jit.ScriptModule)
    flat = model if scripted else flat_model(model, forward)
    values = [*given[0], *given[1].values()] if scripted else tensor_leaves(given)
    input_names = arguments.get("input_names") or ()
    leaves = _named(model, given, input_names)
    inputs = [name for name, leaf in leaves if is_tensor(leaf)]
    arguments["input_names"] = [*inputs, *input_names[len(inputs) :]]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), symbolic_function(symbolics), calls:
        # The user chose the deprecated exporter; other warnings are about torch's own use of it.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.|exporters\.")
        path = f"{folder}/model.onnx"
        torch.onnx.export(flat, tuple(values), path, dynamo=False, **arguments)
        # External data of large models is deleted with the folder.
        exported = onnx_ir.external_data.load_to_model(onnx_ir.load(path))
    del exported.graph.outputs[len(exported.graph.outputs) - len(calls.unused) :]  # their nodes stay
    symbolics.inline_translations(exported)
    # TorchScript drops inputs that the model does not use.
    used = {item.name for item in exported.graph.inputs}
    constants = [Argument(name, as_json(leaf)) for name, leaf in leaves]
    record_arguments(exported, [None if item.name in used else item for item in constants])
    return exported


def _check(model: Any, opset_version: int, arguments: Mapping[str, Any]) -> None:
    if isinstance(model, torch.export.ExportedProgram):
        raise ExportError(
            "dynamo=False traces a torch.nn.Module, and this model is an ExportedProgram; leave out dynamo=False"
        )
    given = [name for name in _DYNAMO_ONLY if arguments.get(name)]
    if given:
        raise ExportError(
            f"the TorchScript exporter (dynamo=False) does not take {', '.join(given)}; leave it out, or leave out "
            "dynamo=False (for dynamic sizes, pass dynamic_axes and input_names)"
        )
    if opset_version not in _OPSETS:
        raise ExportError(
            f"the TorchScript exporter supports opset {_OPSETS[0]} to {_OPSETS[-1]}, not {opset_version}; leave out "
            "dynamo=False for a newer one"
        )


def _named(model: Any, given: Given, input_names: Sequence[str]) -> list[tuple[str, Any]]:
    """Return the leaves of the arguments with their names.

    The names in `input_names` go to the tensors. Other leaves are named after their parameter, and their path in it if
    it is nested.
    """
    try:
        positional = inspect.signature(model.forward).bind_partial(*given[0]).arguments
    except (TypeError, ValueError):  # a scripted forward may have no signature
        positional = {"args": given[0]}
    leaves = [(identifier(path[1:]), leaf) for path, leaf in named_leaves((positional, given[1]))]
    rest = iter(input_names)
    return [(next(rest, name) if is_tensor(leaf) else name, leaf) for name, leaf in leaves]
