"""A capture of what a model computes for its example arguments, with the branches, loop counts and sizes of these.

The model runs on real tensors while torch records the operators. The questions that Python code asks of tensors
(`data_dependent`) are recorded too, and become decisions. The graph without them is then captured by ``torch.export``.
"""

from __future__ import annotations

import gc
import inspect
import json
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.traceback import preserve_node_meta

from .._torch.private.operators import HigherOrderOperator, OpOverload, find_overload, promise
from .._torch.private.tracing import enters_autocast, trace_graph
from .._torch.private.trees import clone_tensors, replace_leaves, tensor_leaves
from .data_dependent import Answers, Reads, reads_data
from .decisions import CaptureDecision, Kind, decision, format_value
from .failures import AUTOCAST, UnfaithfulError, lost
from .graph_calls import READ, place_of
from .interception import intercepted, target_of
from .value_sources import sources

_aten = torch.ops.aten
_MOST_VALUES = 4096  # of a tensor that a guard compares


def trace(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], guard: OpOverload | None = None
) -> tuple[torch.export.ExportedProgram, list[CaptureDecision]]:
    """Capture what a model computes for these arguments.

    Parameters
    ----------
    guard : OpOverload, optional
        The operator of `exporters._finishing.value_guards`, called for decisions that depend on the arguments.

    Returns
    -------
    tuple
        The program, whose sizes are those of the arguments, and what the trace specialized.

    Raises
    ------
    Exception
        Whatever the model or torch raises.
    """
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    gradients = torch.is_grad_enabled()
    answers: dict[Node, Any] = {}
    results: list[Any] = []

    def run(graph: Graph, tensors: list[torch.Tensor], given: list[torch.Tensor]) -> list[torch.Tensor]:
        positional, keywords = replace_leaves((args, dict(kwargs)), given)
        with intercepted(replacing=True, tracing=True), Answers(graph, answers), Reads(graph, answers):
            result = torch.func.functional_call(model, dict(zip(state, tensors, strict=True)), positional, keywords)
        results.append(result)
        return tensor_leaves(result)

    # A constant of the graph that is not older than the trace was computed by code that torch did not record.
    older = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    # Copies, because the model may write to them; it may ask for their gradients only where these are computed.
    copies = [clone_tensors(item).requires_grad_(item.requires_grad and gradients) for item in state.values()]
    recorded = trace_graph(run, copies, clone_tensors(tensor_leaves((args, dict(kwargs)))))
    decisions = _simplify(recorded, len(state), answers, {id(item) for item in older}, guard)
    traced = _Traced(recorded, state, results[0], inspect.signature(model.forward))
    return torch.export.export(traced, args, dict(kwargs), strict=False), decisions


def _simplify(
    recorded: GraphModule, state: int, answers: Mapping[Node, Any], older: set[int], guard: OpOverload | None
) -> list[CaptureDecision]:
    """Remove the questions from a graph, in place, and return what was answered; add guards if there is one.

    Parameters
    ----------
    state : int
        The number of parameters and buffers, which come first among the graph's inputs.
    older : set of int
        The ids of the tensors that existed before the graph was recorded.
    """
    graph = recorded.graph
    placeholders = sum(node.op == "placeholder" for node in graph.nodes)
    found = sources(graph, ["state" if index < state else "inputs" for index in range(placeholders)])
    guards = Guards(recorded, guard)
    decisions: list[CaptureDecision] = []

    def decide(node: Node, kind: Kind, value: Any) -> None:
        source = found[node]
        if source:
            guarded = source == "inputs" and guards.add(node, kind, value)
            expression = (node.meta.get("custom") or {}).get(READ, "")
            decisions.append(decision(kind, format_value(value), place_of(node), source, guarded, expression))

    for node in list(graph.nodes):
        if node in answers:
            value = answers[node]
            kind: Kind = "values" if isinstance(value, torch.Tensor) else "number"
            decide(node, "branch" if isinstance(value, bool) else kind, value)
        elif _has_open_size(node):
            decide(node, "size", node.meta["val"])
        elif node.op == "get_attr" and not _is_literal(node):
            constant = getattr(recorded, str(node.target))
            if isinstance(constant, torch.Tensor) and id(constant) not in older:
                raise lost(node)
        if node.target is torch.ops.higher_order.cond:
            _return_tuples(recorded, node)
        if isinstance(node.target, HigherOrderOperator):
            torch.compiler.reset()  # plain calls fail with what torch compiled for the trace
    guards.finish()
    for node in reversed(list(graph.nodes)):
        # What is no operator switches gradients or autocast on or off.
        is_switch = node.op == "call_function" and not isinstance(node.target, OpOverload)
        if enters_autocast(node):
            raise UnfaithfulError(AUTOCAST)
        if (is_switch or node in answers or reads_data(node.target)) and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    recorded.recompile()
    return decisions


