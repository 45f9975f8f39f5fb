"""Questions that Python code asks of tensors while it is captured: for conditions, numbers and whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.traceback import annotate
from torch.overrides import TorchFunctionMode

from .._torch.private.operators import OpOverload, TorchDispatchMode
from .._torch.private.tracing import known_values, last_node
from .._torch.private.trees import tensor_leaves
from .decisions import CaptureDecision, Kind, decision, format_value
from .graph_calls import READ, calling_expression, calling_place

_aten = torch.ops.aten


class Answers(TorchDispatchMode):
    """A mode that stores the Python values that operators return, by the node that was recorded for the call."""

    supports_higher_order_operators = True

    def __init__(self, graph: Graph, answers: dict[Node, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types for it
        self._graph, self._answers = graph, answers

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        node = last_node(self._graph)
        # torch knows the values of tensors that code made from numbers, and records no node for such a question.
        if reads_data(func) and reads_data(node.target) and node not in self._answers:
            self._answers[node] = result
        return result


def reads_data(target: Any) -> bool:
    """Return whether an operator returns a Python value that depends on the values of a tensor."""
    return isinstance(target, OpOverload) and torch.Tag.data_dependent_output in target.tags


class Reads(TorchFunctionMode):
    """A mode that records tensors whose values leave torch by other ways than operators, such as ``x.numpy()``."""

    def __init__(self, graph: Graph, answers: dict[Node, Any]) -> None:
        super().__init__()
        self._graph, self._answers = graph, answers

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.tolist and not args[0].dim():
            return args[0].item()
        if func in _READS:
            with annotate({READ: calling_expression()}):
                copied = args[0].detach().clone()
            if last_node(self._graph).target is _aten.clone.default:
                self._answers[last_node(self._graph)] = copied
        return func(*args, **(kwargs or {}))


_CONVERSIONS = ("bool", "int", "float", "index", "complex", "contains")
_READS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__}

DATA_READING = _READS | {getattr(torch.Tensor, name) for name in ("item", *map("__{}__".format, _CONVERSIONS))}
"""The functions by which Python code asks for values of a tensor."""


@contextmanager
def known_state(model: torch.nn.Module) -> Iterator[list[CaptureDecision]]:
    """Context manager: let the captured code read values that follow from the model's state only.

    Yields
    ------
    list of CaptureDecision
        The values that the code read.
    """
    state = [*model.parameters(), *model.buffers()]
    with known_values(state) as copies, _Known(copies) as known:
        yield known.decisions


class _Known(TorchDispatchMode):
    """A mode that follows what torch computes from the copies of the state, and records what code reads of it."""

    supports_higher_order_operators = True

    def __init__(self, copies: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types for it
        self._copies = copies
        self._results: dict[int, torch.Tensor] = {}  # by id; kept here so that no other tensor gets the id
        self.decisions: list[CaptureDecision] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = tensor_leaves((args, kwargs))
        if any(id(item) in self._results or any(item is copy for copy in self._copies) for item in given):
            if reads_data(func):
                kind: Kind = "branch" if isinstance(result, bool) else "number"
                self.decisions.append(decision(kind, format_value(result), calling_place(), "state"))
            else:
                self._results |= {id(item): item for item in tensor_leaves(result)}
        return result
