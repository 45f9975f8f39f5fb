"""Which nodes ONNX Runtime can run: from its list of kernels, or else by trying a model of one node."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

from .._ops.builtin import ONNX_DOMAIN
from .._schema.devices import CUDA_PROVIDER
from .definitions import NEWEST, Types, bare, definition, one_node, spell

_HALF_CAST: dict[str | None, str] = {"tensor(float16)": "tensor(float)"}
# Operators whose kernels refuse some attributes, or need locales of the machine.
_PARTIAL = {"GRU", "LSTM", "RNN", "StringNormalizer"}
_OPEN = 2**31 - 1
_CPU = "CPUExecutionProvider"
# Where the library of another available provider cannot be loaded, ONNX Runtime's list of kernels ends the process, as
# in onnxruntime-gpu without TensorRT.
_LISTED_SAFELY = {_CPU, "AzureExecutionProvider"}
_OLDEST_TRIED, _IR_VERSION = 17, 10  # versions that every supported ONNX Runtime accepts


def has_kernel(
    providers: frozenset[str],
    domain: str,
    node: onnx.NodeProto,
    opset: int,
    inputs: Types,
    outputs: Types,
    declared: Mapping[str, onnx.TypeProto],
) -> bool:
    """Return whether ONNX Runtime runs a node with inputs and outputs of these types.

    Parameters
    ----------
    declared : mapping
        The types with shapes of values of the model, as far as they are known.
    """
    found = definition(domain, node.op_type, opset)
    if found is None or not found.allows(inputs, outputs):
        return False
    casts = tuple(_HALF_CAST.get(type, type) for type in inputs), tuple(_HALF_CAST.get(type, type) for type in outputs)
    for types in ((inputs, outputs), *([casts] if casts[0] != inputs else [])):
        # ONNX Runtime casts the float16 inputs of nodes that have no kernel for it.
        if node.op_type not in _PARTIAL and _is_listed(providers, domain, node.op_type, opset, *types):
            return True
    # ONNX Runtime expands operators that ONNX defines as functions, if it can. Only an attempt shows whether it can.
    graph = one_node(bare(node), inputs, outputs)
    alone = graph.SerializeToString(deterministic=True)
    if is_accepted(alone, domain, opset):
        return True
    if CUDA_PROVIDER in providers and is_accepted(alone, domain, opset, providers=(CUDA_PROVIDER, _CPU)):
        return True
    if found.schema is None or not found.schema.has_context_dependent_function:
        return False
    # Some of these functions depend on ranks.
    names = filter(None, (*node.input, *node.output))
    for item, name in zip((*graph.input, *graph.output), names, strict=True):
        known = declared.get(name)
        if known is not None and spell(known) == spell(item.type):
            item.type.CopyFrom(known)
    return is_accepted(graph.SerializeToString(deterministic=True), domain, opset)


@functools.cache
def _is_listed(providers: frozenset[str], domain: str, name: str, opset: int, inputs: Types, outputs: Types) -> bool:
    found = definition(domain, name, opset)
    if found is None:
        return False
    bound = found.bound(inputs, outputs)
    return any(
        kernel.provider in {_CPU, *providers} and kernel.fits(found.version, bound)
        for kernel in _kernels().get((domain, name), ())
    )


class _Kernel(NamedTuple):
    provider: str
    first: int
    last: int
    types: dict[str, frozenset[str]]

    def fits(self, version: int, bound: dict[str, set[str]]) -> bool:
        # An open range stands for a single definition, the newest when the kernel was written.
        is_for = self.first == version if self.last == _OPEN else self.first <= version <= self.last
        return is_for and all(bound.get(name, set()) <= types for name, types in self.types.items())


@functools.cache
def _kernels() -> dict[tuple[str, str], list[_Kernel]]:
    found: dict[tuple[str, str], list[_Kernel]] = {}
    if not _LISTED_SAFELY.issuperset(onnxruntime.get_available_providers()):
        return found
    for item in get_all_opkernel_def():
        types = {name: frozenset(allowed) for name, allowed in item.type_constraints.items()}
        first, last = item.version_range
        kernel = _Kernel(item.provider, first, last, types)
        found.setdefault((item.domain or ONNX_DOMAIN, item.op_name), []).append(kernel)
    return found


@functools.cache
def is_accepted(
    graph: bytes, domain: str, opset: int, ir_version: int = _IR_VERSION, providers: tuple[str, ...] = (_CPU,)
) -> bool:
    """Return whether ONNX Runtime creates a session for a serialized graph whose nodes are of one domain."""
    versions = {ONNX_DOMAIN: _OLDEST_TRIED} | {domain: opset}
    imports = [onnx.helper.make_opsetid("" if name == ONNX_DOMAIN else name, of) for name, of in versions.items()]
    model = onnx.helper.make_model(onnx.GraphProto.FromString(graph), opset_imports=imports, ir_version=ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception:  # ONNX Runtime raises several unrelated types
        return False
    return True


@functools.cache
def newest_opset(wanted: int) -> int:
    """Return the newest version of ONNX's own domain that ONNX Runtime accepts, up to the one that a model imports."""
    return _newest(wanted, lambda version: is_accepted(_EMPTY, ONNX_DOMAIN, version))


@functools.cache
def newest_ir_version(wanted: int) -> int:
    """Return the newest IR version that ONNX Runtime accepts, up to that of a model."""
    return _newest(wanted, lambda version: is_accepted(_EMPTY, ONNX_DOMAIN, _OLDEST_TRIED, version))


def _newest(wanted: int, accepts: Callable[[int], bool]) -> int:
    # ONNX Runtime accepts all versions from 1 up to some version.
    return (
        bisect.bisect_left(range(1, min(wanted, NEWEST) + 1), True, key=lambda version: not accepts(version)) or wanted
    )


_EMPTY = onnx.parser.parse_graph("empty (float[1] x) => (float[1] y) { y = Identity(x) }").SerializeToString()
