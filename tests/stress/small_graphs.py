"""A builder of small ONNX graphs that knows the shape and the type of each value, for any sizes of dynamic dimensions.

``Graph.add`` raises ``UnfitError`` for a node that could not run for all sizes; ``Graph.checked`` says the same of a
graph whose nodes were changed.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import onnx

Shape = tuple[int | str, ...]
FLOAT16, FLOAT32, FLOAT64 = (np.dtype(name) for name in ("float16", "float32", "float64"))
INT32, INT64, BOOL = (np.dtype(name) for name in ("int32", "int64", "bool"))
TYPES = {
    FLOAT16: onnx.TensorProto.FLOAT16,
    FLOAT32: onnx.TensorProto.FLOAT,
    FLOAT64: onnx.TensorProto.DOUBLE,
    INT32: onnx.TensorProto.INT32,
    INT64: onnx.TensorProto.INT64,
    BOOL: onnx.TensorProto.BOOL,
}
DTYPES = {number: dtype for dtype, number in TYPES.items()}


class UnfitError(Exception):
    """No model: shapes or types that do not fit."""


class Value(NamedTuple):
    name: str
    shape: Shape
    dtype: np.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"


@dataclass(frozen=True)
class Node:
    """A node, and the number of the place to which it belongs."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    place: int | None


