"""Rewriting a model so that ONNX Runtime runs it, with ops for the nodes that it has no kernel for."""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
import onnx.inliner
import onnxruntime

from .._core import AnyOp, Key, Model, full_domain, key_of
from .._onnx.type_inference import opset_ids, opset_versions
from .._support.builtin_operators import ONNX_DOMAIN
from ..errors import ModelError
from .definitions import Types, bare, definition, type_name, type_proto
from .reference_kernels import DOMAIN, reference_op
from .typed_nodes import TypedNode, has_kernel, newest_ir_version, newest_opset, output_types, typed_nodes

BETWEEN_CASTS, BY_REFERENCE = "ONNX Runtime, between Cast nodes", "onnx's reference implementation"


# Element types, and wider ones whose kernels compute the same but for rounding.
def _wider(to: str, *names: str) -> dict[str | None, str]:
    return {f"tensor({name})": f"tensor({to})" for name in names}


_HALVES = _wider("float", "bfloat16", "float16")
_FLOATS = _HALVES | _wider("float", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
_INTEGERS = _wider("int32", "int8", "int16", "uint8", "uint16") | _wider("int64", "uint32")
# The results of these operators depend on the element types themselves.
_WIDENINGS: dict[str, tuple[dict[str | None, str], ...]] = {
    **dict.fromkeys(("BitCast", "Cast", "CastLike"), ()),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), (_HALVES,)),
}
# The version that Cast nodes get in a model that does not import ONNX's own domain.
_UNIMPORTED = 17


@dataclass(frozen=True)
class MissingNode:
    """A node that ONNX Runtime has no kernel for.

    Attributes
    ----------
    version : int
        The version of the operator's definition.
    types : tuple of str or None
        The types of the inputs.
    by : str
        What computes it; empty if nothing does.
    problem : str
        Why nothing computes it; empty if something does.
    """

    name: str
    domain: str
    op_type: str
    version: int
    types: Types
    by: str = ""
    problem: str = ""

    @property
    def kind(self) -> str:
        """Return the operator and the types of its inputs, as messages spell them."""
        domain = "" if self.domain == ONNX_DOMAIN else f"{self.domain}::"
        types = ", ".join(type_name(type) for type in self.types)
        return f"{domain}{self.op_type}-{self.version}({types})"


@dataclass
class Filling:
    """The result of `fill`.

    Attributes
    ----------
    model : Model
        The model for ONNX Runtime: the same object if nothing had to be changed.
    ops : dict
        The ops of its nodes that onnx's reference implementation computes.
    nodes : list of MissingNode
        The nodes that ONNX Runtime has no kernel for.
    untyped : list of str
        The nodes for which this is unknown, because types of their inputs or outputs are.
    """

    model: Model
    ops: dict[Key, AnyOp] = field(default_factory=dict)
    nodes: list[MissingNode] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        """Return what to tell the user: the nodes, grouped by operator and types; empty if there is nothing to tell."""
        groups: dict[tuple[str, str], list[str]] = {}
        for node in self.nodes:
            if node.by:
                groups.setdefault((node.kind, node.by), []).append(node.name)
        lines = [f"{kind}, by {by}: {_names(names)}" for (kind, by), names in groups.items()]
        if lines:
            lines.insert(0, "ONNX Runtime has no kernel for some nodes, which pyops computes instead:")
        if self.untyped:
            lines.append(self.untyped_message)
        return "\n  ".join(lines)

    @property
    def untyped_message(self) -> str:
        """Return what to tell the user about the nodes in `untyped`."""
        return (
            "fill_missing cannot tell whether ONNX Runtime has kernels for nodes with inputs or outputs of unknown "
            f"types: {_names(self.untyped)}; add these types to the model's value_info"
        )


def _names(names: list[str]) -> str:
    known = [repr(name) for name in names if name]
    return ", ".join(known if len(known) == len(names) else [*known, f"{len(names) - len(known)} without a name"])


