"""The functional form of a captured graph, in which operators are still those that the user's code calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

from .._fallback import allowed_operators
from .._torch_private.exporter import forget_pending_sizes
from .._torch_private.operators import OpOverload, qualified_name

_MUTATIONS = (OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION)


def functional_graph(captured: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a graph that writes to no tensor and returns the model's results only.

    Its operators are those that the code calls, such as ``linalg_inv``, and not those that torch decomposes them into;
    only private operators of torch that no model may name are decomposed.
    """
    forget_pending_sizes(captured)
    with torch.no_grad():
        graph: torch.export.ExportedProgram = captured.run_decompositions(_decompositions())
    specs = graph.graph_signature.output_specs
    kept = [index for index, spec in enumerate(specs) if spec.kind not in _MUTATIONS]
    output = graph.graph.output_node()
    (returned,) = output.args
    assert isinstance(returned, (tuple, list))
    output.args = (tuple(returned[index] for index in kept),)
    graph.graph_signature.output_specs = [specs[index] for index in kept]
    graph.graph_module.recompile()
    return graph


@functools.cache
def _decompositions() -> dict[OpOverload, Callable[..., Any]]:
    return {
        target: parts
        for target, parts in torch.export.default_decompositions().items()
        if qualified_name(target).startswith("aten::_") and allowed_operators.refusal(target, {"aten"})
    }


def return_tensors(program: torch.export.ExportedProgram) -> None:
    """Convert numbers among the results of a graph to tensors, in place, because torch's exporter rejects numbers."""
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