_PACKING = find_overload("aten::_pack_padded_sequence")

# Their results have sizes that depend on values, but torch does not tag them with dynamic_output_shape.
_UNTAGGED = {
    _PACKING,
    _aten.nonzero_numpy.default,
    _aten.repeat_interleave.self_Tensor,
    _aten.tensor_split.tensor_indices_or_sections,
    _aten.where.default,
}


# Operators whose results stay of open sizes. With a promise about repeat_interleave, torch decomposes it into an
# operator that its exporter does not have. Of a packed sequence, other lengths than the longest make no difference.
_UNPROMISED = {_aten.repeat_interleave.self_Tensor, _PACKING}


def _has_open_size(node: Node) -> bool:
    """Return whether the size of a call's result depends on the values of its arguments."""
    if not isinstance(node.target, OpOverload):
        return False
    target = target_of(node)
    if target in _UNTAGGED:
        return node.kwargs.get("output_size") is None
    if torch.Tag.dynamic_output_shape not in target.tags:
        return False
    if target.overloadpacket in (_aten.index, _aten.index_put, _aten.index_put_):
        written: Any = node.args[1]
        indices = [item.meta["val"] for item in written if isinstance(item, Node)]
        return target.overloadpacket is _aten.index and any(item.dtype in (torch.bool, torch.uint8) for item in indices)
    return node.target is not _aten.one_hot.default  # called with a number of classes; without it, the stand-in is


def _return_tuples(recorded: GraphModule, cond: Node) -> None:
    """Let the branches of a ``torch.cond`` return tuples, as torch's exporter expects, and its users take the item."""
    for branch in (getattr(recorded, str(item.target)) for item in cond.args[1:3] if isinstance(item, Node)):
        output = branch.graph.output_node()
        if not isinstance(output.args[0], Node):
            return
        output.args = ((output.args[0],),)
        branch.recompile()
    with recorded.graph.inserting_after(cond):
        first = recorded.graph.call_function(operator.getitem, (cond, 0))
    cond.replace_all_uses_with(first, lambda user: user is not first)


def _is_literal(node: Node) -> bool:
    """Return whether a constant is one that the code made from numbers."""
    return all(user.target is _aten.lift_fresh_copy.default for user in node.users)


class _Traced(torch.nn.Module):
    """A recorded graph as a module with the state and the signature of the model."""

    def __init__(
        self, recorded: GraphModule, state: Mapping[str, torch.Tensor], result: Any, signature: inspect.Signature
    ) -> None:
        super().__init__()
        names = list(state)
        for name, tensor in state.items():
            _assign(self, name, tensor)

        def forward(*args: Any, **kwargs: Any) -> Any:
            held = {**dict(self.named_parameters()), **dict(self.named_buffers())}
            with preserve_node_meta():
                values = _Run(recorded).run([held[name] for name in names], tensor_leaves((args, kwargs)))
            return replace_leaves(result, values)

        forward.__signature__ = signature  # type: ignore[attr-defined] # torch names the inputs by it
        self.forward = forward


