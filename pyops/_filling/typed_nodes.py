"""Nodes of a model, with the types of their inputs and outputs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from .._models.inference import InferenceFunction, infer_types, opset_ids, opset_versions
from .._models.model import Key, Model, full_domain, key_of
from .._onnx_schemas import inference_function
from .._ops.builtin import ONNX_DOMAIN
from .._ops.op import AnyOp
from .definitions import Definition, Types, allowing, bare, definition, infer_bound, one_node, spell

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext

_WITH_BODIES = {"If", "Loop", "Scan", "SequenceMap"}


@dataclass(frozen=True)
class TypedNode:
    """A node of an operator of ONNX or ONNX Runtime, in its graph.

    Attributes
    ----------
    index : int
        Its position in the graph.
    opset : int
        The version of its domain that the model imports.
    definition : Definition
        The one that allows its types, or else that of this version.
    values : mapping
        The types with shapes of all values that it can refer to, as far as they are known, by name.
    """

    graph: onnx.GraphProto
    index: int
    proto: onnx.NodeProto
    key: Key
    opset: int
    definition: Definition
    inputs: Types
    outputs: Types
    values: Mapping[str, onnx.TypeProto]

    @property
    def is_typed(self) -> bool:
        """Return whether all of these types are known."""
        names = (*self.proto.input, *self.proto.output)
        return all(type for type, name in zip(self.inputs + self.outputs, names, strict=True) if name)

    def opset_within(self, newest: int) -> int | None:
        """Return the version to run it with in a model that imports `newest` or less; None if that is another one."""
        if self.key[0] != ONNX_DOMAIN or self.opset <= newest:
            return self.opset
        then = definition(*self.key, newest)
        return newest if then and then.text == self.definition.text else None


def typed_nodes(proto: onnx.ModelProto, ops: Mapping[Key, AnyOp]) -> Iterator[TypedNode]:
    """Yield the nodes of a model that ONNX Runtime may lack a kernel for; each comes before those in its bodies.

    Parameters
    ----------
    ops : mapping
        The declared ops of the model's nodes.
    """
    others = ops.keys() | {(full_domain(item.domain), item.name) for item in proto.functions}
    found = _typed(proto.graph, _inferred(proto, ops).graph, {}, opset_versions(proto))
    return (node for node in found if node.key not in others)


def _inferred(proto: onnx.ModelProto, ops: Mapping[Key, AnyOp]) -> onnx.ModelProto:
    """Return a model with the types that can be inferred, or those that it declares."""
    functions: dict[Key, InferenceFunction] = {}
    for key, opset in Model(b"", proto).uses:
        found = definition(*key, opset)
        if key in ops:
            functions[key] = functools.partial(_infer_op, inference_function(ops[key]))
        elif found and not (found.schema and found.schema.has_type_and_shape_inference_function):
            functions[key] = functools.partial(infer_bound, found)
    try:
        return infer_types(proto, functions)
    except Exception:  # onnx raises several types, some of which it does not export
        return proto


def _infer_op(infer: InferenceFunction, context: InferenceContext) -> None:
    with contextlib.suppress(Exception):  # the node does not match its op, or the user's function fails
        infer(context)


def _typed(
    graph: onnx.GraphProto, typed: onnx.GraphProto, outer: Mapping[str, onnx.TypeProto], opsets: Mapping[str, int]
) -> Iterator[TypedNode]:
    tensors = {item.name: onnx.helper.make_tensor_type_proto(item.data_type, item.dims) for item in graph.initializer}
    inferred = {item.name: item.type for item in (*typed.value_info, *typed.input, *typed.output)}
    values = {**outer, **tensors, **inferred}
    for index, (node, twin) in enumerate(zip(graph.node, typed.node, strict=True)):
        key = key_of(node)
        opset = opsets.get(key[0], 1)
        if node.op_type in _WITH_BODIES:
            for attribute, other in zip(node.attribute, twin.attribute, strict=True):
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from _typed(attribute.g, other.g, values, opsets)
        # ONNX Runtime turns Constant nodes into initializers, and has the operators with bodies for nearly every type.
        elif node.op_type != "Constant":
            inputs, outputs = (
                tuple(spell(values[name]) if name in values else None for name in names)
                for names in (node.input, node.output)
            )
            found = allowing(*key, opset, inputs, outputs)
            if found:
                yield TypedNode(graph, index, node, key, opset, found, inputs, outputs, values)


def output_types(node: onnx.NodeProto, domain: str, opset: int, inputs: Types) -> Types:
    """Return the types of a node's outputs if its inputs are of these types; None where they cannot be inferred."""
    graph = one_node(bare(node), inputs, (None,) * len(node.output))
    proto = onnx.helper.make_model(graph, opset_imports=opset_ids({domain: opset}))
    return next(typed_nodes(proto, {})).outputs
