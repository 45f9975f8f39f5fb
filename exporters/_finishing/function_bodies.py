"""onnxscript functions that a model calls, kept as functions of the model or inlined."""

from __future__ import annotations

import onnx_ir
from onnx_ir.passes.common import InlinePass

from pyops._ops import registry

from .._lowering.emission import Emission, Functions
from .._lowering.opset_check import check_opset


def add_functions(model: onnx_ir.Model, emitted: Emission, *, keep: bool) -> bool:
    """Add the functions that the model calls, and inline them unless they are kept.

    Parameters
    ----------
    emitted : Emission
        Extended with the versions of the operators in the functions.

    Returns
    -------
    bool
        Whether any function was inlined.

    Raises
    ------
    ExportError
        Two functions have the same name, or a function was written for an opset version in which one of its
        operators differs from the model's.
    """
    needed = _needed(model, emitted.functions)
    bodies = [onnx_ir.serde.deserialize_function(item.to_function_proto()) for item in needed.values()]
    for body in bodies:
        _import_model_opset(model, body)
        model.functions[body.identifier()] = body
        for node in body.all_nodes():
            if node.domain and (node.domain, node.op_type) not in needed:
                version = body.opset_imports[node.domain]
                op = registry.find(node.domain, node.op_type, version)
                emitted.add(node.domain, node.op_type, op.version if op else version)
        # The passes and ONNX Runtime require the model to import every domain that a function uses.
        for domain, version in body.opset_imports.items():
            model.opset_imports[domain] = max(version, model.opset_imports.get(domain, 1))
    for body in bodies:
        body.opset_imports.update({domain: model.opset_imports[domain] for domain in body.opset_imports})
    if keep or not needed:
        return False
    InlinePass(lambda body: (body.domain, body.name) in needed)(model)
    return True


def _needed(model: onnx_ir.Model, functions: Functions) -> Functions:
    """Return the functions that the model calls, directly or through other functions."""
    needed = Functions()
    nodes = model.graph.all_nodes()
    pending = [functions[key] for key in {(node.domain, node.op_type) for node in nodes} & functions.keys()]
    while pending:
        function = pending.pop()
        if needed.add(function):
            pending += function.function_ir.get_called_functions().values()
    return needed


def _import_model_opset(model: onnx_ir.Model, body: onnx_ir.Function) -> None:
    written = body.opset_imports.get("")
    if written is None:
        return
    opset_version = model.opset_imports.setdefault("", written)
    check_opset(f"the function {body.domain}::{body.name}", body.all_nodes(), written, opset_version)
    body.opset_imports[""] = opset_version
