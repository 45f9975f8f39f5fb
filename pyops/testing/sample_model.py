"""A model of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx
from onnx import helper, numpy_helper

from ..builtin import ONNX_DOMAIN
from ..signature import AttributeKind
from ..types import element_type

if TYPE_CHECKING:
    from .sample import Sample

# That of ONNX's own domain, with the IR version that came with it; older ones lack element types.
_OPSET = 23
_IR_VERSION = 11


def sample_model(sample: Sample, outputs: Sequence[Any], dynamic: bool) -> onnx.ModelProto:
    """As `Sample.model`; `outputs` are what the call returns."""
    signature = sample.op.signature
    domain = "" if signature.domain == ONNX_DOMAIN else signature.domain
    feed = sample.feed
    inputs = ["" if array is None else f"x{index}" for index, array in enumerate(sample.inputs)]
    names = [f"y{index}" for index in range(len(outputs))]
    node = helper.make_node(signature.name, inputs, names, domain=domain, name=signature.name)
    node.attribute.extend(
        _attribute(sample, name, value) for name, value in sample.attributes.items() if value is not None
    )
    graph = helper.make_graph(
        [node],
        signature.name,
        [_value_info(name, array, None if dynamic else array.shape) for name, array in feed.items()],
        [_value_info(name, array, None) for name, array in zip(names, outputs, strict=True)],
    )
    imports = {"": _OPSET} | ({domain: signature.version} if domain else {})
    opsets = [helper.make_opsetid(*item) for item in imports.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _attribute(sample: Sample, name: str, value: Any) -> onnx.AttributeProto:
    declared = sample.op.signature.attribute(name)
    assert declared is not None
    value = declared.convert(value)
    if declared.kind is AttributeKind.TENSOR:
        value = numpy_helper.from_array(value)
    elif declared.boolean:
        value = int(value)
    return helper.make_attribute(name, value, attr_type=declared.kind.value)


def _value_info(name: str, array: Any, shape: Sequence[int] | None) -> onnx.ValueInfoProto:
    row = element_type(array.dtype)
    assert row is not None
    return helper.make_tensor_value_info(name, row.onnx, shape)