def fill(
    source: Model, ops: Mapping[Key, AnyOp], providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None
) -> Filling:
    """Rewrite a model so that ONNX Runtime, and ops of `pyops.filled`, compute all nodes that can be computed.

    Parameters
    ----------
    ops : mapping
        The declared ops of the model's nodes.
    providers : sequence, optional
        The execution providers of the session, as ONNX Runtime takes them.
    """
    assert source.proto is not None
    chosen = onnxruntime.get_available_providers() if providers is None else providers
    names = frozenset(item if isinstance(item, str) else item[0] for item in chosen)
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    if proto.functions:
        proto = _inlined(proto, ops)
    nodes = list(typed_nodes(proto, ops))
    untyped = [node.proto.name or node.proto.op_type for node in nodes if not node.is_typed]
    imported = opset_versions(proto).get(ONNX_DOMAIN, _UNIMPORTED), proto.ir_version
    opset, missing = _find(nodes, newest_opset(imported[0]), names)
    accepted = opset, newest_ir_version(imported[1])
    if accepted == imported and not missing:
        return Filling(source, untyped=untyped)
    found, filled = _replace(proto, missing, opset, names)
    versions = opset_versions(proto) | {ONNX_DOMAIN: opset} | ({DOMAIN: 1} if filled else {})
    del proto.opset_import[:]
    proto.opset_import.extend(opset_ids(versions))
    proto.ir_version = accepted[1]
    model = replace(source, proto=proto)
    model.source = model.serialized()
    return Filling(model, filled, found, untyped)


def _inlined(proto: onnx.ModelProto, ops: Mapping[Key, AnyOp]) -> onnx.ModelProto:
    """Return a model with its functions inlined; those that the declared ops replace are left out of the given one."""
    kept = [item for item in proto.functions if (full_domain(item.domain), item.name) not in ops]
    del proto.functions[:]
    proto.functions.extend(kept)
    functions = {(full_domain(item.domain), item.name, item.overload): item for item in proto.functions}
    owners = {key: Model(b"", onnx.ModelProto(functions=[item])) for key, item in functions.items()}
    called = {key: {(*key_of(node), node.overload) for node, _ in owner.nodes()} for key, owner in owners.items()}
    try:
        graphlib.TopologicalSorter(called).prepare()
    except graphlib.CycleError as error:
        domain, name, _ = error.args[1][0]
        raise ModelError(f"the model's function {domain}::{name} calls itself, which ONNX does not allow") from None
    for key, function in functions.items():
        _align(function, owners[key].uses, opset_versions(proto).get(ONNX_DOMAIN))
    for node, _ in Model(b"", proto).nodes():
        function = functions.get((*key_of(node), node.overload))
        if function is not None:  # onnx's inliner passes over defaults
            given = {item.name for item in node.attribute}
            node.attribute.extend(item for item in function.attribute_proto if item.name not in given)
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        raise ModelError(f"the model's functions cannot be inlined: {error}") from error


def _align(function: onnx.FunctionProto, uses: Iterable[tuple[Key, int]], opset: int | None) -> None:
    """Make a function import the model's version of ONNX's domain if that defines its operators alike, for inlining."""
    pairs = [(definition(*key, now), definition(*key, opset or now)) for key, now in uses if key[0] == ONNX_DOMAIN]
    if opset and all(old and new and old.text == new.text for old, new in pairs):
        for entry in function.opset_import:
            if full_domain(entry.domain) == ONNX_DOMAIN:
                entry.version = opset


def _find(nodes: Sequence[TypedNode], opset: int, providers: frozenset[str]) -> tuple[int, list[TypedNode]]:
    """Return the version of ONNX's domain to run a model with, up to `opset`, and the nodes that lack a kernel then."""
    missing = [node for node in nodes if _is_missing(node, opset, providers)]
    # ONNX Runtime may have kernels only for an older definition that differs from this one in nothing but types.
    while renewed := [node.definition.version for node in missing if _is_renewed(node, opset)]:
        older = max(renewed) - 1
        still = [node for node in nodes if _is_missing(node, older, providers)]
        if len(still) >= len(missing):
            break
        opset, missing = older, still
    return opset, missing


def _is_missing(node: TypedNode, opset: int, providers: frozenset[str]) -> bool:
    """Return whether ONNX Runtime has no kernel for a valid node in a model that imports `opset`."""
    if not node.is_typed or not node.definition.allows(node.inputs, node.outputs):  # it reports those that are invalid
        return False
    version = node.opset_within(opset)
    return not (version and has_kernel(node, version, providers))


