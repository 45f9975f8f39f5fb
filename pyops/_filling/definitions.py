"""Definitions of ONNX's operators, and the types that follow from them.

A type is a string, spelled as in ONNX's schemas: ``tensor(float)``, ``seq(tensor(int64))``. None stands for one that
is not known, and for an absent input or output.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx

from .._onnx.type_inference import NEWEST
from .._support.builtin_operators import ONNX_DOMAIN, schemas
from .._support.element_types import dtype_name, from_onnx, from_type_str

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext

Types = tuple[str | None, ...]


def format_type(type: onnx.TypeProto) -> str | None:
    """Return a type of a model, or None if it is not complete, or of a kind that no operator here takes."""
    kind = type.WhichOneof("value")
    if kind == "tensor_type":
        row = from_onnx(type.tensor_type.elem_type)
        return row.type_str if row else None
    if kind in ("sequence_type", "optional_type"):
        inner = format_type(getattr(type, kind).elem_type)
        return inner and f"{'seq' if kind == 'sequence_type' else 'optional'}({inner})"
    return None


@functools.cache
def type_proto(type: str) -> onnx.TypeProto:
    """Return the protobuf of a type, without a shape."""
    make = onnx.helper
    kind, _, inner = type.removesuffix(")").partition("(")
    if kind != "tensor":
        return (make.make_sequence_type_proto if kind == "seq" else make.make_optional_type_proto)(type_proto(inner))
    row = from_type_str(type)
    assert row is not None
    return make.make_tensor_type_proto(row.onnx, None)


def type_name(type: str | None) -> str:
    """Return a type as messages spell it: ``float32``, ``seq(int64)``; ``-`` for None."""
    if type is None:
        return "-"
    row = from_type_str(type)
    kind, _, inner = type.removesuffix(")").partition("(")
    return dtype_name(row.dtype) if row else f"{kind}({type_name(inner)})"


@dataclass(frozen=True, eq=False)
class Definition:
    """The definition of an operator from a version on, by ONNX, or by ONNX Runtime in its own domains.

    Attributes
    ----------
    inputs, outputs : tuple of str
        The types or type parameters; the last one repeats.
    allowed : dict of str to set of str
        The types that a type parameter may be.
    text : str
        The definition without the types. If it is equal for two definitions, they compute the same.
    schema : onnx.defs.OpSchema or None
        None for an operator that ONNX does not define.
    """

    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    allowed: Mapping[str, frozenset[str]]
    text: str
    schema: Any

    def bound(self, inputs: Types, outputs: Types) -> dict[str, set[str]]:
        """Return the types that the type parameters of a node have."""
        found: dict[str, set[str]] = {}
        for formals, types in ((self.inputs, inputs), (self.outputs, outputs)):
            for parameter, type in zip(_repeated(formals), types, strict=False):
                if type is not None:
                    found.setdefault(parameter, set()).add(type)
        return found

    def allows(self, inputs: Types, outputs: Types) -> bool:
        """Return whether a node may have so many inputs and outputs of these types."""
        schema, bound = self.schema, self.bound(inputs, outputs)
        if schema and not (
            schema.min_input <= len(inputs) <= schema.max_input
            and schema.min_output <= len(outputs) <= schema.max_output
        ):
            return False
        return all(bound.get(name, set()) <= types for name, types in self.allowed.items())


def _repeated(formals: Sequence[str]) -> Iterable[str]:
    return itertools.chain(formals, itertools.repeat(formals[-1])) if formals else ()


@functools.cache
def definition(domain: str, name: str, opset: int) -> Definition | None:
    """Return the definition that a model gets by importing version `opset` of the domain; None if there is none."""
    if opset < 1:
        return None
    try:
        schema = onnx.defs.get_schema(name, min(opset, NEWEST), "" if domain == ONNX_DOMAIN else domain)
    except onnx.defs.SchemaError:
        # ONNX Runtime has old operators of its own in ONNX's domain.
        if domain == ONNX_DOMAIN:
            return None
        known = [item for item in _known().get((domain, name), ()) if item.since_version <= opset]
        return _define(max(known, key=lambda item: item.since_version), None) if known else None
    return _define(schema, schema)


def allowing(domain: str, name: str, opset: int, inputs: Types, outputs: Types) -> Definition | None:
    """Return the definition at version `opset`, or the first newer one that differs in types alone and allows these."""
    now = definition(domain, name, opset)
    if now is None or domain != ONNX_DOMAIN:
        return now
    for version in range(opset, onnx.defs.onnx_opset_version() + 1):
        later = definition(domain, name, version)
        if later is None or later.text != now.text:
            break
        if later.allows(inputs, outputs):
            return later
    return now


@functools.cache
def _known() -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for schema in schemas():
        found.setdefault((schema.domain or ONNX_DOMAIN, schema.name), []).append(schema)
    return found


def _define(schema: Any, given: Any) -> Definition:
    inputs, outputs = (
        tuple(item.type_str if given else item.typeStr for item in items) for items in (schema.inputs, schema.outputs)
    )
    allowed = {item.type_param_str: frozenset(item.allowed_type_strs) for item in schema.type_constraints}
    attributes = [
        (name, item.type, str(item.default_value) if given else "") for name, item in sorted(schema.attributes.items())
    ]
    formals = [(item.name, str(item.option)) for item in (*schema.inputs, *schema.outputs)]
    return Definition(schema.since_version, inputs, outputs, allowed, f"{schema.doc}{attributes}{formals}", given)


def infer_bound(found: Definition, context: InferenceContext) -> None:
    """Set the types of a node's outputs that follow from those of its inputs by their type parameters alone."""
    given = range(context.get_num_inputs())
    types = [context.get_input_type(index) if context.has_input(index) else None for index in given]
    bound = found.bound(tuple(type and format_type(type) for type in types), ())
    for index, parameter in zip(range(context.get_num_outputs()), _repeated(found.outputs), strict=False):
        known = set(bound.get(parameter) or found.allowed.get(parameter) or {parameter})
        if len(known) == 1:
            context.set_output_type(index, type_proto(*known))


def bare(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node without a name, with inputs ``x0``, ``x1``, ... and outputs ``y0``, ``y1``, ..."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.ClearField("name")
    result.ClearField("doc_string")
    result.ClearField("metadata_props")
    result.input[:] = [value and f"x{index}" for index, value in enumerate(node.input)]
    result.output[:] = [value and f"y{index}" for index, value in enumerate(node.output)]
    return result


def one_node(node: onnx.NodeProto, inputs: Types, outputs: Types) -> onnx.GraphProto:
    """Return a graph of a bare node, whose inputs and outputs have these types."""
    given, results = (
        [
            onnx.helper.make_value_info(name, type_proto(type))
            for name, type in zip(names, types, strict=True)
            if name and type
        ]
        for names, types in ((node.input, inputs), (node.output, outputs))
    )
    return onnx.helper.make_graph([node], node.op_type, given, results)