def _assign(root: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Give a module a parameter or a buffer by its path, ``"layer.0.weight"``."""
    *path, last = name.split(".")
    for part in path:
        children = dict(root.named_children())
        if part not in children:
            root.add_module(part, torch.nn.Module())
        root = root.get_submodule(part)
    if isinstance(tensor, torch.nn.Parameter):
        root.register_parameter(last, tensor)
    else:
        root.register_buffer(last, tensor)


class _Run(Interpreter):
    """A run of a recorded graph in which every size that depends on data is that of the recording."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if _has_open_size(n) and target_of(n) not in _UNPROMISED:
            for tensor, traced in zip(tensor_leaves(result), tensor_leaves(n.meta["val"]), strict=True):
                for size, fixed in zip(tensor.shape, traced.shape, strict=True):
                    promise(size == fixed)
        return result


class Guards:
    """The guards of a recorded graph; without an operator, nothing is guarded."""

    def __init__(self, recorded: GraphModule, operator: OpOverload | None) -> None:
        self._graph, self._operator = recorded.graph, operator
        self._waiting: list[tuple[Node, Node, Kind, Any]] = []
        self._guarded_sizes: dict[Node, tuple[Node, Node, Kind, Any]] = {}

    def add(self, node: Node, kind: Kind, value: Any) -> bool:
        """Guard the decision of a call; return whether that is possible.

        Parameters
        ----------
        value : any
            For a size, the results of the call; otherwise the value that Python code got.
        """
        if self._operator is None or node.op != "call_function":
            return False
        outputs: Any = self._graph.output_node().args[0]
        if any(map(_is_complex, [node] if kind == "size" else [node.args[0], *outputs[:1]])):
            return False
        if kind == "size":
            self._guard_sizes(node)
            return True
        if kind == "values" and value.numel() > _MOST_VALUES:
            return False
        asked = node if kind == "values" else node.args[0]
        with self._graph.inserting_after(node):
            # A copy, because the model may write to the tensor afterwards.
            copied = self._graph.call_function(torch.ops.aten.clone.default, (asked,))
        self._waiting.append((node, copied, kind, value.tolist() if kind == "values" else value))
        return True

    def finish(self) -> None:
        """Put the guards of conditions and values on the path to the first output."""
        output = self._graph.output_node()
        (returned,) = output.args
        assert isinstance(returned, (list, tuple))
        if not returned:
            return
        first, *others = returned
        # What the code used of a result may be its sizes alone.
        unused = [item for item in self._guarded_sizes if item not in _ancestors(output)]
        for node, copied, kind, value in (*self._waiting, *map(self._guarded_sizes.__getitem__, unused)):
            with self._graph.inserting_before(output):
                first = self._call(node, first, copied, kind, value)
        output.args = ([first, *others],)

    def _guard_sizes(self, node: Node) -> None:
        tensors = [node] if isinstance(node.meta["val"], torch.Tensor) else list(node.users)
        for tensor in tensors:
            users = list(tensor.users)
            with self._graph.inserting_after(tensor):
                sizes = list(tensor.meta["val"].shape)
                guarded = self._call(node, tensor, tensor, "size", sizes)
            self._guarded_sizes[guarded] = node, tensor, "size", sizes
            for user in users:
                user.replace_input_with(tensor, guarded)

    def _call(self, node: Node, result: Any, asked: Node, kind: Kind, value: Any) -> Node:
        assert self._operator is not None
        file, line = place_of(node)
        attributes: dict[str, Any] = {"kind": kind, "expected": json.dumps(value), "line": f"{Path(file).name}:{line}"}
        call = self._graph.call_function(self._operator, (result, asked), attributes)
        call.meta["val"] = result.meta.get("val")
        return call


def _ancestors(node: Node) -> set[Node]:
    found = {node}
    for item in reversed(node.graph.nodes):
        if item in found:
            found.update(item.all_input_nodes)
    return found


def _is_complex(node: Any) -> bool:
    return any(item.is_complex() for item in tensor_leaves(node.meta.get("val")))
