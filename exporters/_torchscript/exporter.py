"""Calls of the exporter that is built on TorchScript's tracing (``dynamo=False``).

For each call of a translated operator, TorchScript emits a node of a domain of our own, with an op type of its own.
The translations emit their nodes as in the other exporter. These become functions for the op types, and are inlined
into the model that TorchScript returns.
"""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir
import torch
from torch.jit import TracerWarning, is_tracing
from torch.overrides import TorchFunctionMode

from .._arguments import Constant, as_json, record_arguments
from .._finishing.finish import finish
from .._finishing.program import Model, Program
from .._lowering.nodes import symbolic_message
from .._lowering.translations import registered
from .._torch_private.exporter import default_opset
from .._torch_private.operators import OpOverload, called_overload, qualified_name, schema_arguments
from .._torch_private.torchscript import torchscript_opsets
from .._torch_private.trees import (
    as_dicts,
    flatten,
    is_tensor,
    named_leaves,
    present_leaves,
    replace_leaves,
    tensor_leaves,
)
from ..errors import ExportError
from .symbolics import Symbolics

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""

_DYNAMO_ONLY = ("dynamic_shapes", "report", "profile", "dump_exported_program", "artifacts_dir")


def capture(
    model: Model,
    args: tuple[Any, ...],
    *,
    kwargs: Mapping[str, Any] | None = None,
    opset_version: int | None = None,
    input_names: Sequence[str] | None = None,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    keep_functions: bool = False,
    optimize: bool = False,
    **arguments: Any,
) -> Program:
    """Run torch's TorchScript exporter with every registration applied; take and raise what `exporters.export` does.

    Nothing stays registered with torch afterwards.
    """
    version = default_opset() if opset_version is None else opset_version
    _check(model, args, version, arguments)
    table = {**registered(), **(custom_translation_table or {})}
    arguments |= {"opset_version": version, "input_names": input_names}
    given: Given = as_dicts((args, dict(kwargs or {})))
    return finish(
        lambda: _captured(model, given, table, {**arguments}),
        keep_functions=keep_functions,
        custom_opsets=custom_opsets,
        optimize=optimize,
    )


def _captured(model: Any, given: Given, table: Mapping[Any, Any], arguments: dict[str, Any]) -> Program:
    leaves = flatten(given)
    names = _names(model, given, arguments.pop("input_names"))
    symbolics = Symbolics(table, arguments["opset_version"])
    flat, values = model, [*given[0], *given[1].values()]
    if not isinstance(model, torch.jit.ScriptModule):
        flat, values = FlatModel(model, given), tensor_leaves(given)
    inputs = [name for name, leaf in zip(names, leaves, strict=False) if is_tensor(leaf)]
    with symbolics.installed(), CheckedCalls(table):
        exported = _export(flat, tuple(values), {**arguments, "input_names": [*inputs, *names[len(leaves) :]]})
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
    return Program(exported, None)


def _check(model: Any, args: tuple[Any, ...], opset_version: int, arguments: Mapping[str, Any]) -> None:
    if isinstance(model, torch.export.ExportedProgram):
        raise ExportError("dynamo=False traces a torch.nn.Module; an ExportedProgram is exported without it")
    given = [name for name in _DYNAMO_ONLY if arguments.get(name)]
    if given:
        instead = "; pass dynamic_axes, with input_names" if "dynamic_shapes" in given else ""
        raise ExportError(f"the TorchScript exporter (dynamo=False) does not take {', '.join(given)}{instead}")
    known = torchscript_opsets()
    if opset_version not in known:
        raise ExportError(
            f"the TorchScript exporter knows opset {known[0]} to {known[-1]}, not {opset_version}; leave out "
            "dynamo=False for a newer one"
        )
    if not isinstance(args, tuple):
        raise ExportError(f"export takes a model's arguments as a tuple, not {type(args).__name__}; write (x,)")


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


class FlatModel(torch.nn.Module):
    """A module that takes the tensors of a model's arguments, and returns flat tensors.

    It calls the model with its hooks. It shares the model's parameters, buffers and submodules, so that TorchScript
    names parameters and nodes as in the model itself.

    Parameters
    ----------
    given
        The example arguments; all but tensors keep these values.
    """

    model: torch.nn.Module
    given: Given

    def __init__(self, model: torch.nn.Module, given: Given) -> None:
        super().__init__()
        own = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
        vars(self).update({name: vars(model)[name] for name in own})
        # Module.__setattr__ would register the model as a submodule.
        vars(self).update(model=model, given=given)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model with other tensors, and return its results as flat tensors."""
        args, kwargs = replace_leaves(self.given, tensors)
        return tuple(_as_tensor(leaf) for leaf in present_leaves(as_dicts(self.model(*args, **kwargs))))

    def train(self, mode: bool = True) -> FlatModel:
        """Set the training mode of the module and of the model."""
        self.model.train(mode)
        self.training = mode
        return self


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, (int, float, complex)):
        with warnings.catch_warnings():
            # The tracer warns that the number becomes a constant.
            warnings.simplefilter("ignore", TracerWarning)
            return torch.tensor(leaf)
    raise ExportError(
        f"the model returns a {type(leaf).__name__}; the TorchScript exporter takes tensors and numbers, in "
        "tuples, lists and dicts: return those, or leave it out"
    )


class CheckedCalls(TorchFunctionMode):
    """A mode that refuses calls of some operators with arguments that TorchScript would fix or cannot trace.

    The tracer does not support lists of floats or strings, fails an internal assertion for a bool among numbers, and
    silently makes a traced number a constant. aten operators are excluded: it supports all their arguments.
    """

    def __init__(self, targets: Iterable[OpOverload]) -> None:
        super().__init__()
        self._targets = {qualified_name(target) for target in targets if target.namespace != "aten"}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func` if TorchScript can trace its arguments."""
        kwargs = kwargs or {}
        target = called_overload(func) if is_tracing() else None
        if target is not None and qualified_name(target) in self._targets:
            _check_call(target, args, kwargs)
            numbers = {item.name for item in schema_arguments(target) if "number" in item.type}
            kwargs = {
                name: int(value) if name in numbers and isinstance(value, bool) else value
                for name, value in kwargs.items()
            }
        return func(*args, **kwargs)


def _check_call(target: OpOverload, args: Any, kwargs: Mapping[str, Any]) -> None:
    declared = schema_arguments(target)
    given = {**dict(zip([item.name for item in declared], args, strict=False)), **kwargs}
    for item in declared:
        if not item.is_tensor and tensor_leaves(given.get(item.name)):
            raise ExportError(
                f"{symbolic_message(qualified_name(target), item.name)}; TorchScript traces every size: where "
                "this one is the same in every run, write int(...) or float(...) around it"
            )
        if given.get(item.name) is not None and ("List[number]" in item.type or "List[str]" in item.type):
            raise ExportError(
                f"{qualified_name(target)}: TorchScript has no lists of floats or strings, as attribute {item.name!r} "
                "is one; leave out dynamo=False"
            )
    if not tensor_leaves(given):
        raise ExportError(
            f"{qualified_name(target)} is called without a tensor, so TorchScript would fix its result as a "
            "constant; leave out dynamo=False"
        )
