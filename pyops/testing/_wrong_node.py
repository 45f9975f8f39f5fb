"""The first node of a model that computes something else than expected, found by comparing its values one by one.

The values of a run are compared with those of a reference. Where one differs, the nodes that compute it from the values
before it are run alone, on the reference's values: so a wrong node is told apart from those that pass on what it has
computed, and from rounding that grows along the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import onnx

from .._core import Model, full_domain, graphs
from .._support.element_types import describe
from .._support.progress import step
from .._support.text_tables import Displayable, Part
from .._tolerances import Array, difference, format_difference

CALL, STACK = "pkg.torch.onnx.fx_node", "pkg.torch.onnx.stack_trace"
"""Where torch's exporter writes the call that a node comes from, and the lines of code that make it."""

_FIRST_PART = 32
_BYTES = 1 << 30  # of values that are compared at once
_SUSPECTS = 16  # values whose nodes are run alone
_SHOWN = 8  # rows before and after the first wrong one
_TARGET = re.compile(r"target=torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?\]")
_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+), in .*\n\s*(?P<code>.*)')


class Expected(NamedTuple):
    """What a value should be: it may differ by ``atol + rtol * abs(array)``."""

    array: Array
    rtol: float
    atol: float


Reference = Callable[[Sequence[str]], Mapping[str, Expected]]
"""Returns what values of the model should be, by their names; without those that it does not know."""


@dataclass(frozen=True)
class ValueComparison:
    """The comparison of one value of a model with what it should be.

    Attributes
    ----------
    name, node, op : str
        The value, the node that computes it, and that node's operator.
    absolute : float
        The largest difference; NaN if the dtype or the shape differs, or if NaN is on one side only.
    allowed : float
        The largest difference that is allowed.
    ok : bool
        Whether every element is within its tolerance.
    """

    name: str
    node: str
    op: str
    absolute: float
    allowed: float
    ok: bool


@dataclass(frozen=True)
class WrongNode:
    """A node whose inputs agree with the reference and whose output does not.

    Attributes
    ----------
    nodes : tuple of str
        Its name; several names if there are values between them that have no counterpart.
    op : str
        The operator of the last of them.
    value : str
        The output that differs.
    difference : str
        How it differs, with the first wrong element.
    call : str
        The call in the torch model that the node comes from, such as ``"aten::gelu"``; ``""`` if unknown.
    place : str
        The line of that call: ``"model.py:12: y = gelu(x)"``; ``""`` if unknown.
    """

    nodes: tuple[str, ...]
    op: str
    value: str
    difference: str
    call: str = ""
    place: str = ""

    def __str__(self) -> str:
        last = f"{self.op} {self.nodes[-1]!r}"
        which = f"the first wrong node is {last}"
        if len(self.nodes) > 1:
            which = f"the first wrong node is among the {len(self.nodes)} that end with {last}: {', '.join(self.nodes)}"
        origin = " in ".join(filter(None, (self.call, self.place)))
        return which + (f"; it comes from {origin}" if origin else "")


@dataclass(frozen=True, repr=False)
class Location(Displayable):
    """Where a model begins to differ from a reference.

    Attributes
    ----------
    first : WrongNode or None
        The first wrong node; None if there is none.
    values : tuple of ValueComparison
        The values that have a counterpart, in the order of the nodes.
    steps : int
        The number of values that may have a counterpart: the outputs of nodes, of one torch call those of the last
        node, without nodes that an exporter adds.
    note : str
        A further explanation; ``""`` if there is none.
    """

    first: WrongNode | None
    values: tuple[ValueComparison, ...]
    steps: int
    note: str = ""

    def parts(self) -> list[Part]:
        """Return the parts to display: the first wrong node, how its output differs, and the values around it."""
        return [*self.headline(), *self.values_around()]

    def headline(self) -> list[str]:
        """Return the lines about the first wrong node."""
        first = [str(self.first), f"its output {self.first.value!r} {self.first.difference}"] if self.first else []
        return [*first, *filter(None, [self.note])]

    def values_around(self) -> list[Part]:
        """Return the table of the values around the first wrong one, if any, and how many have a counterpart."""
        rows = [
            (item.name, item.op, f"{item.absolute:.3g}", f"{item.allowed:.3g}", "yes" if item.ok else "NO")
            for item in (self._shown() if self.first or self.note else ())
        ]
        counted = f"{len(self.values)} of {self.steps} values have a counterpart"
        return [[("value", "op", "max abs", "allowed", "ok"), *rows], counted]

    def picture(self) -> str:
        """Return a picture of the differences along the model, in powers of ten of what is allowed."""
        ratios = [item.absolute / item.allowed if item.allowed else item.absolute for item in self.values]
        heights = 10 * np.log10(np.clip(np.nan_to_num(ratios, nan=np.inf), 1e-4, 1e4))
        points = " ".join(f"{x},{60 - height:.0f}" for x, height in enumerate(heights))
        line = f'<line x1="0" y1="60" x2="{len(heights)}" y2="60" stroke="gray"/>'
        shape = f'viewBox="0 0 {max(1, len(heights))} 120" preserveAspectRatio="none" width="100%" height="120"'
        return f'<svg {shape}>{line}<polyline points="{points}" fill="none" stroke="crimson"/></svg>'

    def _shown(self) -> Sequence[ValueComparison]:
        named = self.first.value if self.first else ""
        wrong = next((i for i, item in enumerate(self.values) if item.name == named or not (named or item.ok)), 0)
        return self.values[max(0, wrong - _SHOWN) : wrong + _SHOWN + 1]