class Graph:
    """Inputs, constants, nodes in an order in which they can run, and what is known of their values."""

    def __init__(self, opset: int, rng: random.Random) -> None:
        self.opset = opset
        self.rng = rng
        self.values: dict[str, Value] = {}
        self.inputs: list[Value] = []
        self.outputs: list[str] = []
        self.constants: dict[str, np.ndarray] = {}
        self.constant_nodes: dict[str, str] = {}  # the attribute of the Constant node
        self.constant_places: dict[str, int | None] = {}
        self.nodes: list[Node] = []
        self.place: int | None = None
        self._counts: dict[int | None, int] = {}
        self._inferred: dict[str, tuple[Node, list[Value], tuple[Value, ...]]] = {}

    def copy(self) -> Graph:
        """Return a graph whose nodes, constants and outputs may be replaced."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict):
                setattr(other, name, value.copy())
        return other

    def new_name(self) -> str:
        count = self._counts[self.place] = self._counts.get(self.place, 0) + 1
        return f"v{count}" if self.place is None else f"p{self.place}_{count}"

    def input(self, shape: Shape, dtype: np.dtype) -> Value:
        value = Value(self.new_name(), shape, dtype)
        self.inputs.append(value)
        self.values[value.name] = value
        return value

    def constant(self, array: Any, *, node: str | None = None) -> Value:
        """Return an initializer, or the output of a Constant node with this attribute."""
        array = np.asarray(array)
        value = Value(self.new_name(), array.shape, array.dtype)
        self.constants[value.name] = array
        self.constant_places[value.name] = self.place
        if node:
            self.constant_nodes[value.name] = node
        self.values[value.name] = value
        return value

    def integers(self, *numbers: int) -> Value:
        node = "value" if self.rng.random() < 0.4 else None
        return self.constant(np.array(numbers, np.int64), node=node)

    def add(self, op: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        """Return the output of a new node, or a tuple of several."""
        names = tuple(value.name if value else "" for value in inputs)
        node = Node(op, names, tuple(self.new_name() for _ in range(outputs)), attributes, self.place)
        found = self._infer(node)
        self.nodes.append(node)
        return found[0] if outputs == 1 else found

    def rename(self, value: Value, name: str) -> Value:
        """Give another name to the output of the latest node."""
        node = self.nodes[-1]
        if node.outputs != (value.name,):
            raise ValueError(value)
        self.nodes[-1] = replace(node, outputs=(name,))
        self.values[name] = self.values.pop(value.name)._replace(name=name)
        return self.values[name]

    def _infer(self, node: Node) -> tuple[Value, ...]:
        given = [self.values[name] for name in node.inputs if name]
        known = self._inferred.get(node.outputs[0])
        if known and known[0] is node and known[1] == given:
            found = known[2]
        else:
            kinds = RULES[node.op](self, node, given)
            found = tuple([Value(name, *kind) for name, kind in zip(node.outputs, kinds, strict=True)])
            self._inferred[node.outputs[0]] = node, given, found
        for value in found:
            self.values[value.name] = value
        return found

    def checked(self) -> Graph:
        """Return the graph, without what no output needs, if all of its nodes fit."""
        needed = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed.update(node.inputs)
        self.nodes = kept[::-1]
        self.constants = {name: array for name, array in self.constants.items() if name in needed}
        self.values = {value.name: value for value in self.inputs}
        for name, array in self.constants.items():
            self.values[name] = Value(name, array.shape, array.dtype)
        for node in self.nodes:
            self._infer(node)
        return self

    def readers(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def model(self, *, shuffled: bool = False) -> onnx.ModelProto:
        """Return the model, its nodes in another order that can run if ``shuffled``."""
        nodes = self.nodes
        if shuffled:
            after: dict[str, float] = {}
            for node in nodes:
                at = max((after.get(name, 0.0) for name in node.inputs), default=0.0) + self.rng.random()
                after.update(dict.fromkeys(node.outputs, at))
            nodes = sorted(nodes, key=lambda node: after[node.outputs[0]])
        constants = [
            _constant_node(name, self.constants[name], attribute)
            for name, attribute in self.constant_nodes.items()
            if name in self.constants
        ]
        ir_version = 8 if self.opset < 19 else 9 if self.opset < 21 else 10 if self.opset < 23 else 11
        return onnx.ModelProto(
            ir_version=ir_version,
            producer_name="planted",
            opset_import=[onnx.OperatorSetIdProto(domain="", version=self.opset)],
            graph=onnx.GraphProto(
                name="graph",
                node=constants + [_node_proto(node) for node in nodes],
                input=[_value_info(value) for value in self.inputs],
                output=[_value_info(self.values[name]) for name in self.outputs],
                initializer=[
                    _tensor(array, name) for name, array in self.constants.items() if name not in self.constant_nodes
                ],
            ),
        )


def _node_proto(node: Node) -> onnx.NodeProto:
    return onnx.NodeProto(
        op_type=node.op,
        input=node.inputs,
        output=node.outputs,
        attribute=[_attribute(name, value) for name, value in node.attributes.items()],
    )


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    kind = onnx.AttributeProto
    if isinstance(value, float):
        return kind(name=name, type=kind.FLOAT, f=value)
    if isinstance(value, int):
        return kind(name=name, type=kind.INT, i=value)
    if isinstance(value, str):
        return kind(name=name, type=kind.STRING, s=value.encode())
    return kind(name=name, type=kind.INTS, ints=value)


def _constant_node(name: str, array: np.ndarray, attribute: str) -> onnx.NodeProto:
    written = (
        _attribute("value_float", float(array))
        if attribute == "value_float"
        else onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=_tensor(array, ""))
    )
    return onnx.NodeProto(op_type="Constant", output=[name], attribute=[written])


def _tensor(array: np.ndarray, name: str) -> onnx.TensorProto:
    return onnx.TensorProto(name=name, data_type=TYPES[array.dtype], dims=array.shape, raw_data=array.tobytes())


def _value_info(value: Value) -> onnx.ValueInfoProto:
    dims = [
        onnx.TensorShapeProto.Dimension(dim_param=size)
        if isinstance(size, str)
        else onnx.TensorShapeProto.Dimension(dim_value=size)
        for size in value.shape
    ]
    tensor = onnx.TypeProto.Tensor(elem_type=TYPES[value.dtype], shape=onnx.TensorShapeProto(dim=dims))
    return onnx.ValueInfoProto(name=value.name, type=onnx.TypeProto(tensor_type=tensor))


# What is known of the outputs of a node: a rule for each operator.

Kinds = list[tuple[Shape, np.dtype]]
Rule = Callable[[Graph, Node, list[Value]], Kinds]


def broadcast(*shapes: Shape) -> Shape:
    if len(set(shapes)) == 1:
        return shapes[0]
    rank = max(map(len, shapes))
    found: list[int | str] = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise UnfitError(shapes)
        found.append(wide.pop() if wide else 1)
    return tuple(found)


def _one_dtype(values: list[Value]) -> np.dtype:
    dtype = values[0].dtype
    if any(value.dtype != dtype for value in values):
        raise UnfitError(values)
    return dtype


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise UnfitError(axis)
    return axis % rank


def _integers(graph: Graph, name: str) -> list[int]:
    if name not in graph.constants:
        raise UnfitError("integers that are not constant")
    return np.ravel(graph.constants[name]).tolist()


def _elementwise(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    return [(broadcast(*(value.shape for value in values)), _one_dtype(values))]


def _pow(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    return [(broadcast(*(value.shape for value in values)), values[0].dtype)]


def _same(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    if "axis" in node.attributes:
        _axis(node.attributes["axis"], values[0].rank)
    return [(values[0].shape, values[0].dtype)]


def _normalization(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    axis = _axis(node.attributes.get("axis", -1), x.rank)
    for other in values[1:]:
        if other.rank > x.rank - axis or broadcast(other.shape, x.shape[axis:]) != x.shape[axis:]:
            raise UnfitError(other)
    return [(x.shape, _one_dtype(values))]


def _cast(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    return [(values[0].shape, DTYPES[node.attributes["to"]])]


def _cast_like(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    return [(values[0].shape, values[1].dtype)]


def _reduce(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    given = _integers(graph, node.inputs[1]) if len(node.inputs) > 1 else node.attributes["axes"]
    axes = {_axis(axis, x.rank) for axis in given}
    if node.attributes.get("keepdims", 1):
        return [(tuple(1 if at in axes else size for at, size in enumerate(x.shape)), x.dtype)]
    return [(tuple(size for at, size in enumerate(x.shape) if at not in axes), x.dtype)]


def _matmul(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    a, b = values
    if min(a.rank, b.rank) < 2 or a.shape[-1] != b.shape[-2]:
        raise UnfitError(values)
    return [((*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), _one_dtype(values))]


def _gemm(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    if any(value.rank != 2 for value in values[:2]):
        raise UnfitError(values)
    a = values[0].shape[:: -1 if node.attributes.get("transA") else 1]
    b = values[1].shape[:: -1 if node.attributes.get("transB") else 1]
    shape = (a[0], b[1])
    if a[1] != b[0] or any(broadcast(c.shape, shape) != shape for c in values[2:]):
        raise UnfitError(values)
    return [(shape, _one_dtype(values))]


def _einsum(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    left, right = node.attributes["equation"].split("->")
    sizes: dict[str, int | str] = {}
    for term, value in zip(left.split(","), values, strict=True):
        if len(term) != value.rank:
            raise UnfitError(values)
        for letter, size in zip(term, value.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise UnfitError(values)
    if not set(right) <= set(sizes):
        raise UnfitError(right)
    return [(tuple(sizes[letter] for letter in right), _one_dtype(values))]


def _transpose(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    perm = node.attributes.get("perm", list(range(x.rank))[::-1])
    if sorted(perm) != list(range(x.rank)):
        raise UnfitError(perm)
    return [(tuple(x.shape[axis] for axis in perm), x.dtype)]


def _concat(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    axis = _axis(node.attributes["axis"], x.rank)
    rest = {(*value.shape[:axis], *value.shape[axis + 1 :]) for value in values if value.rank == x.rank}
    if len(rest) > 1 or any(value.rank != x.rank for value in values):
        raise UnfitError(values)
    sizes = [value.shape[axis] for value in values]
    if len(sizes) > 1 and any(isinstance(size, str) for size in sizes):
        raise UnfitError(sizes)
    size = sizes[0] if len(sizes) == 1 else sum(sizes)
    return [((*x.shape[:axis], size, *x.shape[axis + 1 :]), _one_dtype(values))]


def _split(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x, count = values[0], len(node.outputs)
    axis = _axis(node.attributes.get("axis", 0), x.rank)
    size = x.shape[axis]
    if isinstance(size, str):
        raise UnfitError(size)
    sizes = _integers(graph, node.inputs[1]) if len(node.inputs) > 1 else [size // count] * count
    if len(sizes) != count or sum(sizes) != size or min(sizes) < 1:
        raise UnfitError(sizes)
    return [((*x.shape[:axis], part, *x.shape[axis + 1 :]), x.dtype) for part in sizes]


def _slice(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    starts, ends = (_integers(graph, name) for name in node.inputs[1:3])
    axes = _integers(graph, node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else range(len(starts))
    steps = _integers(graph, node.inputs[4]) if len(node.inputs) > 4 else [1] * len(starts)
    shape = list(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = _axis(axis, x.rank)
        size = shape[at]
        if isinstance(size, str):
            if (start, step) != (0, 1) or end < 2**31:
                raise UnfitError(size)
            continue
        shape[at] = len(range(size)[start:end:step])
        if not shape[at]:
            raise UnfitError("empty")
    return [(tuple(shape), x.dtype)]


def _reshape(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    wanted = _integers(graph, node.inputs[1])
    if any(size == 0 and at >= x.rank for at, size in enumerate(wanted)):
        raise UnfitError(wanted)
    shape: list[int | str] = [x.shape[at] if size == 0 else size for at, size in enumerate(wanted)]
    names = [size for size in x.shape if isinstance(size, str)]
    for size in shape:
        if isinstance(size, str):
            if size not in names:
                raise UnfitError(wanted)
            names.remove(size)
    total = math.prod(size for size in x.shape if isinstance(size, int))
    known = math.prod(size for size in shape if isinstance(size, int) and size != -1)
    if -1 in shape:
        rest = total // known
        if rest * known != total or len(names) > 1 or (names and rest != 1):
            raise UnfitError(wanted)
        shape[shape.index(-1)] = names[0] if names else rest
    elif names or total != known:
        raise UnfitError(wanted)
    return [(tuple(shape), x.dtype)]


def _unsqueeze(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    axes = _integers(graph, node.inputs[1])
    rank = x.rank + len(axes)
    at = {_axis(axis, rank) for axis in axes}
    rest = iter(x.shape)
    return [(tuple(1 if axis in at else next(rest) for axis in range(rank)), x.dtype)]


def _squeeze(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x = values[0]
    at = {_axis(axis, x.rank) for axis in _integers(graph, node.inputs[1])}
    if any(x.shape[axis] != 1 for axis in at):
        raise UnfitError(x)
    return [(tuple(size for axis, size in enumerate(x.shape) if axis not in at), x.dtype)]


def _expand(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    return [(broadcast(values[0].shape, tuple(_integers(graph, node.inputs[1]))), values[0].dtype)]


def _gather(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    x, indices = values
    axis = _axis(node.attributes.get("axis", 0), x.rank)
    size = x.shape[axis]
    if isinstance(size, str) or any(not -size <= index < size for index in _integers(graph, node.inputs[1])):
        raise UnfitError(x)
    return [((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)]


def _shape(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    start = node.attributes.get("start", 0)
    return [((len(values[0].shape[start:]),), INT64)]


def _attention(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    q, k, v, mask = values
    if {q.rank, k.rank, v.rank} != {4} or q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3]:
        raise UnfitError(values)
    scores = (*q.shape[:3], k.shape[2])
    if q.shape[3] != k.shape[3] or broadcast(mask.shape, scores) != scores or mask.shape[-2:] != scores[-2:]:
        raise UnfitError(values)
    return [((*q.shape[:3], v.shape[3]), _one_dtype(values))]


def _compared(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    _one_dtype(values)
    return [(broadcast(*(value.shape for value in values)), BOOL)]


def _chosen(graph: Graph, node: Node, values: list[Value]) -> Kinds:
    mask, *others = values
    if mask.dtype != BOOL:
        raise UnfitError(values)
    return [(broadcast(*(value.shape for value in values)), _one_dtype(others))]


_OPERATORS = {
    _same: """
        Abs Atan Cos Dropout Elu Erf Exp Gelu HardSigmoid Hardmax Identity Log LogSoftmax Neg Reciprocal Relu
        Sigmoid Sin Softmax Softplus Softsign Sqrt Tanh
    """,
    _elementwise: "Add Sub Mul Div Sum Mean Max Min",
    _reduce: "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp",
    _normalization: "LayerNormalization RMSNormalization",
}
RULES: dict[str, Rule] = {
    **{op: rule for rule, ops in _OPERATORS.items() for op in ops.split()},
    "Attention": _attention,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _concat,
    "Einsum": _einsum,
    "Expand": _expand,
    "Gather": _gather,
    "Gemm": _gemm,
    "Greater": _compared,
    "MatMul": _matmul,
    "Not": _same,
    "Pow": _pow,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _chosen,
}
