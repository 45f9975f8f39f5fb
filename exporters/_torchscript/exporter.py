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
from pathlib import Path
from typing import Any

import onnx_ir
import torch

from .._arguments import Constant, as_json, record_arguments
from .._capture.preparation import Model
from .._finishing.finish import Finishing, finish
from .._library.elementwise import OF_INTEGERS
from .._lowering.emission import record_emission
from .._lowering.explanations import unwrapping_errors
from .._lowering.translations import functional_overloads, registered
from .._program import Program
from .._torch_private.exporter import default_opset, lowest_opset
from .._torch_private.torchscript import torchscript_opsets
from .._torch_private.trees import as_dicts, flatten, is_tensor, named_leaves, tensor_leaves
from ..errors import ExportError
from .symbolics import Symbolics
from .tracing import FlatModel, Given, TracedCalls

_DYNAMO_ONLY = ("dynamic_shapes", "report", "profile", "dump_exported_program", "artifacts_dir")


def export(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    finishing: Finishing,
    *,
    opset_version: int | None = None,
    input_names: Sequence[str] | None = None,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    **arguments: Any,
) -> Program:
    """Run torch's TorchScript exporter with every registration applied; take and raise what `exporters.export` does.

    Nothing stays registered with torch afterwards.
    """
    version = default_opset() if opset_version is None else opset_version
    _check(model, version, arguments)
    names = OF_INTEGERS if version >= lowest_opset() else {}
    corrected = {target: OF_INTEGERS[name] for name in names for target in functional_overloads(name)}
    table = {**corrected, **registered(), **(custom_translation_table or {})}
    arguments |= {"opset_version": version, "input_names": input_names}
    given: Given = as_dicts((args, dict(kwargs)))
    with unwrapping_errors(), record_emission() as emitted:
        exported = _captured(model, given, table, {**arguments})
    finish(exported, emitted, finishing)
    return Program(exported, None)


def _captured(model: Any, given: Given, table: Mapping[Any, Any], arguments: dict[str, Any]) -> onnx_ir.Model:
    leaves = flatten(given)
    names = _names(model, given, arguments.pop("input_names"))
    calls = TracedCalls(table)
    symbolics = Symbolics(table, arguments["opset_version"], calls)
    flat, values = model, [*given[0], *given[1].values()]
    if not isinstance(model, torch.jit.ScriptModule):
        flat, values = FlatModel(model, given, calls.with_results), tensor_leaves(given)
    inputs = [name for name, leaf in zip(names, leaves, strict=False) if is_tensor(leaf)]
    with symbolics.installed(), calls:
        exported = _export(flat, tuple(values), {**arguments, "input_names": [*inputs, *names[len(leaves) :]]})
    calls.remove_results(exported.graph)
    symbolics.inline_translations(exported)
    # TorchScript drops inputs that the model does not use.
    used = {item.name for item in exported.graph.inputs}
    record_arguments(
        exported,
        [
            None if name in used else Constant(name, "" if is_tensor(leaf) else as_json(leaf))
            for name, leaf in zip(names, leaves, strict=False)
        ],
    )
    return exported


def _check(model: Any, opset_version: int, arguments: Mapping[str, Any]) -> None:
    if isinstance(model, torch.export.ExportedProgram):
        raise ExportError(
            "dynamo=False traces a torch.nn.Module, and this model is an ExportedProgram; leave out dynamo=False"
        )
    given = [name for name in _DYNAMO_ONLY if arguments.get(name)]
    if given:
        instead = "; pass dynamic_axes and input_names instead" if "dynamic_shapes" in given else ""
        raise ExportError(f"the TorchScript exporter (dynamo=False) does not take {', '.join(given)}{instead}")
    known = torchscript_opsets()
    if opset_version not in known:
        raise ExportError(
            f"the TorchScript exporter supports opset {known[0]} to {known[-1]}, not {opset_version}; leave out "
            "dynamo=False for a newer one"
        )


def _names(model: Any, given: Given, input_names: Sequence[str] | None) -> list[str]:
    """Return a name for each leaf of the arguments, followed by the remaining names in `input_names`.

    The names in `input_names` go to the tensors. Other leaves are named after their parameter, and their path in it if
    it is nested.
    """
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # a scripted forward may have none
        parameters = []
    positional = [item.name for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    rest = next((item.name for item in parameters if item.kind is item.VAR_POSITIONAL), "args")
    names = []
    for (root, first, *inside), _ in named_leaves(given):
        if root == "0":
            index = int(first)
            first = positional[index] if index < len(positional) else f"{rest}_{index - len(positional)}"
        names.append("_".join([first, *inside]))
    tensors = [index for index, leaf in enumerate(flatten(given)) if is_tensor(leaf)]
    for index, name in zip(tensors, input_names or (), strict=False):
        names[index] = name
    return [*names, *list(input_names or ())[len(tensors) :]]


def _export(model: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> onnx_ir.Model:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The user chose the deprecated exporter; other warnings are about torch's own use of it.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.|exporters\.")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, args, str(path), dynamo=False, **arguments)
        exported = onnx_ir.load(path)
        # External data of large models is deleted with the folder.
        onnx_ir.external_data.load_to_model(exported)
    return exported
