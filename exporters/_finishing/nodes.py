"""The nodes of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx_ir

from pyops._models.model import Model, full_domain
from pyops._models.resolution import resolve
from pyops._ops import adoption, registry

from ..errors import ExportError


def all_nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    """Every node of the graph, its subgraphs and the model's functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def settle(model: onnx_ir.Model, custom_opsets: Mapping[str, int]) -> None:
    """Name the absent inputs of the model's nodes, and hold each node against the declaration of its op.

    Nodes that a translation emits are checked as they are emitted, for the version that it names; others come
    from ``torch.onnx.ops.symbolic``, an onnxscript function or a translation table of the user's own.

    Parameters
    ----------
    custom_opsets : mapping
        What the user asked for, named in the error.

    Raises
    ------
    ExportError
        A node's inputs, outputs or attributes are not those declared, no op of its name and version
        is declared in a domain of declared ops, or ONNX Runtime does not know a version that the model imports.
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
    """Give absent inputs before a variadic one their empty names, as ONNX wants; torch trims them."""
    for node in all_nodes(model):
        op = registry.find(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))
        if op is not None and op.signature.inputs and op.signature.inputs[-1].variadic:
            node.resize_inputs(max(len(node.inputs), len(op.signature.inputs) - 1))
