"""The exporter that is built on TorchScript's tracing (``dynamo=False``).

TorchScript puts a node of a domain of our own where a translated operator is called, one op type for
each call. The translations emit their nodes as in the other exporter; they become the functions that
those nodes call, and are inlined into the model that TorchScript has made.
"""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx_ir
import torch
from torch.jit import TracerWarning

from .._torch_private.exporter import default_opset
from .._torch_private.torchscript import torchscript_opsets
from .._torch_private.trees import named_leaves, present_leaves, replaced, tensor_leaves
from ..errors import ExportError
from ..finishing.finish import finished
from ..program import Model, Program
from ..translating.translations import registered
from .symbolics import Symbolics
from .tracing import TracedCalls

_MISSING = object()
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
    """Run torch's TorchScript exporter with every registration applied; takes and raises what `exporters.export` does.

    Nothing of it stays registered with torch.
    """
    version = default_opset() if opset_version is None else opset_version
    _check(model, args, version, arguments)
    table = {**registered(), **(custom_translation_table or {})}
    calls = TracedCalls(table)
    symbolics = Symbolics(table, version, calls)
    keywords = dict(kwargs or {})
    arguments |= {"opset_version": version, "input_names": input_names or _input_names(model, args, keywords)}

    def captured() -> Program:
        with symbolics.installed(), calls, _flat(model, args, keywords, calls) as given:
            exported = _export(model, given, arguments)
        calls.remove_results(exported.graph)
        symbolics.put_in_place(exported)
        return Program(exported, None)

    return finished(captured, keep_functions=keep_functions, custom_opsets=custom_opsets, optimize=optimize)


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


def _input_names(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for each tensor: its parameter's, and its place in it where it is nested."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # a scripted forward may have none
        parameters = []
    positional = [item.name for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    rest = next((item.name for item in parameters if item.kind is item.VAR_POSITIONAL), "args")
    names = []
    for (root, first, *inside), leaf in named_leaves((args, kwargs)):
        if root == "0":
            index = int(first)
            first = positional[index] if index < len(positional) else f"{rest}_{index - len(positional)}"
        if isinstance(leaf, torch.Tensor):
            names.append("_".join([first, *inside]))
    return names


@contextmanager
def _flat(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], calls: TracedCalls
) -> Iterator[tuple[torch.Tensor, ...]]:
    """The tensors among the arguments, which the model takes inside the ``with`` block.

    TorchScript takes neither keyword-only arguments nor numbers and None beside tensors.
    """
    if isinstance(model, torch.jit.ScriptModule):
        yield (*args, *kwargs.values())
        return
    forward = model.forward

    def flat(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        all_args, all_kwargs = replaced((args, kwargs), values)
        result = forward(*all_args, **all_kwargs)
        return calls.with_results(list(map(_as_tensor, present_leaves(result))))

    own = vars(model).get("forward", _MISSING)
    model.forward = flat
    try:
        yield tuple(tensor_leaves((args, kwargs)))
    finally:
        if own is _MISSING:
            del model.forward
        else:
            model.forward = own


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    with warnings.catch_warnings():
        # That it is a constant of the trace, which a number is.
        warnings.simplefilter("ignore", TracerWarning)
        return torch.tensor(leaf)


def _export(model: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> onnx_ir.Model:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # It was asked for, and the rest is torch's own use of its older parts.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.|exporters\.")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, args, str(path), dynamo=False, **arguments)
        exported = onnx_ir.load(path)
        # Large models come with files beside them, which end with the folder.
        onnx_ir.external_data.load_to_model(exported)
    return exported
