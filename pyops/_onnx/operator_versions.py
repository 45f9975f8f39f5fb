"""Operators of ONNX's own domain in different opset versions."""

from __future__ import annotations

from collections.abc import Container

import onnx
from onnx.defs import OpSchema


def means_the_same(op_type: str, given: Container[str], written: int, opset_version: int) -> bool:
    """Return whether a node with these attributes, written for one opset version, means the same in another."""
    known = [onnx.defs.has(op_type, version) for version in (written, opset_version)]
    if not all(known):
        return not any(known)  # an operator unknown in both versions is rejected elsewhere
    old, new = onnx.defs.get_schema(op_type, written), onnx.defs.get_schema(op_type, opset_version)
    if old.since_version >= new.since_version:
        return old.since_version == new.since_version
    # Types, optional inputs and attributes that a version adds do not change the meaning of older nodes.
    inputs = [item.name for item in old.inputs]
    return (
        not old.deprecated
        and not new.deprecated
        and inputs == [item.name for item in new.inputs][: len(inputs)]
        and [item.name for item in old.outputs] == [item.name for item in new.outputs]
        and all(_same_attribute(item, new.attributes.get(name), name in given) for name, item in old.attributes.items())
    )


def _same_attribute(old: OpSchema.Attribute, new: OpSchema.Attribute | None, given: bool) -> bool:
    if new is None:
        return not given and not old.required and not old.default_value.name
    return old.type == new.type and old.default_value == new.default_value
