"""A model of one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper, numpy_helper

from ..attribute import Attribute, AttributeKind
from ..builtin import ONNX_DOMAIN
from ..signature import Signature
from ..types import element_type

# That of ONNX's own domain, with the IR version that came with it; older ones lack element types.
_OPSET = 23
_IR_VERSION = 11


def sample_model(
    signature: Signature, inputs: Sequence[Any], attributes: Mapping[str, Any], outputs: Sequence[Any], dynamic: bool
) -> onnx.ModelProto:
    """As `Sample.model`; `outputs` are what the call returns."""
    domain = "" if signature.domain == ONNX_DOMAIN else signature.domain
    feed = {f"x{index}": array for index, array in enumerate(inputs)}
    results = {f"y{index}": array for index, array in enumerate(outputs)}
    given = ["" if array is None else name for name, array in feed.items()]
    node = helper.make_node(signature.name, given, list(results), domain=domain, name=signature.name)
    for name, value in attributes.items():
        declared = signature.attribute(name)
        if declared is not None and value is not None:
            node.attribute.append(_attribute(declared, value))
    graph = helper.make_graph(
        [node],
        signature.name,
        [_value_info(name, x, None if dynamic else x.shape) for name, x in feed.items() if x is not None],
        [_value_info(name, y, None) for name, y in results.items()],
    )
    imports = {"": _OPSET} | ({domain: signature.version} if domain else {})
    opsets = [helper.make_opsetid(*item) for item in imports.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _attribute(declared: Attribute, value: Any) -> onnx.AttributeProto:
    value = declared.convert(value)
    if declared.kind is AttributeKind.TENSOR:
        value = numpy_helper.from_array(value)
    elif declared.boolean:
        value = int(value)
    return helper.make_attribute(declared.name, value, attr_type=declared.kind.value)


def _value_info(name: str, array: Any, shape: Sequence[int] | None) -> onnx.ValueInfoProto:
    row = element_type(array.dtype)
    assert row is not None
    return helper.make_tensor_value_info(name, row.onnx, shape)
