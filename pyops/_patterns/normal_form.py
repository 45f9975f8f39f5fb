"""The terms of the values of a graph: constants are folded, and each node is read by a rule."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx.reference import ReferenceEvaluator

from .._support.element_types import DType
from .terms import ONE, SIZE, Factor, Scaled, Terms
from .value_types import FLOATS, Dim, Types, ValueType, is_size, is_wider

_SMALL = 64  # elements of a constant whose values are read
_MOST = 2**16  # elements of a constant that is tested for being one number throughout
_OPEN = (0.25, 0.5, 1.0, 2.0, 4.0)  # how many times an attribute a number may be
_POWERS = (1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
_REWRITTEN = {"Concat", "Expand", "LogSoftmax", "Reshape", "Slice", "Softmax", "Transpose"} | {
    *("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum")
}  # the operators whose attributes are others in a term

_SHAPING = {"Expand", "Reshape", "Unsqueeze"}  # whose vectors say the shape

Rule = Callable[["NormalForm", onnx_ir.Node, onnx_ir.Value], Scaled | None]


def attribute(node: onnx_ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of a node's attribute."""
    return node.attributes[name].value if name in node.attributes else default


class NormalForm:
    """The terms of the values of a graph.

    Parameters
    ----------
    graph : onnx_ir.Graph
        Its nodes are sorted.
    types : mapping
        The specs of its values, by name.
    opset : int
        The version of ONNX's own domain.
    rule : callable
        Gets this object, a node of ONNX's own domain and an output of it, and returns the output's number and term, or
        None where it does not know the node.
    attributes : sequence of (str, float)
        Names of attributes whose values are open, and numbers that stand for them.
    """

    def __init__(
        self, graph: onnx_ir.Graph, types: Types, opset: int, rule: Rule, attributes: Sequence[tuple[str, float]]
    ) -> None:
        self.types, self.opset, self._rule = types, opset, rule
        self.terms = Terms()
        self.scaled: dict[onnx_ir.Value, Scaled] = {}
        self.origins: dict[onnx_ir.Value, DType] = {}
        self._attributes = attributes
        self._constants: dict[onnx_ir.Value, np.ndarray[Any, Any] | None] = {}
        self._evaluated: dict[Any, np.ndarray[Any, Any] | None] = {}
        self.position = {node: number for number, node in enumerate(graph)}
        for node in graph:
            for value in node.outputs:
                self._name(value, self._read(node, value))
                self.origin(value)  # after those of the inputs, so that no chain of nodes is too deep

    def of(self, value: onnx_ir.Value | None) -> Scaled:
        """Return the number and the term that a value is the product of.

        Raises
        ------
        TypeError
            The value is an input that a node does not have.
        """
        if value is None:
            raise TypeError("an input is missing")
        if value not in self.scaled:
            constant = self.constant(value)
            self._name(value, self._leaf(value) if constant is None else self._constant(constant, value))
        return self.scaled[value]

    def of_broadcast(self, value: onnx_ir.Value | None, neutral: float) -> Scaled:
        """Return the number and the term of a value that is broadcast: an array of one number is that number.

        An array of the neutral number stays an array: it is taken for the weight of an untrained layer.
        """
        array = self.constant(value)
        if array is None and value is not None and value.is_initializer() and not value.is_graph_input():
            tensor = value.const_value
            array = None if tensor is None or tensor.size > _MOST else tensor.numpy()
        if array is None or array.dtype.name not in FLOATS or not array.size:
            return self.of(value)
        number = float(array.flat[0])
        is_number = number != neutral and bool(np.all(array == number))
        return self.number(number) if is_number else self.of(value)

    def operands(self, node: onnx_ir.Node, neutral: float) -> list[Scaled]:
        """Return `of` each input of an elementwise node, or `of_broadcast` where it is broadcast."""
        shape = self.shape(node.outputs[0])
        whole = set() if shape is None or None in shape else {item for item in node.inputs if self.shape(item) == shape}
        return [self.of_broadcast(item, neutral) if whole - {item} else self.of(item) for item in node.inputs]

    def type(self, value: onnx_ir.Value | None) -> ValueType | None:
        """Return the type of a value, None if it is not known."""
        return None if value is None or value.name is None else self.types.get(value.name)

    def shape(self, value: onnx_ir.Value | None) -> tuple[Dim, ...] | None:
        """Return the shape of a value, None if its rank is not known."""
        found = self.type(value)
        return None if found is None else found.shape

    def constant(self, value: onnx_ir.Value | None) -> np.ndarray[Any, Any] | None:
        """Return the array of a small value that depends on no input, or None."""
        if value is None:
            return None
        if value not in self._constants:
            self._constants[value] = self._array(value)
        return self._constants[value]

    def _array(self, value: onnx_ir.Value) -> np.ndarray[Any, Any] | None:
        node, tensor = value.producer(), value.const_value
        if tensor is not None and not value.is_graph_input():
            return tensor.numpy() if tensor.size <= _SMALL else None
        if (
            node is None
            or node.domain
            or any(item.type.name in ("GRAPH", "GRAPHS") for item in node.attributes.values())
        ):
            return None
        if node.op_type == "Shape" and (shape := self.shape(node.inputs[0])) is not None:
            chosen = shape[attribute(node, "start", 0) : attribute(node, "end")]
            return np.array(chosen, np.int64) if all(isinstance(dim, int) for dim in chosen) else None
        if node.op_type == "Gather" and (array := self._gathered_size(node)) is not None:
            return array
        if _is_random(node) or any(item.is_ref() for item in node.attributes.values()):
            return None
        arrays = [None if item is None else self.constant(item) for item in node.inputs]
        if any(item is not None and array is None for item, array in zip(node.inputs, arrays, strict=True)):
            return None
        if node.op_type in ("ConstantOfShape", "Range", "Expand", "Tile") and not self._is_small(value):
            return None
        return self._evaluate(node, value.index() or 0, arrays)

    def _gathered_size(self, node: onnx_ir.Node) -> np.ndarray[Any, Any] | None:
        """Return sizes that a node gathers from a shape, if these are known; others may be unknown."""
        source, index = node.inputs[0], self.constant(node.inputs[1])
        shape = None if source is None else source.producer()
        is_whole = shape is not None and shape.op_type == "Shape" and not shape.attributes
        known = self.shape(shape.inputs[0]) if shape is not None and is_whole else None
        if known is None or index is None:
            return None
        chosen = [known[i] for i in index.reshape(-1)]
        return np.array(chosen, np.int64).reshape(index.shape) if all(map(is_size, chosen)) else None

    def _is_small(self, value: onnx_ir.Value) -> bool:
        shape = self.shape(value)
        return shape is not None and math.prod(dim if isinstance(dim, int) else _SMALL + 1 for dim in shape) <= _SMALL

    def _evaluate(self, node: onnx_ir.Node, index: int, arrays: Sequence[Any]) -> np.ndarray[Any, Any] | None:
        proto = onnx_ir.serde.serialize_node(node)
        given = [None if array is None else (array.dtype.str, array.shape, array.tobytes()) for array in arrays]
        key = (
            node.op_type,
            index,
            len(node.outputs),
            b"".join(item.SerializeToString() for item in proto.attribute),
            str(given),
        )
        if key not in self._evaluated:
            proto.input[:] = [f"i{number}" if array is not None else "" for number, array in enumerate(arrays)]
            proto.output[:] = [f"o{number}" for number in range(len(proto.output))]
            feed = {name: array for name, array in zip(proto.input, arrays, strict=True) if name}
            inputs = [onnx.helper.make_tensor_value_info(name, _onnx_type(a), a.shape) for name, a in feed.items()]
            outputs = [onnx.ValueInfoProto(name=name) for name in proto.output]
            graph = onnx.helper.make_graph([proto], "constant", inputs, outputs)
            model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)])
            found: Any = None
            evaluator: Any = ReferenceEvaluator(model)
            with contextlib.suppress(Exception):  # whatever an operator raises for these constants: it is opaque then
                found = evaluator.run(None, feed)[index]
            small = isinstance(found, np.ndarray | np.generic) and found.size <= _SMALL
            self._evaluated[key] = np.asarray(found) if small else None
        return self._evaluated[key]

    def _leaf(self, value: onnx_ir.Value) -> Scaled:
        return ONE, self.terms.leaf(value)

    def _name(self, value: onnx_ir.Value, scaled: Scaled) -> None:
        factor, term = self.scaled[value] = scaled
        if term is not self.terms.unit:
            term.names.append((value, factor))

    def _constant(self, array: np.ndarray[Any, Any], value: onnx_ir.Value) -> Scaled:
        """Return a number, or a leaf with the array."""
        if array.size != 1 or array.dtype.name not in FLOATS | {"int64", "int32"}:
            return ONE, self.terms.leaf(value, array)
        return self.number(float(array.reshape(())))

    def number(self, number: float) -> Scaled:
        """Return a number, as powers of the attributes that it stands for."""
        for name, stand_in in self._attributes:
            for power in _POWERS:
                ratio = number / stand_in**power
                times = next((item for item in _OPEN if math.isclose(abs(ratio), item, rel_tol=1e-6)), None)
                if times is not None:
                    return Factor(math.copysign(times, ratio), ((name, power),)), self.terms.unit
        return Factor(number), self.terms.unit

    def _read(self, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled:
        array = self.constant(value)
        if array is not None and (array.size == 1 or not self.is_float(value)):
            return self._constant(array, value)
        if self._is_raised(node):
            return self._leaf(value)
        if node.domain or (value.index() and node.op_type != "Split"):
            return self._opaque(node, value)
        try:
            found = self._rule(self, node, value)
        except (
            ArithmeticError,
            AttributeError,
            IndexError,
            TypeError,
            ValueError,
        ):  # an input that is missing or wrong
            found = None
        if found is None and array is not None:
            return self._constant(array, value)
        return self._opaque(node, value) if found is None else found

    def _is_raised(self, node: onnx_ir.Node) -> bool:
        """Return whether the rank of a value comes from a number: a term is the same for numbers of all ranks."""
        known = [(self.of(item)[1], self.shape(item)) for item in node.inputs if item is not None]
        ranks: dict[bool, list[int]] = {True: [], False: []}
        for term, shape in known if node.op_type not in _SHAPING else ():
            ranks[term is self.terms.unit or term.op == SIZE] += [] if shape is None else [len(shape)]
        numbers, others = ranks.values()
        return bool(others) and max(numbers, default=0) > (0 if node.op_type == "MatMul" else max(others))

    def is_float(self, value: onnx_ir.Value) -> bool:
        """Return whether a value is known to have a floating-point type."""
        found = self.type(value)
        return found is not None and found.dtype.name in FLOATS

    def origin(self, value: onnx_ir.Value | None) -> DType | None:
        """Return the floating-point type that a value had before it was cast to a wider one.

        What is computed in the wider type from such values counts as being of the narrower one.
        """
        found = self.type(value)
        if value is None or found is None or found.dtype.name not in FLOATS:
            return None
        if value not in self.origins:
            node = value.producer()
            sources = [] if node is None or node.domain or "Cast" in node.op_type else node.inputs
            numbers = {None} | {item for item in sources if item and self.of(item)[1] is self.terms.unit}
            known = [self.origin(item) for item in sources if item not in numbers and self.constant(item) is None]
            narrow = {item for item in known if item is not None}
            is_island = len(narrow) == 1 and is_wider(found.dtype, *narrow)
            self.origins[value] = narrow.pop() if is_island else found.dtype
        return self.origins[value]

    def _opaque(self, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled:
        """Return the call of an operator as it is written."""
        if any(map(_is_large, node.attributes.values())) or _is_random(node):
            return self._leaf(value)
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        name += f"#{value.index()}" if value.index() else ""
        name += " as written" if name in _REWRITTEN else ""
        name += f":{node.overload}" if node.overload else ""
        given = {key: _plain(item) for key, item in node.attributes.items()}
        if not node.domain:  # an attribute that is left out, or that a later version adds, has its default
            own, usual = _defaults(node.op_type, self.opset), _defaults(node.op_type, onnx.defs.onnx_opset_version())
            given = {key: item for key, item in {**own, **given}.items() if key not in usual or usual[key] != item}
        args = [(ONE, self.terms.call("absent", ())) if item is None else self.of(item) for item in node.inputs]
        return ONE, self.terms.call(name, args, **given)

    def product(self, *items: tuple[float, Scaled]) -> Scaled:
        """Return the product of powers.

        Raises
        ------
        OverflowError
            One is a root of a negative number.
        """
        if any(factor.number < 0 and power != int(power) for power, (factor, _) in items):
            raise OverflowError("a root of a negative number")
        factor, term = self.terms.product(items)
        return factor, term

    def axis(self, value: onnx_ir.Value | None, axis: int) -> int | None:
        """Return an axis counted from the last one; None if it is counted from the first one of an unknown rank."""
        shape = self.shape(value)
        return axis if axis < 0 else None if shape is None else axis - len(shape)


def _is_random(node: onnx_ir.Node) -> bool:
    return node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Dropout", "Multinomial")


def _is_large(attribute: onnx_ir.Attr) -> bool:
    """Return whether an attribute is a graph, or has many elements."""
    value = attribute.value
    size = value.size if isinstance(value, onnx_ir.TensorProtocol) else len(value) if isinstance(value, tuple) else 1
    return attribute.type.name in ("GRAPH", "GRAPHS") or size > _SMALL


@functools.cache
def _defaults(op_type: str, opset: int) -> dict[str, Any]:
    """Return the values of the attributes of an operator that a node leaves out."""
    if not onnx.defs.has(op_type, opset):
        return {}
    defaults = [item.default_value for item in onnx.defs.get_schema(op_type, opset).attributes.values()]
    return {item.name: _plain(onnx_ir.serde.deserialize_attribute(item)) for item in defaults if item.name}


def _plain(attribute: onnx_ir.Attr) -> Any:
    value = attribute.value
    if isinstance(value, onnx_ir.TensorProtocol):
        return value.numpy().tolist()
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _onnx_type(array: np.ndarray[Any, Any]) -> int:
    return int(onnx_ir.DataType.from_numpy(array.dtype))
