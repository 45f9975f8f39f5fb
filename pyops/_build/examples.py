"""The calls of ops that a model has in its nodes: types, ranks and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from .._onnx_schemas import register_schemas
from .._ops.op import AnyOp
from .._schema.dtypes import from_onnx
from .._schema.node import read_attributes
from .._schema.specs import TensorSpec, new_dim
from ..errors import InputError


@dataclass(frozen=True)
class NodeCall:
    """A node as a call of its op; the inputs are arrays of its types and ranks, without elements."""

    op: AnyOp
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]


def of_model(model: onnx.ModelProto, ops: Sequence[AnyOp]) -> list[NodeCall]:
    """Return the calls of these ops in a model's graph.

    Raises
    ------
    InputError
        The model has none of them, does not have the type or rank of an input, has an attribute of another type
        than declared, or has a node that a shape function does not accept.
    """
    by_name = {(op.domain, op.name): op for op in sorted(ops, key=lambda op: op.version)}
    nodes = [
        (node, by_name[node.domain, node.op_type])
        for node in model.graph.node
        if (node.domain, node.op_type) in by_name
    ]
    if not nodes:
        names = ", ".join(op.signature.qualified_name for op in ops)
        raise InputError(f"the model has no node of {names or 'a declared op'}")
    try:
        with register_schemas():
            known = _known(model)
    except Exception as error:  # a shape function may raise anything
        raise InputError(f"a shape function does not accept the model: {error}") from error
    return [_call(node, op, known) for node, op in nodes]


def _known(model: onnx.ModelProto) -> dict[str, TensorSpec]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    known = {item.name: (from_onnx(item.data_type), [1] * len(item.dims)) for item in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            known[value.name] = from_onnx(tensor.elem_type), list(tensor.shape.dim)
    return {name: TensorSpec([new_dim() for _ in dims], row.dtype) for name, (row, dims) in known.items() if row}


def _attributes(node: onnx.NodeProto, op: AnyOp) -> dict[str, Any]:
    values = read_attributes(node, op.signature)
    return {name: value for name, value in values.items() if op.signature.attribute(name)}


def _call(node: onnx.NodeProto, op: AnyOp, known: dict[str, TensorSpec]) -> NodeCall:
    def arrays() -> Iterator[Any]:
        for name in node.input:
            if name and name not in known:
                raise InputError(
                    f"the model does not have the type and rank of {name!r}, an input of "
                    f"{op.signature.qualified_name}; add them to the model's value_info"
                )
            yield np.empty((0,) * known[name].ndim, known[name].dtype) if name else None

    return NodeCall(op, tuple(arrays()), _attributes(node, op))
