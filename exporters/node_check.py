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
        elif node.domain in ours and (node.domain, node.op_type) not in functions:
            if not is_builtin(node.domain, node.op_type):
                problems[describe_missing(node.domain, node.op_type, version)] = None
    if problems:
        raise ExportError(
            "\n".join(["the model and the declared ops disagree:", *(f"  - {line}" for line in problems)])
        )
