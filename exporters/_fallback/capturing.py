"""Capture of a model as a functional graph of the operators that its code calls."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

from .._finishing.program import Model
from .._torch_private.operators import OpOverload, qualified_name
from .._torch_private.trees import replace_leaves
from . import rule
from .interception import Interception
from .named_calls import mark

STRATEGY = "capture_strategy"
"""The key in a captured graph's metadata for how it was captured."""

_MUTATIONS = (OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION)


def capture_graph(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    translated: Collection[OpOverload] = (),
) -> torch.export.ExportedProgram:
    """Capture a model, and make its graph functional.

    Operators are those that the code calls, such as ``linalg_inv``, not their decompositions. Each call has a name
    (`named_calls`). The graph returns the model's results only, not the inputs and buffers that the model writes to.

    Parameters
    ----------
    model, args, kwargs, dynamic_shapes
        As for ``torch.export.export``.
    translated : collection of OpOverload
        Operators with a translation, which are captured as they are even if ``torch.export`` may fail on them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
        if isinstance(model, torch.export.ExportedProgram):
            captured, strategy = model, None
        else:
            captured, strategy = _capture(model, args, dict(kwargs), _as_dims(dynamic_shapes), translated)
        with torch.no_grad():
            functional: torch.export.ExportedProgram = captured.run_decompositions(_decompositions())
    _drop_mutations(functional)
    _make_tensors(functional)
    mark(functional)
    functional.graph_module.meta[STRATEGY] = strategy
    return functional


def _drop_mutations(program: torch.export.ExportedProgram) -> None:
    """Remove the outputs that torch writes back to inputs and buffers, which an ONNX model cannot do."""
    specs = program.graph_signature.output_specs
    kept = [index for index, spec in enumerate(specs) if spec.kind not in _MUTATIONS]
    output = program.graph.output_node()
    returned = output.args[0]
    assert isinstance(returned, (tuple, list))
    output.args = (tuple(returned[index] for index in kept),)
    program.graph_signature.output_specs = [specs[index] for index in kept]
    program.graph_module.recompile()


def _make_tensors(program: torch.export.ExportedProgram) -> None:
    """Convert numbers among the graph's outputs to tensors, because torch's exporter rejects numbers."""
    output = program.graph.output_node()
    (returned,) = output.args
    assert isinstance(returned, (tuple, list))
    results = list(returned)
    for index, spec in enumerate(program.graph_signature.output_specs):
        value = spec.arg.value if isinstance(spec.arg, ConstantArgument) else None
        if not isinstance(value, (bool, int, float)):
            continue
        tensor = torch.tensor(value)
        with program.graph.inserting_before(output):
            node = program.graph.call_function(
                torch.ops.aten.full.default, ([], value), {"dtype": tensor.dtype, "device": tensor.device}
            )
        node.meta["val"] = tensor.to("meta")
        results[index] = node
        spec.arg = TensorArgument(node.name)
    output.args = (tuple(results),)
    program.graph_module.recompile()


@functools.cache
def _decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return the decompositions of private operators that the fallback rejects; it may accept their parts."""
    return {
        target: parts
        for target, parts in torch.export.default_decompositions().items()
        if qualified_name(target).startswith("aten::_") and rule.refusal(target, {"aten"})
    }


def _capture(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    translated: Collection[OpOverload],
) -> tuple[torch.export.ExportedProgram, str]:
    """Capture a model with the strategies of torch's exporter, and return the graph and the strategy's name.

    Calls on which ``torch.export`` would fail are intercepted.
    """
    failures: list[Exception] = []
    for strict, mode in ((False, Interception(translated)), (False, Interception()), (True, nullcontext())):
        try:
            with mode:
                captured = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
                return captured, "TorchExportStrictStrategy" if strict else "TorchExportNonStrictStrategy"
        except Exception as error:  # torch or the model's own code may raise anything
            failures.append(error)
    raise failures[0]


def _as_dims(dynamic_shapes: Any) -> Any:
    """Replace names of dimensions, which torch's ONNX exporter accepts, by dimensions for ``torch.export``."""
    return replace_leaves(
        dynamic_shapes, itertools.repeat(torch.export.Dim.DYNAMIC), lambda leaf: isinstance(leaf, str)
    )
