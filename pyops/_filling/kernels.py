"""Which nodes ONNX Runtime can run, by trying a model of one node."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable

import onnx
import onnxruntime

from .._models.inference import NEWEST, opset_ids
from .._ops.builtin import ONNX_DOMAIN
from .._schema.devices import CUDA_PROVIDER
from .definitions import bare, one_node, spell
from .typed_nodes import TypedNode

_CPU = "CPUExecutionProvider"
# What ONNX Runtime says of a node without a kernel. Whatever else it says, the node is invalid.
_LACKING = re.compile(
    "NOT_IMPLEMENTED|not currently registered|is not a registered function/op|No Op registered|"
    "parameter .* of operator .* is invalid"
)
# Operators whose kernels refuse some attributes, or need locales of the machine.
_PARTIAL = {"GRU", "LSTM", "RNN", "StringNormalizer"}
_OLDEST_TRIED, _IR_VERSION = 17, 10  # versions that every supported ONNX Runtime accepts


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
        if known is not None and spell(known) == spell(item.type):
            item.type.CopyFrom(known)
    return _is_run(graph, node.key[0], opset, providers)


def _is_run(graph: onnx.GraphProto, domain: str, opset: int, providers: frozenset[str]) -> bool:
    data = graph.SerializeToString(deterministic=True)
    refusal = rejection(data, domain, opset)
    if not (_LACKING.search(refusal) or (refusal and graph.node[0].op_type in _PARTIAL)):
        return True
    return CUDA_PROVIDER in providers and not rejection(data, domain, opset, providers=(CUDA_PROVIDER, _CPU))


@functools.lru_cache(4096)
def rejection(
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
    return _newest(wanted, lambda version: not rejection(_EMPTY, ONNX_DOMAIN, version))


@functools.cache
def newest_ir_version(wanted: int) -> int:
    """Return the newest IR version that ONNX Runtime accepts, up to that of a model."""
    return _newest(wanted, lambda version: not rejection(_EMPTY, ONNX_DOMAIN, _OLDEST_TRIED, version))


def _newest(wanted: int, accepts: Callable[[int], bool]) -> int:
    # ONNX Runtime accepts all versions from 1 up to some version.
    return (
        bisect.bisect_left(range(1, min(wanted, NEWEST) + 1), True, key=lambda version: not accepts(version)) or wanted
    )


_EMPTY = onnx.parser.parse_graph("empty (float[1] x) => (float[1] y) { y = Identity(x) }").SerializeToString()
