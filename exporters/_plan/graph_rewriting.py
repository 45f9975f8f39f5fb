"""Rewriting of captured graphs for torch's exporter: calls that write, numbers as results, and strided views.

torch takes strided views of memory, and the tensors of ONNX have no memory layout.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument
from torch.fx import Graph, Node

from .._capture.graph_calls import source_line
from .._fallback import allowed_operators
from .._torch.private.onnx_exporter import forget_pending_sizes
from .._torch.private.operators import OpOverload, aliased_names, is_mutable, qualified_name
from .._torch.private.torch_export import graph_modules, is_certain
from ..errors import ExportError

_aten = torch.ops.aten
_PERMUTE = _aten.permute.default
_WRITING = _aten.as_strided_scatter.default
# How many arguments each has before the offset.
_STRIDED = {_aten.as_strided.default: 3, _aten.as_strided_copy.default: 3, _WRITING: 4}
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
        if qualified_name(target).startswith("aten::_") and allowed_operators.reason_against(target, {"aten"})
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


def take_strides_of_values(program: torch.export.ExportedProgram) -> None:
    """Rewrite strided views, in place, so that each is taken of a tensor whose values lie in memory row after row.

    Raises
    ------
    ExportError
        A view is taken of a tensor that leaves out parts of its memory.
    """
    for module in graph_modules(program).values():
        for node in [item for item in module.graph.nodes if item.target in _STRIDED]:
            _rewrite(module.graph, node)
        module.recompile()


def _rewrite(graph: Graph, node: Node) -> None:
    tensor = node.args[0]
    assert isinstance(node.target, OpOverload)
    assert isinstance(tensor, Node)
    count = _STRIDED[node.target]
    offset = (*node.args, None)[count]
    for base in _tensors(tensor) if node.target is not _WRITING else (tensor,):
        order, start = _order_in_memory(base.meta["val"]), _offset_in(base, tensor, offset)
        if order is not None and start is not None:
            break
    else:
        shape, strides = (list(of) for of in (tensor.meta["val"].shape, tensor.meta["val"].stride()))
        raise ExportError(
            f"{qualified_name(node.target)} takes a strided view of the memory of a tensor of shape {shape} and "
            f"strides {strides}, which leaves out parts of that memory, and ONNX tensors have no memory layout; call "
            f".contiguous() on the tensor, and take the view of the result ({source_line(node)})"
        )
    with graph.inserting_before(node):
        first = _permuted(graph, base, order, node)
        node.args = (first, *node.args[1:count], start)
        if node.target is _WRITING and first is not base:
            # The node itself, whose name the signature has, permutes the result back.
            written = graph.call_function(_WRITING, node.args)
            written.meta = {**node.meta, "val": first.meta["val"]}
            node.target, node.args = _PERMUTE, (written, [order.index(dim) for dim in range(len(order))])


def _permuted(graph: Graph, node: Node, order: Sequence[int], call: Node) -> Node:
    if list(order) == sorted(order):
        return node
    result = graph.call_function(_PERMUTE, (node, list(order)))
    result.meta = {**call.meta, "val": node.meta["val"].permute(order)}
    return result


def _tensors(node: Node) -> Iterator[Node]:
    """Yield a tensor, and those that it is a view of, the nearest first."""
    yield node
    made = node.args[0] if node.target is operator.getitem else node
    assert isinstance(made, Node)
    if isinstance(made.target, OpOverload) and aliased_names(made.target) and not is_mutable(made.target):
        viewed = made.args[0]
        assert isinstance(viewed, Node)
        yield from _tensors(viewed)


def _offset_in(base: Node, tensor: Node, offset: Any) -> Any:
    """Return the place in `base` of an offset into the memory of a view of it, or None if it is known only at run time.

    Parameters
    ----------
    offset : int, Node or None
        None for the offset of the view itself.
    """
    begin = base.meta["val"].storage_offset()
    if offset is None:
        return 0 if base is tensor else _known(tensor.meta["val"].storage_offset() - begin)
    return _known(offset - begin) if isinstance(offset, int) else offset if begin == 0 else None


def _known(offset: Any) -> int | None:
    return offset if isinstance(offset, int) and offset >= 0 else None


def _order_in_memory(tensor: torch.Tensor) -> list[int] | None:
    """Return the dimensions from the slowest to the fastest, or None if there is memory between the elements."""
    order: list[int] = []
    step: Any = 1
    left = [dim for dim in reversed(range(tensor.dim())) if not is_certain(tensor.shape[dim] == 1)]
    while left:
        dim = next((dim for dim in left if is_certain(tensor.stride(dim) == step)), None)
        if dim is None:
            return None
        left.remove(dim)
        order.insert(0, dim)
        step = step * tensor.shape[dim]
    return [*(dim for dim in range(tensor.dim()) if dim not in order), *order]