class ModelValues:
    """The values that the nodes of a model compute.

    Parameters
    ----------
    make_session : callable
        Returns a session of a model; it does not optimize, so that the nodes stay those of the model.
    """

    def __init__(self, model: Model, feed: Mapping[str, Any], make_session: Callable[[Model], Any]) -> None:
        assert model.proto is not None
        self.nodes = list(model.proto.graph.node)
        self.producers = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.outputs = [item.name for item in model.proto.graph.output]
        self._model, self._graph = model, model.proto.graph
        self._feed, self._make_session = feed, make_session

    def steps(self) -> list[str]:
        """Return the values that may have a counterpart: of the nodes of one torch call, those of the last."""
        last = {metadata(node, CALL) or index: index for index, node in enumerate(self.nodes)}
        return [name for index in sorted(last.values()) for name in self.nodes[index].output if name]

    def is_of_call(self, name: str) -> bool:
        """Return whether a value comes from a torch call, or no node of the model does."""
        is_known = any(metadata(node, CALL) for node in self.nodes)
        return not is_known or bool(metadata(self.nodes[self.producers[name]], CALL))

    def run(self, names: Sequence[str]) -> dict[str, Array]:
        """Return what the model computes for these values, as far as they are tensors."""
        return self._run(range(len(self.nodes)), self._graph.input, names, self._feed)

    def parts(self, names: Iterable[str]) -> Iterator[dict[str, Array]]:
        """Yield what the model computes for these values, in parts that fit into memory."""
        rest, count = list(names), _FIRST_PART
        while rest:
            found = self.run(rest[:count])
            yield found
            del rest[:count]
            mean = max(1, sum(array.nbytes for array in found.values()) // max(1, len(found)))
            count = max(1, min(_BYTES // mean, 16 * count))

    def run_alone(self, name: str, given: Mapping[str, Array]) -> tuple[list[int], Array | None]:
        """Return the nodes that compute a value from given ones, and what they compute from these."""
        nodes, inputs = self._between(name, given)
        feed = {item: given[item] if item in given else self._feed[item] for item in inputs}
        declared = {item.name: item for item in self._graph.input}
        typed = [_value_info(item, given[item]) if item in given else declared[item] for item in inputs]
        return nodes, self._run(nodes, typed, [name], feed).get(name)

    def inputs_of(self, name: str, known: Iterable[str]) -> list[str]:
        """Return the known values from which a value is computed."""
        return [item for item in self._between(name, set(known))[1] if item in self.producers]

    def _between(self, name: str, given: Any) -> tuple[list[int], list[str]]:
        nodes, inputs, rest = set(), dict[str, None](), [name]
        while rest:
            producer = self.producers[rest.pop()]
            nodes.add(producer)
            for item in _read_by(self.nodes[producer]):
                if item in given or item in self._feed:
                    inputs[item] = None
                elif self.producers.get(item, producer) not in nodes:
                    rest.append(item)
        return sorted(nodes), list(inputs)

    def _run(self, nodes: Iterable[int], inputs: Iterable[Any], names: Sequence[str], feed: Any) -> dict[str, Array]:
        assert self._model.proto is not None
        proto = onnx.ModelProto()
        proto.CopyFrom(self._model.proto)
        chosen = [self.nodes[index] for index in nodes]
        read = {item for node in chosen for item in _read_by(node)}
        graph = onnx.GraphProto(name=self._graph.name, node=chosen, input=inputs)
        # A value that is fed is no initializer, or ONNX Runtime would take the initializer.
        graph.initializer.extend(item for item in self._graph.initializer if item.name in read - feed.keys())
        graph.sparse_initializer.extend(self._graph.sparse_initializer)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        proto.graph.CopyFrom(graph)
        model = Model(b"", proto, self._model.folder, self._model.values)
        model.source = model.serialized()
        session = self._make_session(model)
        taken = {item.name for item in session.get_inputs()}
        results = session.run(list(names), {name: value for name, value in feed.items() if name in taken})
        return {name: item for name, item in zip(names, results, strict=True) if isinstance(item, np.ndarray)}


def _value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _read_by(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, its subgraphs included."""
    found = list(filter(None, node.input))
    for graph in [] if not node.attribute else list(graphs(SimpleNamespace(node=[node])))[1:]:
        found += [name for inner in graph.node for name in inner.input if name]
        found += [item.name for item in graph.output]
    return found


def locate(values: ModelValues, reference: Reference, agrees: bool) -> Location:
    """Compare the values of a model with a reference, and find the first node that is wrong by itself.

    Parameters
    ----------
    agrees : bool
        Whether the outputs agree; then no node is wrong.
    """
    compared: list[ValueComparison] = []
    steps = values.steps()
    for computed in values.parts(steps):
        step("comparing values", len(compared), len(steps))
        expected = reference(list(computed))
        compared += [_compared(values, name, expected[name], computed[name]) for name in computed if name in expected]
    by_name = {item.name: item for item in compared}
    count = sum(name in by_name or values.is_of_call(name) for name in steps)
    wrong = [item.name for item in compared if not item.ok]
    inputs = {name: values.inputs_of(name, by_name) for name in wrong}
    wrong.sort(key=lambda name: not all(by_name[item].ok for item in inputs[name]))
    for name in [] if agrees else wrong[:_SUSPECTS]:
        step(f"running the nodes of {name} alone")
        expected = reference([name, *inputs[name]])
        given = {item: found.array for item, found in expected.items() if item != name}
        nodes, actual = values.run_alone(name, given)
        if actual is not None and not _compared(values, name, expected[name], actual).ok:
            return Location(_wrong_node(values, nodes, name, expected[name], actual), tuple(compared), count)
    note = ""
    if wrong and not agrees:
        note = "no node is wrong by itself: the difference grows from value to value, as rounding does"
    return Location(None, tuple(compared), count, note)


def _compared(values: ModelValues, name: str, expected: Expected, actual: Array) -> ValueComparison:
    node = values.nodes[values.producers[name]]
    return compare_value(name, node.name, _operator(node), expected, actual)


def compare_value(name: str, node: str, operator: str, expected: Expected, actual: Array) -> ValueComparison:
    """Compare a value with what it should be."""
    array = expected.array
    if (array.dtype, array.shape) != (actual.dtype, actual.shape):
        return ValueComparison(name, node, operator, np.nan, 0.0, False)
    found = difference(array, actual, expected.rtol, expected.atol)
    finite = np.abs(array[np.isfinite(array)]) if array.dtype.kind in "fc" else np.zeros(1)
    allowed = expected.atol + expected.rtol * float(finite.max(initial=0))
    largest = float(found.absolute.max(initial=0))
    return ValueComparison(name, node, operator, largest, allowed, not found.wrong.any())


def _wrong_node(values: ModelValues, nodes: list[int], name: str, expected: Expected, actual: Array) -> WrongNode:
    last = values.nodes[nodes[-1]]
    if (expected.array.dtype, expected.array.shape) != (actual.dtype, actual.shape):
        text = f"is {describe(actual)} where {describe(expected.array)} is expected"
    else:
        found = difference(expected.array, actual, expected.rtol, expected.atol)
        text = format_difference(actual, expected.array, found)
    target = _TARGET.search(metadata(last, CALL))
    call = "" if target is None else f"{target[1]}::{target[2]}{f'.{target[3]}' if target[3] != 'default' else ''}"
    names = tuple(values.nodes[index].name or values.nodes[index].op_type for index in nodes)
    return WrongNode(names, _operator(last), name, text, call, _place(last))


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if full_domain(node.domain) != "ai.onnx" else node.op_type


def _place(node: onnx.NodeProto) -> str:
    """Return the innermost line of the user's code, or of any if all are of installed packages."""
    frames = list(_FRAME.finditer(metadata(node, STACK)))
    own = [item for item in frames if "site-packages" not in item["file"]] or frames
    return f"{own[-1]['file']}:{own[-1]['line']}: {own[-1]['code'].strip()}" if own else ""


def metadata(node: onnx.NodeProto, key: str) -> str:
    """Return an entry of a node's metadata, or ``""``."""
    return next((item.value for item in node.metadata_props if item.key == key), "")
