"""The nodes of declared ops in an exported model: as ONNX wants them, and as they are declared."""

from __future__ import annotations

import onnx_ir

from pyops import adoption, registry
from pyops.builtin import is_builtin
from pyops.node import misfits
from pyops.resolution import describe_missing

from ..errors import ExportError
from .optimization import all_nodes


def settle(model: onnx_ir.Model) -> None:
    """Name the absent inputs of the model's nodes, and hold each node against the declaration of its op.

    Nodes that a translation emits are checked as they are emitted; others come from
    ``torch.onnx.ops.symbolic``, an onnxscript function or a translation table of the user's own.

    Raises
    ------
    ExportError
        A node's inputs, outputs or attributes are not those declared, or no op of its name and version
        is declared in a domain of declared ops.
    """
    _name_absent_inputs(model)
    problems: dict[str, None] = {}
    functions = {(function.domain, function.name) for function in model.functions.values()}
    ours = registry.domains() - adoption.taken_domains()
    for node in all_nodes(model):
        version = model.opset_imports.get(node.domain, 1)
        op = registry.find(node.domain, node.op_type, version)
        if op is not None:
            problems.update(dict.fromkeys(misfits(onnx_ir.serde.serialize_node(node), op.signature)))
            continue
        key = (node.domain, node.op_type)
        if node.domain in ours and key not in functions and not is_builtin(*key):
            problems[describe_missing(*key, version)] = None
    if problems:
        lines = "".join(f"\n  - {line}" for line in problems)
        raise ExportError(f"the model and the declared ops disagree:{lines}")


def _name_absent_inputs(model: onnx_ir.Model) -> None:
    """Give absent inputs before a variadic one their empty names, as ONNX wants; torch trims them."""
    for node in all_nodes(model):
        op = registry.find(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))
        if op is not None and op.signature.inputs and op.signature.inputs[-1].variadic:
            node.resize_inputs(max(len(node.inputs), len(op.signature.inputs) - 1))
