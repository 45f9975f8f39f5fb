"""An exported graph as a function of ONNX, in which what was exported in float64 has the type of an input."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx
import onnx_ir
from onnx_ir import AttributeType, DataType

_TYPED = ("to", "dtype", "value")  # the attributes that say which type a node makes
_LIMITS = [abs(float(getattr(np.finfo(np.float64), name))) for name in ("max", "tiny", "eps", "smallest_subnormal")]


def has_limits(graph: onnx_ir.Graph) -> bool:
    """Return whether a constant is a limit of float64, which a decomposition gets for the type of its input."""
    constants = [item.const_value for item in graph.initializers.values() if item.dtype is DataType.DOUBLE]
    return any(np.isin(np.abs(item.numpy()), _LIMITS).any() for item in constants if item is not None)


def as_function(
    graph: onnx_ir.Graph, domain: str, name: str, inputs: Sequence[str], attributes: Collection[str], like: str | None
) -> onnx.FunctionProto:
    """Turn a graph into a function that takes some of the graph's inputs as attributes.

    Values are numbered, so that the functions of graphs that differ in names alone are equal.

    Parameters
    ----------
    inputs : sequence of str
        The inputs of the function; the graph may lack some of them.
    attributes : collection of str
        The graph's inputs, of float32 and without dimensions, that become attributes.
    like : str or None
        The input to whose type everything in float64 is cast.
    """
    given = {value.name: value for value in graph.inputs}
    constants = [(given[item], onnx_ir.RefAttr("value_float", item, AttributeType.FLOAT)) for item in attributes]
    for value in graph.initializers.values():
        assert value.const_value is not None
        value.const_value.name = None
        constants.append((value, onnx_ir.AttrTensor("value", value.const_value)))
    graph.initializers.clear()
    graph.inputs[:] = [given.get(item) or onnx_ir.Value(name=item) for item in inputs]
    for value, attribute in constants:
        node = onnx_ir.Node("", "Constant", [], [attribute])
        graph.insert_before(graph[0], node)
        value.replace_all_uses_with(node.outputs[0], replace_graph_outputs=True)
    if like is not None:
        for node in [node for node in graph.all_nodes() if _makes_double(node)]:
            _cast_like(node, given[like])
    _number_values(graph)
    graph.metadata_props.clear()
    function = onnx.FunctionProto()
    made = onnx_ir.Function(domain, name, graph=graph, attributes=[])
    onnx_ir.serde.serialize_function_into(function, made, create_value_info=False)  # its types are those of one call
    return function


def _makes_double(node: onnx_ir.Node) -> bool:
    values = [node.attributes[name].value for name in _TYPED if name in node.attributes and not node.domain]
    return any(getattr(value, "dtype", value) == DataType.DOUBLE for value in values)


def _cast_like(node: onnx_ir.Node, like: onnx_ir.Value) -> None:
    output, graph = node.outputs[0], node.graph
    assert graph is not None
    source = node.inputs[0] if node.op_type == "Cast" else output
    cast = onnx_ir.Node("", "CastLike", [source, like])
    graph.insert_after(node, cast)
    output.replace_all_uses_with(cast.outputs[0], replace_graph_outputs=True)
    cast.replace_input_with(0, source)
    if source is not output:
        graph.remove(node, safe=True)


def _number_values(graph: onnx_ir.Graph) -> None:
    """Replace names by numbers, and drop what else only describes nodes."""
    named: dict[onnx_ir.Value, None] = {}
    for node in graph.all_nodes():
        node.name = node.doc_string = None
        node.metadata_props.clear()
        inner = node.graph.inputs if node.graph is not None and node.graph is not graph else ()
        named |= dict.fromkeys((*inner, *node.outputs))
    for number, value in enumerate(named):
        value.name, value.type, value.shape = str(number), None, None
