"""Places of a model: where its nodes compute what an op does, and where they nearly match."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx_ir

from .. import Op
from .._core import Decomposition, output_dtypes
from .._support.element_types import DType
from .._support.progress import track
from ..errors import PyopsError
from ..shapes import SymbolicDim, TensorSpec
from .matching import Bound, Difference, Matcher, State
from .normal_form import NormalForm
from .patterns import Pattern, exact_pattern, patterns_of
from .terms import ONE, Term
from .value_types import ValueType

_NEAR = 0.5  # the part of a pattern that must agree


class Multiple(NamedTuple):
    """What a value is: a number times another value, in a dtype of its own."""

    source: str
    ratio: float
    dtype: DType


@dataclass
class Candidate:
    """A place that was found, before its numbers are compared.

    Attributes
    ----------
    op : Op
        What may replace the nodes.
    decomposition : Decomposition
        The decomposition of the op that the nodes match.
    output : onnx_ir.Value
        The value that the nodes compute.
    inputs : sequence of Bound
        The values from which they compute it, in the order of the op's inputs.
    attributes : mapping
        All attributes of the op.
    specs : sequence of TensorSpec
        The specs of the inputs.
    multiples : mapping of str to Multiple
        The values that are a number times an input, by name.
    nodes : sequence of onnx_ir.Node
        The nodes to remove.
    shared : list of onnx_ir.Value
        The values within the place that other nodes use, or that are outputs of the model.
    """

    op: Op[..., Any]
    decomposition: Decomposition
    output: onnx_ir.Value
    inputs: Sequence[Bound]
    attributes: Mapping[str, Any]
    specs: Sequence[TensorSpec]
    multiples: Mapping[str, Multiple]
    nodes: Sequence[onnx_ir.Node] = ()
    shared: list[onnx_ir.Value] = field(default_factory=list)


@dataclass(frozen=True)
class Near:
    """A value that is nearly what an op computes.

    Attributes
    ----------
    op, node : str
        The op, and the last node of what was compared.
    agreeing, total : int
        How many operators and constants agree, and how many the pattern has.
    reason : str
        What differs.
    """

    op: str
    node: str
    agreeing: int
    total: int
    reason: str

    @property
    def is_close(self) -> bool:
        """Return whether at least half of the pattern agrees."""
        return self.agreeing >= _NEAR * self.total

    def __str__(self) -> str:
        return f"{self.agreeing} of {self.total}: {self.reason}"


class Search:
    """The search for places in one graph."""

    def __init__(self, graph: onnx_ir.Graph, form: NormalForm, ops: Sequence[Op[..., Any]]) -> None:
        self._graph, self._form = graph, form
        self._ops = ops
        self._near: dict[Near, None] = {}
        self.problems: list[str] = []
        self._removed: set[onnx_ir.Node] = set()
        self._read: set[onnx_ir.Value] = set()  # by the nodes that replace those
        self._found: set[str] = set()

    def candidates(self) -> Iterator[Candidate]:
        """Yield places that do not overlap, from the end of the graph; an earlier op comes before a later one."""
        rest = list(self._ops)
        for plain in (False, True):  # torch's own exporter writes some decompositions in another way
            matchers: list[tuple[Op[..., Any], Pattern, Matcher]] = []
            for op in rest:
                patterns, problems = patterns_of(op, self._form.opset, plain)
                self.problems += problems
                matchers += [(op, item, Matcher(item.root, self._form, None, self._removed)) for item in patterns]
            for candidate in self._candidates(matchers, plain):
                self._found.add(candidate.op.signature.qualified_name)
                self._replace(candidate)
                yield candidate
            rest = [op for op in rest if op.signature.qualified_name not in self._found]
        for op in rest:
            if op.signature.qualified_name not in {item.op for item in self._near if item.is_close}:
                self._find_parts(op)

    def measure(self, candidates: Iterable[Candidate]) -> None:
        """Find the nodes of places again, if no others are replaced."""
        self._removed.clear()
        self._read.clear()
        for candidate in candidates:
            self._measure(candidate)
            self._replace(candidate)

    def near(self) -> list[Near]:
        """Return what nearly matches; for an op with neither a place nor a near match, what comes closest."""
        close = [item for item in self._near if item.is_close]
        best: dict[str, Near] = {}
        for item in self._near:
            if item.agreeing > best.get(item.op, item).agreeing or item.op not in best:
                best[item.op] = item
        known = self._found | {near.op for near in close}
        return close + [item for name, item in best.items() if name not in known]

    def _candidates(
        self, matchers: Sequence[tuple[Op[..., Any], Pattern, Matcher]], plain: bool
    ) -> Iterator[Candidate]:
        for node in track(list(reversed(self._graph)), "searching nodes"):
            values = node.outputs if node not in self._removed else ()
            candidates = (self._at(value, matchers, plain) for value in values)
            yield from itertools.islice(filter(None, candidates), 1)

    def _at(
        self, value: onnx_ir.Value, matchers: Sequence[tuple[Op[..., Any], Pattern, Matcher]], plain: bool
    ) -> Candidate | None:
        nearest: dict[str, Near] = {}
        _, term = self._form.of(value)
        kinds = {term.op, *(other.op for _, other in term.forms)}
        for op, pattern, matcher in matchers:
            root = pattern.root[1]
            if kinds.isdisjoint({root.op, *(other.op for _, other in root.forms)}):
                continue
            state = matcher.match(value)
            problem: str | Difference = ""
            if isinstance(state, State):
                result = self._exact(op, pattern, value, state, plain)
                if isinstance(result, Candidate):
                    return result
                problem, count = result, matcher.total
            else:
                problem, count = state.reason, state.count
            name = op.signature.qualified_name
            near = Near(name, _name_of(value.producer()), min(count, matcher.total), matcher.total, str(problem))
            if name not in nearest or nearest[name].agreeing < count:
                nearest[name] = near
        self._near |= dict.fromkeys(nearest.values())
        return None

    def _exact(
        self, op: Op[..., Any], pattern: Pattern, value: onnx_ir.Value, state: State, plain: bool
    ) -> Candidate | str:
        """Compare a place with the decomposition for the sizes, types and attributes of the place."""
        attributes = {**pattern.attributes, **state.attributes}
        missing = [item.name for item in op.signature.attributes if item.name not in attributes]
        if missing:
            return f"the attribute {missing[0]} cannot be read from the nodes"
        absent = [name for name in pattern.names if name not in state.inputs]
        if absent:
            return f"the input {absent[0]} cannot be read from the nodes"
        inputs = [state.inputs[name] for name in pattern.names]
        types = [self._type_of(item) for item in inputs]
        own = self._form.type(value)
        for item, known in zip(inputs, types, strict=True):
            if known is None or known.shape is None:
                return f"the type or the rank of {item.value.name} is not known"
        specs = [_spec(number, item) for number, item in enumerate(filter(None, types))]
        try:
            attributes = op.signature.convert_attributes(attributes)
            (dtype,) = output_dtypes(op.signature, [spec.dtype for spec in specs])
        except PyopsError as error:
            return str(error)
        for name, number in state.attributes.items():
            if (
                own is not None
                and own.dtype == np.float64
                and not math.isclose(attributes[name], number, rel_tol=1e-12)
            ):
                return f"{name} is {number!r}, which the attribute, a float32, cannot hold"
        if own is None or (dtype is not None and own.dtype != dtype):
            return f"the op returns {dtype}, the nodes {None if own is None else own.dtype}"
        problem = self._problem(pattern, specs, attributes, value, state, plain)
        if problem:
            return f"for its sizes: {problem}"
        multiples = {name: found for item in inputs for name, found in self._multiples(item.value)}
        candidate = Candidate(op, pattern.decomposition, value, inputs, attributes, specs, multiples)
        self._measure(candidate)
        return candidate if candidate.nodes else "all that its nodes compute is used by other nodes"

    def _problem(
        self,
        pattern: Pattern,
        specs: Sequence[TensorSpec],
        attributes: Mapping[str, Any],
        value: onnx_ir.Value,
        state: State,
        plain: bool,
    ) -> str:
        """Compare a place with what the decomposition is for its sizes and types; return what differs."""
        exact = exact_pattern(pattern.decomposition, specs, attributes, self._form.opset, plain)
        if isinstance(exact, str):
            return exact
        shapes = [self._type_of(state.inputs[name]) for name in pattern.names]
        dims = dict(_pairs(exact.dims, [(item and item.shape) or () for item in shapes]))
        result = Matcher(exact.root, self._form, dims, self._removed).match(value, State(state.inputs, {}, 0))
        return (result.reason or "the nodes compute something else") if isinstance(result, Difference) else ""

    def _multiples(self, value: onnx_ir.Value) -> Iterator[tuple[str, Multiple]]:
        """Yield the other values that are multiples of a value: nodes of a place may read those."""
        own, term = self._form.of(value)
        for other, factor in term.names:
            known = self._form.type(other)
            if known is not None and known.shape == self._form.shape(value) and own.number and other is not value:
                yield str(other.name), Multiple(str(value.name), factor.number / own.number, known.dtype)

    def _type_of(self, bound: Bound) -> ValueType | None:
        found = self._form.type(bound.value)
        if found is None or found.shape is None or not bound.permutation:
            return found
        return ValueType(found.dtype, tuple(found.shape[axis] for axis in bound.permutation))

    def _replace(self, candidate: Candidate) -> None:
        self._removed |= {*candidate.nodes}
        self._read |= {item.value for item in candidate.inputs}

    def _measure(self, candidate: Candidate) -> None:
        """Find the nodes that a candidate replaces, and the values within it that stay."""
        inputs = {item.value for item in candidate.inputs}
        gone: dict[onnx_ir.Node, None] = {}
        first = candidate.output.producer()
        assert first is not None
        rest, within = {first}, dict[onnx_ir.Node, None]()
        while rest:
            node = max(rest, key=self._form.position.__getitem__)  # after all nodes that use it
            rest.remove(node)
            within[node] = None
            outputs = [value for value in node.outputs if value is not candidate.output]
            users = {user for value in outputs for user, _ in value.uses()} - self._removed
            is_read = any(value.is_graph_output() or value in self._read for value in outputs)
            if is_read or not users <= gone.keys():
                continue
            gone[node] = None
            producers = [value.producer() for value in node.inputs if value is not None and value not in inputs]
            rest |= {item for item in producers if item is not None and item.graph is self._graph}
        candidate.nodes = list(gone)
        candidate.shared = [
            value
            for node in within
            for value in node.outputs
            if node not in gone and value not in inputs and self._form.constant(value) is None
        ]

    def _find_parts(self, op: Op[..., Any]) -> None:
        """Find where a larger part of the op's pattern matches, for an op that was not found."""
        patterns, _ = patterns_of(op, self._form.opset, False)
        parts = [(item.root[1].size + 1, part) for item in patterns for part in _large_parts(item.root[1])]
        for whole, part in sorted(parts, key=lambda item: -item[1].size):
            matcher = Matcher((ONE, part), self._form)
            for node in self._graph:
                for value in node.outputs:
                    if self._form.of(value)[1].op == part.op and isinstance(matcher.match(value), State):
                        reason = f"the nodes compute {part.describe(3)}, and what follows differs"
                        name = op.signature.qualified_name
                        self._near[Near(name, _name_of(node), part.size, whole, reason)] = None
                        return


def _large_parts(root: Term) -> list[Term]:
    """Return the terms that a term is made of and that are at least half as large."""
    found, rest = dict[Term, None](), [root]
    while rest:
        inner = [term for _, term in rest.pop().args if term.size >= _NEAR * root.size and term not in found]
        found |= dict.fromkeys(inner)
        rest += inner
    return list(found)


def _name_of(node: onnx_ir.Node | None) -> str:
    return "" if node is None else node.name or f"{node.op_type} of {node.outputs[0].name}"


def _spec(number: int, known: ValueType) -> TensorSpec:
    dims = [
        dim if isinstance(dim, int) else SymbolicDim(dim or f"unknown_{number}_{axis}")
        for axis, dim in enumerate(known.shape or ())
    ]
    return TensorSpec(dims, known.dtype)


def _pairs(a: Iterable[Sequence[Any]], b: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, Any]]:
    for first, second in zip(a, b, strict=True):
        yield from ((x, y) for x, y in zip(first, second, strict=True) if not isinstance(x, int))
