"""Iteration over the nodes of a model, and their validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx_ir

from pyops._models.model import Model, full_domain
from pyops._models.resolution import resolve
from pyops._ops import adoption, registry

from ..errors import ExportError


def all_nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    """Yield every node of the graph, its subgraphs and the model's functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def validate_nodes(model: onnx_ir.Model, custom_opsets: Mapping[str, int]) -> None:
    """Name absent inputs before a variadic one, and validate each node against the declaration of its op.

    Nodes that a translation emits are validated when they are emitted, for the version that the translation names.
    The others come from ``torch.onnx.ops.symbolic``, an onnxscript function or the user's translation table.

    Parameters
    ----------
    custom_opsets : mapping
        What the user passed, named in the error.

    Raises
    ------
    ExportError
        A node's inputs, outputs or attributes differ from the declaration; a domain of declared ops has no op of
        the node's name and version; or ONNX Runtime does not know a version that the model imports.
    """
    _name_absent_inputs(model)
    domains = registry.domains()
    proto = onnx.ModelProto()
    proto.graph.node.extend(
        onnx_ir.serde.serialize_node(node) for node in all_nodes(model) if full_domain(node.domain) in domains
    )
    proto.opset_import.extend(onnx.helper.make_opsetid(*item) for item in model.opset_imports.items())
    proto.functions.extend(onnx.FunctionProto(domain=key[0], name=key[1]) for key in model.functions)
    problems = resolve(Model(b"", proto), {}, adoption.taken_domains()).problems
    if problems:
        asked = f"with custom_opsets={dict(custom_opsets)} " if custom_opsets else ""
        lines = "".join(f"\n  - {line}" for line in dict.fromkeys(problems))
        raise ExportError(f"{asked}the model and the declared ops disagree:{lines}")


def _name_absent_inputs(model: onnx_ir.Model) -> None:
    """Give absent inputs before a variadic one their empty names, which ONNX requires and torch trims."""
    for node in all_nodes(model):
        op = registry.find(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))
        if op is not None and op.signature.inputs and op.signature.inputs[-1].variadic:
            node.resize_inputs(max(len(node.inputs), len(op.signature.inputs) - 1))
