"""Nodes of a model, with the types of their inputs and outputs, and whether ONNX Runtime can run one: it tries."""

from __future__ import annotations

import bisect
import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
import onnxruntime

from .._core import AnyOp, Key, Model, full_domain, key_of
from .._onnx.op_schemas import inference_function
from .._onnx.type_inference import NEWEST, InferenceFunction, infer_types, opset_ids, opset_versions
from .._support.builtin_operators import ONNX_DOMAIN
from .definitions import Definition, Types, allowing, bare, definition, format_type, infer_bound, one_node

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext

_WITH_BODIES = {"If", "Loop", "Scan", "SequenceMap"}
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
# What ONNX Runtime says of a node without a kernel. Whatever else it says, the node is invalid.
_LACKING = re.compile(
    "NOT_IMPLEMENTED|not currently registered|is not a registered function/op|No Op registered|"
    "parameter .* of operator .* is invalid"
)
# Operators whose kernels refuse some attributes, or need locales of the machine.
_PARTIAL = {"GRU", "LSTM", "RNN", "StringNormalizer"}
_OLDEST_TRIED, _IR_VERSION = 17, 10  # versions that every supported ONNX Runtime accepts


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
                tuple(format_type(values[name]) if name in values else None for name in names)
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


def has_kernel(node: TypedNode, opset: int, providers: frozenset[str]) -> bool:
    """Return whether ONNX Runtime has a kernel for a node in a model that imports this version of its domain.

    That of an invalid node is left to say what is wrong.
    """
    graph = one_node(bare(node.proto), node.inputs, node.outputs)
    if _is_run(graph, node.key[0], opset, providers):
        return True
    # Functions by which ONNX Runtime expands some operators depend on ranks.
    names = filter(None, (*node.proto.input, *node.proto.output))
    for item, name in zip((*graph.input, *graph.output), names, strict=True):
        known = node.values.get(name)
        if known is not None and format_type(known) == format_type(item.type):
            item.type.CopyFrom(known)
    return _is_run(graph, node.key[0], opset, providers)


def _is_run(graph: onnx.GraphProto, domain: str, opset: int, providers: frozenset[str]) -> bool:
    data = graph.SerializeToString(deterministic=True)
    reason = reason_against(data, domain, opset)
    if not (_LACKING.search(reason) or (reason and graph.node[0].op_type in _PARTIAL)):
        return True
    return _CUDA in providers and not reason_against(data, domain, opset, providers=(_CUDA, _CPU))


@functools.lru_cache(4096)
def reason_against(
    graph: bytes, domain: str, opset: int, ir_version: int = _IR_VERSION, providers: tuple[str, ...] = (_CPU,)
) -> str:
    """Return why ONNX Runtime creates no session for a serialized graph of nodes of one domain; empty if it does."""
    imports = opset_ids({ONNX_DOMAIN: _OLDEST_TRIED} | {domain: opset})
    model = onnx.helper.make_model(onnx.GraphProto.FromString(graph), opset_imports=imports, ir_version=ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception as error:  # ONNX Runtime raises several unrelated types
        return str(error)
    return ""


@functools.cache
def newest_opset(wanted: int) -> int:
    """Return the newest version of ONNX's own domain that ONNX Runtime accepts, up to the one that a model imports."""
    return _newest(wanted, lambda version: not reason_against(_EMPTY, ONNX_DOMAIN, version))


@functools.cache
def newest_ir_version(wanted: int) -> int:
    """Return the newest IR version that ONNX Runtime accepts, up to that of a model."""
    return _newest(wanted, lambda version: not reason_against(_EMPTY, ONNX_DOMAIN, _OLDEST_TRIED, version))


def _newest(wanted: int, accepts: Callable[[int], bool]) -> int:
    # ONNX Runtime accepts all versions from 1 up to some version.
    return (
        bisect.bisect_left(range(1, min(wanted, NEWEST) + 1), True, key=lambda version: not accepts(version)) or wanted
    )


_EMPTY = onnx.parser.parse_graph("empty (float[1] x) => (float[1] y) { y = Identity(x) }").SerializeToString()
