"""Values of TorchScript's graph, read as the arguments of a torch operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir
import torch

from pyops._schema.dtypes import element_type

from .._torch.operators import as_exported
from .._torch.tensors import numpy_dtype
from .._torch_private.operators import Argument, OpOverload
from .._torch_private.torchscript import fake_outputs, is_graph_value, torchscript_dtype
from .._torch_private.trees import flatten, replace_leaves

# Substituted for sizes that are not fixed; an output size is fixed if it is the same with both.
_SIZES = (8191, 16381)

Returned = Sequence[tuple[torch.dtype | None, Sequence[int | None]]]
"""Dtype and shape of each tensor that an operator returns."""


def graph_values(tree: Any) -> list[Any]:
    """Return the graph values among arguments, in order."""
    return [leaf for leaf in flatten(tree) if is_graph_value(leaf)]


def fits(declared: Sequence[Argument], inputs: Sequence[Any]) -> bool:
    """Return whether values are arguments of an overload; TorchScript does not say which overload is called."""
    if len(declared) != len(inputs):
        return False
    for item, value in zip(declared, inputs, strict=True):
        if _is_none(value):
            fitting = "Optional" in item.type
        elif item.is_tensor:
            fitting = item.is_tensor_list == (value.node().kind() == "prim::ListConstruct")
        else:
            number = constant(value)
            scalar = not isinstance(number, list) if number is not value else value.type().dim() in (0, None)
            fitting = "List" in item.type or scalar
        if not fitting:
            return False
    return True


def arguments(declared: Sequence[Argument], inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Convert graph values to the positional and keyword arguments of an operator."""
    values = [_argument(item, value) for item, value in zip(declared, inputs, strict=True)]
    tensors = [value for item, value in zip(declared, values, strict=True) if item.is_tensor and is_graph_value(value)]
    if any(is_graph_value(_number(value)) for value in tensors):
        # Next to a tensor, a constant scalar is a Python number that the tracer wrapped.
        values = [_number(value) if is_graph_value(value) else value for value in values]
    return as_exported(declared, values)


def _argument(item: Argument, value: Any) -> Any:
    if _is_none(value):
        return None
    if item.is_tensor:
        return list(value.node().inputs()) if item.is_tensor_list else value
    number = constant(value)
    if item.is_dtype and isinstance(number, int):
        return torchscript_dtype(number)
    return bool(number) if "bool" in item.type and isinstance(number, int) else number


def _number(value: Any) -> Any:
    found = constant(value)
    return value if isinstance(found, list) else found


def _is_none(value: Any) -> bool:
    return value is None or value.type().kind() == "NoneType"


def constant(value: Any) -> Any:
    """Return a constant number, string or list of them; a value known only when the model runs is returned itself."""
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        return [constant(item) for item in node.inputs()]
    if node.kind() != "onnx::Constant":
        return value
    return node.s("value") if node.kindOf("value") == "s" else node.t("value").tolist()


def spec(value: Any) -> tuple[torch.dtype | None, Sequence[int | None]]:
    """Return dtype and shape of a graph value, as far as they are known."""
    return value.type().dtype(), value.type().varyingSizes() or []


def emitted_arguments(tree: Any, inputs: Iterable[onnx_ir.Value]) -> Any:
    """Return the arguments for a translation, with ONNX values and dtypes in place of torch's."""
    given = replace_leaves(tree, inputs, is_graph_value)
    dtypes = [_onnx_dtype(leaf) for leaf in flatten(given) if _is_dtype(leaf)]
    return replace_leaves(given, dtypes, _is_dtype)


def ir_value(name: str, value: Any) -> onnx_ir.Value:
    """Return the ONNX value that stands for a graph value in a translation."""
    if value.type().kind() != "TensorType":
        return onnx_ir.Value(name=name)
    dtype, _ = spec(value)
    sizes = value.type().varyingSizes()
    return onnx_ir.Value(
        name=name,
        type=None if dtype is None else onnx_ir.TensorType(_onnx_dtype(dtype)),
        shape=None if sizes is None else onnx_ir.Shape(sizes),
    )


def _is_dtype(leaf: Any) -> bool:
    return isinstance(leaf, torch.dtype)


def _onnx_dtype(dtype: torch.dtype) -> onnx_ir.DataType:
    row = element_type(numpy_dtype(dtype))
    assert row is not None
    return onnx_ir.DataType(row.onnx)


def returned(target: OpOverload, args: Any, kwargs: Any, traced: Returned | None) -> Returned:
    """Return dtype and shape of each output of an operator, with None for sizes that may change between runs.

    The operator's fake finds these: it runs twice, with different sizes in place of each size that is not fixed.
    """
    unknown = [(dtype, [None] * len(shape)) for dtype, shape in traced or ()]
    given = graph_values((args, kwargs))
    if any(value.type().kind() != "TensorType" or value.type().varyingSizes() is None for value in given):
        return unknown
    runs = []
    for size in _SIZES:
        metas = [_meta(value.type(), size) for value in given]
        try:
            runs.append(fake_outputs(target, *replace_leaves((args, kwargs), metas, is_graph_value)))
        except Exception:  # the substituted sizes may not fit together
            return unknown
    return [
        (first[0], [size if size == other else None for size, other in zip(first[1], second[1], strict=True)])
        for first, second in zip(*runs, strict=True)
    ]


def _meta(type_: Any, size: int) -> torch.Tensor:
    return torch.empty(
        [size if fixed is None else fixed for fixed in type_.varyingSizes()], dtype=type_.dtype(), device="meta"
    )
