"""Conversion of the arguments and results of calls between torch's graph and the nodes of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import onnx_ir
import torch
from torch.fx import Node

from .._capture.interception import target_of
from .._library.operands import Pairs, dtype_of, typed_constant
from .._lowering.node_emission import opset
from .._torch.private.onnx_exporter import set_type
from .._torch.private.trees import present_leaves
from .._torch.tensors import as_onnx_array
from . import reasons


def emit_constant(node: Node) -> Any:
    """Emit the result of a call without inputs as a constant of the model."""
    target, kwargs = target_of(node), dict(node.kwargs)
    return opset("", 18).Constant(value=onnx_ir.tensor(as_onnx_array(target(*node.args, **kwargs))))


def emit_placeholder(node: Node) -> Any:
    """Emit a node of an operator that does not exist, with the results of a call."""
    value = node.meta.get("val")
    count = max(1, len(present_leaves(value)))
    called = opset("unsupported").Call(_outputs=count)
    outputs = [called] if count == 1 else called
    for output in outputs if reasons.against_value(value) else ():
        output.dtype = onnx_ir.DataType.UNDEFINED  # otherwise torch's exporter looks up a type, and finds none
    return called if value is None else results(value, iter(outputs))


def of_number(translation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a translation that takes a number for its first tensor, of the element type of the next one."""

    def translated(number: float, *args: Any, **kwargs: Any) -> Any:
        other = next(item for item in (*args, *kwargs.values()) if isinstance(item, onnx_ir.Value))
        first = typed_constant(number, dtype_of(other))
        first.dtype, first.shape = other.dtype, onnx_ir.Shape([])  # torch's translations read them
        return translation(first, *args, **kwargs)

    return translated


def with_pairs(written: Any, values: Any) -> Any:
    """Return the arguments of a call with graph values of complex tensors as `Pairs`."""
    if isinstance(written, Node):
        value = written.meta.get("val")
        return Pairs(values) if isinstance(value, torch.Tensor) and value.is_complex() else values
    if isinstance(written, (list, tuple)):
        return [with_pairs(*both) for both in zip(written, values, strict=True)]
    if isinstance(written, dict):
        return {name: with_pairs(item, values[name]) for name, item in written.items()}
    return values


class _Results(list[Any]):
    """A list among the results of a call, which torch's exporter names as it names a value."""

    name = ""

    def producer(self) -> None:
        """Return None: no node computes it."""


def is_sequence(result: Any, value: Any) -> bool:
    """Return whether one graph value, an ONNX sequence, stands for all tensors of a call's result."""
    return isinstance(result, onnx_ir.Value) and isinstance(value, (list, tuple))


def results(value: Any, outputs: Iterator[Any], depth: int = 0) -> Any:
    """Return the outputs of nodes in the structure of a call's results, with empty lists for absent ones."""
    if value is None:
        return _Results()
    if isinstance(value, (list, tuple)):
        return _Results([results(item, outputs, depth + 1) for item in value])
    output = next(outputs)
    if isinstance(value, torch.Tensor) and value.is_complex():
        output.dtype = None  # otherwise torch's exporter leaves the dimension of the pairs out of the shape
    if depth > 1:  # torch's exporter sets the types of the others
        set_type(output, value)
    return output
