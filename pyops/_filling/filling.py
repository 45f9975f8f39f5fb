"""Rewriting a model so that ONNX Runtime runs it, with ops for the nodes that it has no kernel for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
import onnx.inliner
import onnxruntime

from .._models.model import Key, Model, full_domain, key_of
from .._ops.builtin import ONNX_DOMAIN
from .._ops.op import AnyOp
from .._schema import validation
from .._schema.dtypes import element_type, from_onnx, from_type_str
from ..errors import InputError, ModelError
from .definitions import Types, allowing, bare, definition, output_types, spell, type_name, type_proto
from .kernels import has_kernel, newest_ir_version, newest_opset
from .reference import DOMAIN, reference_op

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
_WITH_BODIES = {"If", "Loop", "Scan", "SequenceMap"}


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
    walk = functools.partial(_Walk, ops=ops, providers=names)
    opset, ir_version = _opsets(source.proto).get(ONNX_DOMAIN, _UNIMPORTED), source.proto.ir_version
    accepted = newest_opset(opset), newest_ir_version(ir_version)
    found = walk(source.proto, accepted[0])
    # The types within a function may depend on the attributes of a call.
    is_open = found.untyped and source.proto.functions
    if accepted == (opset, ir_version) and not found.missing and not is_open:
        return Filling(source, untyped=found.untyped)
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    if proto.functions:
        kept = [item for item in proto.functions if (full_domain(item.domain), item.name) not in ops]
        del proto.functions[:]
        proto.functions.extend(kept)
        proto = _inlined(proto)
        found = walk(proto, accepted[0])
    # ONNX Runtime may have kernels only for an older definition that differs from this one in nothing but types.
    while redefined := [node.version for node in found.missing if found.is_renewed(node)]:
        older = walk(proto, max(redefined) - 1)
        if len(older.missing) >= len(found.missing):
            break
        found = older
    if (found.opset, accepted[1]) == (opset, ir_version) and not found.missing:
        return Filling(source, untyped=found.untyped)
    written = walk(proto, found.opset, writes=True)
    proto.ir_version = accepted[1]
    if ONNX_DOMAIN not in _opsets(proto):  # a model that uses only other domains
        proto.opset_import.add()
    for entry in proto.opset_import:
        if full_domain(entry.domain) == ONNX_DOMAIN:
            entry.version = found.opset
    if written.filled:
        proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    model = replace(source, proto=proto)
    model.source = model.serialized()
    return Filling(model, written.filled, written.missing, written.untyped)


def _inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions; in the given one, calls get the defaults of the attributes they lack."""
    functions = {(full_domain(item.domain), item.name, item.overload): item for item in proto.functions}
    for node, _ in Model(b"", proto).nodes():
        function = functions.get((*key_of(node), node.overload))
        if function is not None:  # onnx's inliner passes over defaults
            given = {item.name for item in node.attribute}
            node.attribute.extend(item for item in function.attribute_proto if item.name not in given)
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        raise ModelError(f"the model's functions cannot be inlined: {error}") from error


