"""torch's sample calls, decomposed to operators that `pyops.kernels` supports, by the nodes that an export emits."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from exporters import ExportError
from exporters._library import translation_order
from exporters._library.operands import Pairs
from exporters._torch.private.onnx_exporter import recorded_nodes
from exporters._torch.private.operators import (
    OpOverload,
    TorchDispatchMode,
    overloads,
    qualified_name,
    schema_arguments,
)
from exporters._torch.private.trees import clone_tensors, flatten, unflatten
from exporters._torch.tensors import as_onnx_array
from pyops._support.element_types import ELEMENT_TYPES
from pyops.kernels import OPS
from tests.helpers.models import make_model
from tests.operator_coverage.samples import op_database, sample_inputs

ONNX_TYPES = {row.dtype: onnx_ir.DataType(row.onnx) for row in ELEMENT_TYPES}


@dataclass(frozen=True)
class Call:
    """A call of an operator, and what torch returns."""

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: Any

    @property
    def name(self) -> str:
        return qualified_name(self.target)


class Recorder(TorchDispatchMode):
    """Records the calls that the library may carry, as they go down to torch's kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if translation_order.find(qualified_name(func)) is None:
            return func(*args, **(kwargs or {}))
        before = clone_tensors((args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self.calls.append(Call(func, *before, clone_tensors(result)))
        return result


def calls(op: str, dtype: torch.dtype) -> Iterator[Call]:
    """Every call that the library may carry, of every sample of an operator that torch has."""
    info = infos()[op]
    composites = _composites(info)
    for sample in sample_inputs(info, dtype):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        with torch.no_grad(), Recorder() as recorder:
            info.op(*clone_tensors(args), **clone_tensors(kwargs))
        yield from map(_outside, recorder.calls) if dtype.is_complex else recorder.calls
        for target in composites:
            try:
                expected = target(*clone_tensors(args), **clone_tensors(kwargs))
            except RuntimeError:  # another overload's arguments
                continue
            yield Call(target, args, kwargs, expected)


def _outside(call: Call) -> Call:
    """Return a call with what torch returns outside a dispatch mode, in which it overlooks that views are conjugate."""
    args, kwargs = clone_tensors((call.args, call.kwargs))
    return replace(call, expected=call.target(*args, **kwargs))


def _composites(info: Any) -> list[OpOverload]:
    """Operators of this name that torch decomposes before a call of them can be recorded."""
    try:
        found = overloads(f"aten::{info.aten_name}")
    except ExportError:  # there is none
        return []
    return [item for item in found if translation_order.find(qualified_name(item)) and item._can_decompose()]


@functools.cache
def infos() -> dict[str, Any]:
    return {info.full_name: info for info in op_database()}


def run(call: Call) -> list[np.ndarray] | None:
    """What the nodes of a call return; None where the library leaves the call to others."""
    leaves = flatten((call.args, call.kwargs))
    known: dict[onnx_ir.Value | None, np.ndarray | None] = {None: None}

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        array = as_onnx_array(leaf)
        shape, dtype = onnx_ir.Shape(array.shape), ONNX_TYPES[array.dtype]
        value = onnx_ir.Value(name=f"x{len(known)}", shape=shape, type=onnx_ir.TensorType(dtype))
        known[value] = array
        return Pairs(value) if leaf.is_complex() else value

    args, kwargs = unflatten((call.args, call.kwargs), [placed(leaf) for leaf in leaves])
    names = [item.name for item in schema_arguments(call.target)]
    with recorded_nodes(18) as nodes:
        returned = translation_order.emit(call.target, {**dict(zip(names, args, strict=False)), **kwargs})
    if returned is NotImplemented:
        return None
    for node in nodes:
        results = _computed(node, [known[value] for value in node.inputs])
        known.update(zip(node.outputs, results, strict=True))
    return [known[value] for value in flatten(returned) if value is not None]


class LogSoftmax(OpRun):
    """As ONNX Runtime computes it; onnx's own has the logarithm of 0 for large logits."""

    op_domain = ""

    def _run(self, x, axis=-1):
        shifted = x - x.max(axis, keepdims=True)
        return (shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)),)


_numbers = itertools.count()


def _computed(node: onnx_ir.Node, inputs: list[np.ndarray | None]) -> Sequence[np.ndarray]:
    """What a node returns: of the library by its plain call, of ONNX's own by onnx's evaluator."""
    if node.domain == "pyops":
        attributes = {name: _value(item) for name, item in node.attributes.items()}
        result = OPS[node.op_type](*inputs, **attributes)
        return result if isinstance(result, tuple) else (result,)
    if node.op_type == "GatherElements":  # onnx's evaluator takes no more than 64 elements along a dimension
        x, indices = inputs
        assert x is not None
        assert indices is not None
        return (np.take_along_axis(x, indices, axis=node.attributes["axis"].as_int()),)
    for value in [*node.inputs, *node.outputs]:
        if value is not None and value.name is None:
            value.name = f"v{next(_numbers)}"
    if node.op_type == "GridSample":  # onnx's evaluator takes minutes
        named = [(value.name, array) for value, array in zip(node.inputs, inputs, strict=True)]
        types = [(name, array.dtype.type, None) for name, array in named]
        model = make_model([onnx_ir.to_proto(node)], types, [(node.outputs[0].name, *types[0][1:])], {"": 20})
        return onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(named))
    evaluator = ReferenceEvaluator(onnx_ir.to_proto(node), opsets={"": node.version or 18}, new_ops=[LogSoftmax])
    return evaluator.run(None, {value.name: array for value, array in zip(node.inputs, inputs, strict=True) if value})


def _value(attribute: onnx_ir.Attr) -> Any:
    return attribute.value.numpy() if attribute.type == onnx_ir.AttributeType.TENSOR else attribute.value


def arrays(result: Any) -> list[np.ndarray]:
    """A result as ONNX has it: one array after the other, complex numbers as pairs."""
    return [as_onnx_array(leaf) for leaf in flatten(result) if isinstance(leaf, torch.Tensor)]
