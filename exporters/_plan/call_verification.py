"""Comparison of torch with ONNX Runtime on every distinct call of a graph, exported alone, for the example arguments.

A call with dynamic dimensions is compared at another size too, because some translations fix the sizes of the example.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from pyops._tolerances import WIDE_TOLERANCES

from .._capture.comparison import ProgramRun, lifted_inputs
from .._capture.failures import summary
from .._capture.graph_calls import mark_of
from .._capture.interception import target_of
from .._capture.model_arguments import to_onnx_outputs
from .._capture.preparation import Example
from .._fallback import allowed_operators
from .._report import OutputComparison, compare
from .._torch.private.operators import OpOverload
from .._torch.private.trees import flatten, replace_leaves
from .._torch.single_call import SingleCall, Tensors
from .._torch.tensors import as_onnx_array
from ..errors import causes
from . import reasons
from .graph_rewriting import functional_graph
from .plan import Plan
from .reasons import Finding, is_constant

Place = tuple[str, OpOverload]
"""The name of a captured call, and the operator that is called there once the graph is functional."""

# The number of other sizes tried until one fits.
_OTHER_SIZES = 16


@dataclass
class DistinctCall:
    """A call of an operator in the example run, with its tensors, and the names of all calls like it."""

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic: tuple[frozenset[int], ...]  # the dynamic dimensions of each tensor
    expected: Any  # torch's result
    names: list[str] = field(default_factory=list)
    used: set[int] = field(default_factory=set)  # indices of the outputs that the graph uses; empty if there is one

    @functools.cached_property
    def module(self) -> SingleCall:
        """Return the call as a model of its tensors."""
        return SingleCall(self.run, self.args, self.kwargs)

    @property
    def example(self) -> Example:
        """Return the call as a model with its tensors, and their dynamic dimensions."""
        shapes = tuple(dict.fromkeys(found, torch.export.Dim.AUTO) for found in self.dynamic)
        return Example(self.module, self.module.tensors, {}, (shapes,) if any(shapes) else None)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator, and return the outputs that the graph uses."""
        return self.of_use(self.target(*args, **kwargs))

    def of_use(self, result: Any) -> Any:
        """Return the outputs that the graph uses."""
        if isinstance(result, torch.Tensor) or not self.used:
            return result
        return [result[index] for index in sorted(self.used)]


def distinct_calls(plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[DistinctCall]:
    """Return the distinct calls of a plan that do not fall back, as they are made for the example arguments."""
    left = {item.call for item in plan.decisions if item.by == "fallback"}
    graph = functional_graph(plan.captured)
    args, kwargs = (args, kwargs) if args or kwargs else graph.example_inputs
    found: dict[Any, DistinctCall] = {}
    _Recorder(graph.graph_module, left, found).run(*lifted_inputs(graph, args, kwargs))
    return list(found.values())


def compared(call: DistinctCall, program: torch.onnx.ONNXProgram, fill_missing: bool) -> Finding | None:
    """Return what is wrong with a call that was exported alone, or None.

    Parameters
    ----------
    fill_missing : bool
        Let the session compute nodes that ONNX Runtime has no kernel for.
    """
    from pyops import InferenceSession  # needs onnxruntime, which exporting does not

    session = InferenceSession(program, fill_missing=fill_missing)
    reports = _reports(session, call.module.tensors, call.of_use(call.expected))
    assert program.exported_program is not None
    other = call.module.resized(program.exported_program, _OTHER_SIZES) if any(call.dynamic) else None
    if other is not None and not any(map(_differs(call), reports)):
        reports = _reports(session, other, call.module(*other))
    wrong = tuple(filter(_differs(call), reports))
    return Finding(wrong) if wrong else None


def failed(error: BaseException) -> Finding:
    """Return the finding for a call whose export or session fails."""
    return Finding(error=summary(list(causes(error))[-1]))


def _is_checked(node: torch.fx.Node) -> bool:
    """Return whether a call's translation is verified; among constants, only complex ones may be translated wrongly."""
    if is_constant(node):
        return bool(node.meta["val"].is_complex())
    return target_of(node) is node.target and not reasons.against_fallback(node, target_of(node))


class _Recorder(ProgramRun):
    """An interpreter that runs a graph, including both branches of a ``torch.cond``, and records its distinct calls."""

    def __init__(self, module: torch.fx.GraphModule, left: Set[str], found: dict[Any, DistinctCall]) -> None:
        super().__init__(module)
        self._left = left
        self._found = found

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.target is torch.ops.higher_order.cond:
            predicate, true, false, operands = self.fetch_args_kwargs_from_env(n)[0]
            results = [_Recorder(branch, self._left, self._found).run(*operands) for branch in (true, false)]
            return results[0] if predicate else results[1]
        result = super().run_node(n)
        if isinstance(n.target, OpOverload) and mark_of(n) and mark_of(n) not in self._left and _is_checked(n):
            self._record(n, mark_of(n), result)
        return result

    def _record(self, node: torch.fx.Node, name: str, result: Any) -> None:
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        dynamic = tuple(map(_dynamic_dims, _tensor_nodes((node.args, node.kwargs))))
        key = (node.target, tuple(map(_key, flatten((args, kwargs)))), _structure((args, kwargs)), dynamic)
        if key not in self._found:
            self._found[key] = DistinctCall(target_of(node), tuple(args), dict(kwargs), dynamic, result)
        call = self._found[key]
        call.names.append(name)
        if not isinstance(result, torch.Tensor):
            call.used |= {index for user in node.users for index in user.args[1:] if isinstance(index, int)}


def _key(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, tuple(leaf.shape)
    return type(leaf), str(leaf)


def _structure(tree: Any) -> str:
    return str(replace_leaves(tree, itertools.repeat("*"), lambda leaf: True))


def _tensor_nodes(tree: Any) -> list[torch.fx.Node]:
    nodes = [leaf for leaf in flatten(tree) if isinstance(leaf, torch.fx.Node)]
    return [node for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]


def _dynamic_dims(node: torch.fx.Node) -> frozenset[int]:
    return frozenset(index for index, size in enumerate(node.meta["val"].shape) if not isinstance(size, int))


def _reports(session: Any, tensors: Tensors, expected: Any) -> list[OutputComparison]:
    names = [item.name for item in session.get_inputs()]
    actual = session.run(None, dict(zip(names, map(as_onnx_array, tensors), strict=True)))
    return compare(0, [item.name for item in session.get_outputs()], to_onnx_outputs(expected), actual, WIDE_TOLERANCES)


def _differs(call: DistinctCall) -> Callable[[OutputComparison], bool]:
    """Return a function that tells whether an output is wrong; for a random one, only dtype and shape are compared."""
    if allowed_operators.is_arbitrary(call.target):
        return lambda report: bool(report.problem)
    return lambda report: not report.ok
