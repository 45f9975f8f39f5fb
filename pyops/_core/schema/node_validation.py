"""Validation of a model's nodes against the declarations of their ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..._support.element_types import describe
from ...errors import InputError, add_note
from .signature import Signature

if TYPE_CHECKING:
    import onnx


def find_mismatch(node: onnx.NodeProto, signature: Signature) -> str | None:
    """Return a message for the first mismatch between a node and its op's declaration, or None if they match."""
    first = repr(node.output[0]) if node.output else "nothing"
    where = f"node {node.name!r}" if node.name else f"the node that outputs {first}"
    try:
        inputs = list(node.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        for item, name in zip(signature.parameters(len(inputs)), inputs, strict=True):
            if not name and not item.optional:
                raise InputError(f"input {item.name!r} is absent; {signature} requires it")
        if len(node.output) > len(signature.outputs) and not signature.outputs[-1].variadic:
            raise InputError(f"it has {len(node.output)} outputs; {signature} has {len(signature.outputs)}")
        linked = linked_attributes(node)
        unlinked = replace(signature, attributes=tuple(a for a in signature.attributes if a.name not in linked))
        unknown = {name: None for name in linked if not (signature.attribute(name) or signature.ignores(name))}
        unlinked.convert_attributes(read_attributes(node, signature) | unknown)
    except InputError as error:
        return f"{where} ({signature.qualified_name}): {error}"
    return None


def linked_attributes(node: onnx.NodeProto) -> dict[str, str]:
    """Return the attributes whose values come from attributes of the ONNX function that contains the node.

    Returns
    -------
    dict
        The attribute's name to the name of the function's attribute.
    """
    return {proto.name: proto.ref_attr_name for proto in node.attribute if proto.ref_attr_name}


def read_attributes(node: onnx.NodeProto, signature: Signature) -> dict[str, Any]:
    """Return the values of the node's own attributes by name, without those that the op ignores.

    Raises
    ------
    InputError
        An attribute is not of the declared type, or its value cannot be decoded.
    """
    import onnx

    values = {}
    for proto in node.attribute:
        if proto.ref_attr_name or signature.ignores(proto.name):
            continue
        declared = signature.attribute(proto.name)
        if declared is not None and proto.type != declared.kind.value:
            kind = onnx.AttributeProto.AttributeType.Name(proto.type)
            raise InputError(f"attribute {proto.name!r} is {kind} in the model; it is declared {declared.spelling}")
        try:
            values[proto.name] = read_attribute(proto)
        except Exception as error:  # onnx raises various types for invalid bytes
            raise InputError(f"attribute {proto.name!r} cannot be read: {type(error).__name__}: {error}") from error
        if any(b"\0" in item for item in proto.strings):
            raise InputError(f"attribute {proto.name!r} contains a NUL character, where ONNX Runtime would cut it off")
    return values


def read_attribute(proto: onnx.AttributeProto) -> Any:
    """Return the value of an attribute: strings decoded, a tensor as an array."""
    import onnx

    value = onnx.helper.get_attribute_value(proto)
    if proto.type == onnx.AttributeProto.STRING:
        return value.decode()
    if proto.type == onnx.AttributeProto.STRINGS:
        return [item.decode() for item in value]
    return onnx.numpy_helper.to_array(value) if proto.type == onnx.AttributeProto.TENSOR else value


def describe_node(name: str, signature: Signature, arrays: Sequence[Any] = ()) -> str:
    """Return the note for an exception raised in a node: the node's name, its op, and `arrays` if given."""
    where = f"in {f'node {name!r}' if name else 'a node without a name'} ({signature.qualified_name})"
    declared = signature.parameters(len(arrays)) if arrays else ()
    inputs = ", ".join(f"{item.name}: {describe(array)}" for item, array in zip(declared, arrays, strict=True))
    return f"{where}, inputs {inputs}" if inputs else where


def explain_read_only(error: BaseException) -> None:
    """Add a note to the exception that NumPy raises where a kernel writes to its input, with what to write instead."""
    if type(error) is ValueError and "read-only" in str(error):
        add_note(error, "the arrays that a kernel gets are read-only: write to a copy, such as x.copy()")