class _Walk:
    """Finds, and with `writes` replaces, the nodes of a model that ONNX Runtime has no kernel for.

    Parameters
    ----------
    opset : int
        The version of ONNX's own domain to run the model with, up to the one that it imports.

    Attributes
    ----------
    missing, untyped, filled
        As in `Filling`, `filled` for its `ops`.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        opset: int,
        ops: Mapping[Key, AnyOp],
        providers: frozenset[str],
        *,
        writes: bool = False,
    ) -> None:
        self.opset = opset
        self.missing: list[MissingNode] = []
        self.untyped: list[str] = []
        self.filled: dict[Key, AnyOp] = {}
        self._ops, self._providers, self._writes = ops, providers, writes
        self._functions = {(full_domain(item.domain), item.name): item for item in proto.functions}
        self._typed_functions: dict[tuple[Key, Types], Types] = {}
        self._entered: set[Key] = set()
        taken = _value_names(proto) if writes else set()
        numbered = map("pyops.filled_{}".format, itertools.count())
        self._new_names = (name for name in numbered if name not in taken)
        self._declared: dict[str, onnx.TypeProto] = {}
        try:
            self._graph(proto.graph, {}, _opsets(proto))
        except RecursionError:
            raise ModelError("the model's functions or bodies are nested too deeply to be filled") from None

    def is_renewed(self, node: MissingNode) -> bool:
        """Return whether the definition of a node differs from the one before only in types."""
        now, before = (definition(node.domain, node.op_type, version) for version in (node.version, node.version - 1))
        is_newest = node.domain == ONNX_DOMAIN and node.version <= self.opset
        return is_newest and before is not None and now is not None and before.text == now.text

    def _graph(
        self, graph: onnx.GraphProto, outer: Mapping[str, str | None], opsets: Mapping[str, int], given: Types = ()
    ) -> Types:
        """Return the types of a graph's outputs.

        Parameters
        ----------
        outer : mapping
            The types of the values of the graphs around this one.
        given : tuple
            For a body, the types of its inputs.
        """
        values = (*graph.value_info, *graph.input, *graph.output)
        self._declared |= {item.name: item.type for item in values}
        declared = {item.name: spell(item.type) for item in values}
        types = {**outer, **{item.name: declared[item.name] for item in graph.input}}
        types |= {item.name: type for item, type in zip(graph.input, given, strict=False) if type}
        for tensor in graph.initializer:
            row = from_onnx(tensor.data_type)
            types[tensor.name] = row.type_str if row else None
        self._nodes(graph.node, types, declared, opsets)
        return tuple(types.get(item.name) for item in graph.output)

    def _function(self, key: Key, inputs: Types) -> Types:
        """Return the types of the outputs of a call of one of the model's functions."""
        if (key, inputs) not in self._typed_functions:
            if key in self._entered:
                raise ModelError(f"the model's function {'::'.join(key)} calls itself, which ONNX does not allow")
            function = self._functions[key]
            types: dict[str, str | None] = dict(zip(function.input, inputs, strict=False))
            declared = {item.name: spell(item.type) for item in function.value_info}
            self._entered.add(key)
            self._nodes(function.node, types, declared, _opsets(function))
            self._entered.remove(key)
            self._typed_functions[key, inputs] = tuple(map(types.get, function.output))
        return self._typed_functions[key, inputs]

    def _nodes(
        self, nodes: Any, types: dict[str, str | None], declared: Mapping[str, str | None], opsets: Mapping[str, int]
    ) -> None:
        result = []
        for node in nodes:
            inputs = tuple(types.get(name) if name else None for name in node.input)
            found = self._outputs(node, inputs, types, opsets)
            outputs = tuple(
                type or declared.get(name)
                for name, type in itertools.zip_longest(node.output, found[: len(node.output)])
            )
            types |= zip(node.output, outputs, strict=True)
            result += self._filled(node, opsets, inputs, outputs)
        if any(new is not old for new, old in itertools.zip_longest(result, nodes)):
            copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in result]
            del nodes[:]
            nodes.extend(copies)

    def _outputs(
        self, node: onnx.NodeProto, inputs: Types, types: Mapping[str, str | None], opsets: Mapping[str, int]
    ) -> Types:
        key = key_of(node)
        if key in self._functions:
            return self._function(key, inputs)
        if key in self._ops:
            return _declared_outputs(self._ops[key], inputs)
        if node.op_type in _WITH_BODIES:
            bodies = [item.g for item in node.attribute if item.type == onnx.AttributeProto.GRAPH]
            given = _body_inputs(node.op_type, inputs)
            found = [self._graph(body, types, opsets, given) for body in bodies] or [()]
            return found[0][1:] if node.op_type == "Loop" else found[0]
        return output_types(key[0], node, opsets.get(key[0], 1), inputs)

    def _filled(
        self, node: onnx.NodeProto, opsets: Mapping[str, int], inputs: Types, outputs: Types
    ) -> list[onnx.NodeProto]:
        """Return the nodes to write in place of one, or the node itself."""
        domain, op_type = key = key_of(node)
        opset = opsets.get(domain, 1)
        now = allowing(domain, op_type, opset, inputs, outputs)
        # ONNX Runtime turns Constant nodes into initializers, and has the operators with bodies for nearly every type.
        if now is None or op_type in {"Constant", *_WITH_BODIES} or key in self._functions or key in self._ops:
            return [node]
        known = zip((*node.input, *node.output), (*inputs, *outputs), strict=True)
        if not all(type for name, type in known if name):
            self.untyped.append(node.name or op_type)
            return [node]
        if not now.allows(inputs, outputs):  # an invalid node, which ONNX Runtime reports
            return [node]
        runs: int | None = opset
        if domain == ONNX_DOMAIN and opset > self.opset:
            then = definition(domain, op_type, self.opset)
            runs = self.opset if then and then.text == now.text else None
        if runs and has_kernel(self._providers, domain, node, runs, inputs, outputs, self._declared):
            return [node]
        lacking = MissingNode(node.name, domain, op_type, now.version, inputs)
        if not self._writes:
            self.missing.append(lacking)
            return [node]
        nodes = runs and self._between_casts(node, domain, runs, inputs, outputs)
        if nodes:
            self.missing.append(replace(lacking, by=BETWEEN_CASTS))
            return nodes
        alone = bare(node).SerializeToString(deterministic=True)
        op = reference_op(domain, alone, tuple(sorted(opsets.items())), inputs, outputs)
        if isinstance(op, str):
            problem = (
                f"nothing can compute {lacking.name!r}, {lacking.kind}: ONNX Runtime has no kernel for it, and {op}"
            )
            self.missing.append(replace(lacking, problem=problem))
            return [node]
        self.missing.append(replace(lacking, by=BY_REFERENCE))
        self.filled[DOMAIN, op.name] = op
        hosted = onnx.NodeProto(name=node.name, domain=DOMAIN, op_type=op.name, input=node.input, output=node.output)
        return [hosted]

    def _between_casts(
        self, node: onnx.NodeProto, domain: str, opset: int, inputs: Types, outputs: Types
    ) -> list[onnx.NodeProto]:
        """Return a node of wider types and the Cast nodes around it; nothing if ONNX Runtime lacks that, too."""
        for wider in _WIDENINGS.get(node.op_type, (_FLOATS, _FLOATS | _INTEGERS)):
            wide = tuple(type and wider.get(type, type) for type in inputs)
            results = output_types(domain, node, opset, wide)
            changes = zip(outputs, results, strict=True)
            # A type of None is that of an absent output; a sequence cannot be cast.
            casts = all(old == new or (old and new and new.startswith("tensor(")) for old, new in changes)
            if wide != inputs and casts and has_kernel(self._providers, domain, node, opset, wide, results, {}):
                break
        else:
            return []
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        before, after = [], []
        for index, (type, other) in enumerate(zip(inputs, wide, strict=True)):
            if type != other:
                inner.input[index] = next(self._new_names)
                before.append(_cast(node.input[index], inner.input[index], other))
        for index, (type, other) in enumerate(zip(outputs, results, strict=True)):
            if type != other:
                inner.output[index] = next(self._new_names)
                after.append(_cast(inner.output[index], node.output[index], type))
        return [*before, inner, *after]


