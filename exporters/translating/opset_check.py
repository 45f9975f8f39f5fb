"""Whether nodes that were written for one opset version of ONNX mean the same in another."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir
from onnx.defs import OpSchema

from ..errors import ExportError


def check_opset(where: str, nodes: Iterable[onnx_ir.Node], written: int | None, opset_version: int) -> None:
    """Check that nodes of ONNX's own operators mean the same in a model's opset.

    Parameters
    ----------
    written : int, optional
        The opset version that they were written for, unless each node says.

    Raises
    ------
    ExportError
        An operator of the nodes is another in that version.
    """
    for node in nodes:
        version = written or node.version
        if node.domain or version is None or _is_the_same(node.op_type, version, opset_version):
            continue
        raise ExportError(
            f"{where} uses {node.op_type} of opset {version}, which is another in opset {opset_version} of the "
            f"model; export with opset_version={version}, or write it with onnxscript.opset{opset_version}"
        )


def _is_the_same(op_type: str, written: int, opset_version: int) -> bool:
    """Whether a node of an operator, as it was in one opset version, is one of it in another."""
    known = [onnx.defs.has(op_type, version) for version in (written, opset_version)]
    if not all(known):
        return not any(known)  # what ONNX has in neither is refused elsewhere
    old, new = onnx.defs.get_schema(op_type, written), onnx.defs.get_schema(op_type, opset_version)
    if old.since_version >= new.since_version:
        return old.since_version == new.since_version
    # What has only become possible since does not change a node: types, optional inputs and attributes.
    inputs = [item.name for item in old.inputs]
    return (
        not old.deprecated
        and not new.deprecated
        and inputs == [item.name for item in new.inputs][: len(inputs)]
        and [item.name for item in old.outputs] == [item.name for item in new.outputs]
        and all(_same_attribute(item, new.attributes.get(name)) for name, item in old.attributes.items())
    )


def _same_attribute(old: OpSchema.Attribute, new: OpSchema.Attribute | None) -> bool:
    return new is not None and old.type == new.type and old.default_value == new.default_value
