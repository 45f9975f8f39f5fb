"""Values and attributes of a model, as people read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .types import dtype_name, from_onnx, spell_shape

if TYPE_CHECKING:
    import onnx

_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Value:
    """An input or output of the model; a dimension is a size, a name or ``?``."""

    name: str
    type: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        return f"{self.type}{'' if self.shape is None else spell_shape(self.shape)}"


def value_of(item: onnx.ValueInfoProto) -> Value:
    """An input or output of a model."""
    if not item.type.HasField("tensor_type"):
        return Value(item.name, item.type.WhichOneof("value") or "?", None)
    tensor = item.type.tensor_type
    row = from_onnx(tensor.elem_type)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim)
    return Value(item.name, dtype_name(row.dtype) if row else "?", shape)


def spell_attribute(item: onnx.AttributeProto) -> str:
    """The value of a node's attribute; a long one is cut off."""
    import onnx

    if item.ref_attr_name:
        return f"that of the function ({item.ref_attr_name})"
    value = onnx.helper.get_attribute_value(item)
    if item.type == onnx.AttributeProto.TENSOR:
        row = from_onnx(value.data_type)
        return f"{dtype_name(row.dtype) if row else '?'}{list(value.dims)}"
    if item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return "graph"
    if item.type == onnx.AttributeProto.FLOAT:
        return f"{value:.9g}"
    if item.type == onnx.AttributeProto.FLOATS:
        text = f"[{', '.join(f'{number:.9g}' for number in value)}]"
    elif isinstance(value, bytes):
        text = repr(value.decode(errors="replace"))
    elif item.type == onnx.AttributeProto.STRINGS:
        text = repr([entry.decode(errors="replace") for entry in value])
    else:
        text = str(list(value) if item.type == onnx.AttributeProto.INTS else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
