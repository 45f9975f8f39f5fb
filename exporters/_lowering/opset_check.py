"""Check that nodes written for one opset version of ONNX mean the same in another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import onnx
import onnx_ir
from onnx.defs import OpSchema

from .._torch_private.exporter import lowest_opset, recording
from ..errors import ExportError


def check_opset(where: str, nodes: Iterable[onnx_ir.Node], written: int | None, opset_version: int) -> None:
    """Raise ExportError if a node of one of ONNX's own operators means something else in the model's opset.

    Parameters
    ----------
    written : int, optional
        The opset version that the nodes were written for; by default each node's own.
    """
    for node in nodes:
        version = written or node.version
        if node.domain or version is None or _means_the_same(node, version, opset_version):
            continue
        raise ExportError(
            f"{where} uses {node.op_type} of opset {version}, which differs from that of the model's opset "
            f"{opset_version}; export with opset_version={version} (below 18 with dynamo=False), or write it with "
            f"onnxscript.opset{opset_version}"
        )


@contextmanager
def checking_older_nodes(where: str) -> Iterator[None]:
    """Context manager: check the nodes emitted in the block that are too old for torch's exporter to convert.

    Raises
    ------
    ExportError
        The operator of such a node has changed since the node's version.
    """
    nodes, opset_version = recording()
    before = len(nodes)
    yield
    lowest = min(lowest_opset(), opset_version)
    older = [node for node in nodes[before:] if not node.domain and (node.version or lowest) < lowest]
    changed = [node for node in older if not _means_the_same(node, node.version or lowest, lowest)]
    check_opset(where, changed, None, opset_version)


def _means_the_same(node: onnx_ir.Node, written: int, opset_version: int) -> bool:
    """Return whether a node written for one opset version means the same in another."""
    op_type = node.op_type
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
        and all(
            _same_attribute(item, new.attributes.get(name), name in node.attributes)
            for name, item in old.attributes.items()
        )
    )


def _same_attribute(old: OpSchema.Attribute, new: OpSchema.Attribute | None, given: bool) -> bool:
    if new is None:
        return not given and not old.required and not old.default_value.name
    return old.type == new.type and old.default_value == new.default_value
