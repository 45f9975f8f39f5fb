"""Whether the nodes of an exported model fit the declared ops, before any session is made of it."""

from __future__ import annotations

import onnx_ir

from pyops import adoption, registry
from pyops.builtin import is_builtin
from pyops.model import describe_missing, misfits

from .errors import ExportError
from .optimization import all_nodes


def check_nodes(model: onnx_ir.Model) -> None:
    """Hold every node of the model against the declaration of its op.

    Nodes that a translation emits are checked as they are emitted; these may come from
    ``torch.onnx.ops.symbolic``, an onnxscript function or a translation table of the user's own.

    Raises
    ------
    ExportError
        A node's inputs, outputs or attributes are not those declared, or no op of its name and version
        is declared in a domain of declared ops.
    """
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
