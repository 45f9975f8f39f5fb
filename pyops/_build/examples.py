"""The calls of ops that a model has in its nodes: types, ranks and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.shape_inference import InferenceError

from .._models.inference import infer_types
from .._models.model import key_of
from .._onnx_schemas import inference_function
from .._ops.op import AnyOp
from .._schema.dtypes import from_onnx
from .._schema.node import read_attributes
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
        The model has none of them, does not have the type or rank of an input, or has a node that does not match its
        op.
    """
    by_name = {(op.domain, op.name): op for op in sorted(ops, key=lambda op: op.version)}
    nodes = [node for node in model.graph.node if key_of(node) in by_name]
    if not nodes:
        names = ", ".join(op.signature.qualified_name for op in ops)
        raise InputError(f"the model has no node of {names or 'a declared op'}")
    try:
        graph = infer_types(model, {key: inference_function(op) for key, op in by_name.items()}).graph
    except InferenceError as error:
        raise InputError(f"the model does not match the declared ops: {error}") from error
    values = (*graph.input, *graph.value_info, *graph.output)
    types = {value.name: value.type.tensor_type for value in values if value.type.tensor_type.HasField("shape")}
    return [_call(node, by_name[key_of(node)], types) for node in nodes]


def _call(node: onnx.NodeProto, op: AnyOp, types: Mapping[str, onnx.TypeProto.Tensor]) -> NodeCall:
    inputs = [_array(name, op, types) if name else None for name in node.input]
    values = read_attributes(node, op.signature)
    return NodeCall(op, tuple(inputs), {name: value for name, value in values.items() if op.signature.attribute(name)})


def _array(name: str, op: AnyOp, types: Mapping[str, onnx.TypeProto.Tensor]) -> Any:
    row = from_onnx(types[name].elem_type) if name in types else None
    if row is None:
        raise InputError(
            f"the model does not have the type and rank of {name!r}, an input of {op.signature.qualified_name}; add "
            "them to the model's value_info"
        )
    return np.empty((0,) * len(types[name].shape.dim), row.dtype)