def _is_renewed(node: TypedNode, opset: int) -> bool:
    """Return whether the definition of a node differs from the one before only in types."""
    now = node.definition
    before = definition(*node.key, now.version - 1)
    is_newest = node.key[0] == ONNX_DOMAIN and now.version <= opset
    return is_newest and before is not None and before.text == now.text


def _replace(
    proto: onnx.ModelProto, nodes: Sequence[TypedNode], opset: int, providers: frozenset[str]
) -> tuple[list[MissingNode], dict[Key, AnyOp]]:
    """Replace nodes of a model that ONNX Runtime has no kernel for; return what computes each, and the ops."""
    taken = _value_names(proto)
    numbered = map("pyops.filled_{}".format, itertools.count())
    new_names = (name for name in numbered if name not in taken)
    versions = tuple(sorted(opset_versions(proto).items()))
    found: list[MissingNode] = []
    filled: dict[Key, AnyOp] = {}
    for node in reversed(nodes):  # the last first, so that the positions of the others stay as they are
        lacking = MissingNode(node.proto.name, *node.key, node.definition.version, node.inputs)
        if cast := _between_casts(node, opset, providers, new_names):
            found.append(replace(lacking, by=BETWEEN_CASTS))
            del node.graph.node[node.index]
            for other in reversed(cast):
                node.graph.node.insert(node.index, other)
            continue
        alone = bare(node.proto).SerializeToString(deterministic=True)
        op = reference_op(node.key[0], alone, versions, node.inputs, node.outputs)
        if isinstance(op, str):
            problem = (
                f"nothing can compute {lacking.name!r}, {lacking.kind}: ONNX Runtime has no kernel for it, and {op}"
            )
            found.append(replace(lacking, problem=problem))
            continue
        found.append(replace(lacking, by=BY_REFERENCE))
        filled[DOMAIN, op.name] = op
        names = {"input": node.proto.input, "output": node.proto.output}
        node.proto.CopyFrom(onnx.NodeProto(name=node.proto.name, domain=DOMAIN, op_type=op.name, **names))
    return found[::-1], filled


def _between_casts(
    node: TypedNode, newest: int, providers: frozenset[str], new_names: Iterator[str]
) -> list[onnx.NodeProto]:
    """Return a node of wider types and the Cast nodes around it; nothing if ONNX Runtime lacks that, too."""
    opset = node.opset_within(newest)
    if opset is None:
        return []
    for wider in _WIDENINGS.get(node.proto.op_type, (_FLOATS, _FLOATS | _INTEGERS)):
        wide = tuple(type and wider.get(type, type) for type in node.inputs)
        results = output_types(node.proto, node.key[0], opset, wide)
        changes = zip(node.outputs, results, strict=True)
        # A type of None is that of an absent output; a sequence cannot be cast.
        casts = all(old == new or (old and new and new.startswith("tensor(")) for old, new in changes)
        widened = replace(node, inputs=wide, outputs=results)
        if wide != node.inputs and casts and has_kernel(widened, opset, providers):
            break
    else:
        return []
    inner = onnx.NodeProto()
    inner.CopyFrom(node.proto)
    before, after = [], []
    for index, (type, other) in enumerate(zip(node.inputs, wide, strict=True)):
        if type != other:
            inner.input[index] = next(new_names)
            before.append(_cast(node.proto.input[index], inner.input[index], other))
    for index, (type, other) in enumerate(zip(node.outputs, results, strict=True)):
        if type != other:
            inner.output[index] = next(new_names)
            after.append(_cast(inner.output[index], node.proto.output[index], type))
    return [*before, inner, *after]


def _cast(given: str, result: str, type: str | None) -> onnx.NodeProto:
    assert type is not None  # as only types that are known differ
    to = type_proto(type).tensor_type.elem_type
    # Operators of float8 only move values, and saturation would change infinities.
    kept: dict[str, Any] = {"saturate": 0} if "float8" in type else {}
    return onnx.helper.make_node("Cast", [given], [result], to=to, **kept)


def _value_names(proto: onnx.ModelProto) -> set[str]:
    nodes = [node for node, _ in Model(b"", proto).nodes()]
    values = {item.name for item in (*proto.graph.input, *proto.graph.initializer)}
    return values.union(*(node.input for node in nodes), *(node.output for node in nodes))