def _cast(given: str, result: str, type: str | None) -> onnx.NodeProto:
    assert type is not None  # as only types that are known differ
    to = type_proto(type).tensor_type.elem_type
    # Operators of float8 only move values, and saturation would change infinities.
    kept: dict[str, Any] = {"saturate": 0} if "float8" in type else {}
    return onnx.helper.make_node("Cast", [given], [result], to=to, **kept)


def _value_names(proto: onnx.ModelProto) -> set[str]:
    nodes = [node for node, _ in Model(b"", proto).nodes()]
    bodies = [item.g for node in nodes for item in node.attribute if item.type == onnx.AttributeProto.GRAPH]
    graphs = (proto.graph, *bodies)
    values = [value.name for graph in graphs for value in (*graph.input, *graph.initializer)]
    values += [value.values.name for graph in graphs for value in graph.sparse_initializer]
    return {*values, *(name for node in nodes for name in node.output)}


def _body_inputs(op_type: str, inputs: Types) -> Types:
    if op_type == "SequenceMap":  # which runs its body for each element
        return tuple(type[4:-1] if type and type.startswith("seq(") else type for type in inputs)
    return {"If": (), "Loop": ("tensor(int64)", "tensor(bool)", *inputs[2:])}.get(op_type, inputs)


def _opsets(owner: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    return {full_domain(entry.domain): entry.version for entry in owner.opset_import}


def _declared_outputs(op: AnyOp, inputs: Types) -> Types:
    rows = [from_type_str(type) if type else None for type in inputs]
    try:
        dtypes = validation.output_dtypes(op.signature, [row.dtype if row else None for row in rows])
    except InputError:  # the node does not match its op, which the session reports
        return ()
    # None is a type that does not follow from the node's inputs; NumPy would take it as float64.
    found = [None if dtype is None else element_type(dtype) for dtype in dtypes]
    return tuple(row.type_str if row else None for row in found)
