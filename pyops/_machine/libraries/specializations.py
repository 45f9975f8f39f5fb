"""What the machine code of an op is built for: types, ranks and kinds of attributes, as nodes could have them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
from onnx.shape_inference import InferenceError

from ..._core import AnyOp, Attribute, AttributeKind, Signature, TypeParameter, key_of, read_attributes
from ..._onnx.op_schemas import inference_function
from ..._onnx.type_inference import infer_types
from ..._support.element_types import DType, dtype_name, from_onnx
from ...errors import CompileError, InputError
from ..compiled.compiled_kernel import CompiledKernel, is_compilable, type_of
from ..compiled.specialization import Tensor

RANKS = (1, 2, 3, 4)
"""The ranks that an op is built for unless others are given."""
COUNTS = (1, 2, 3, 4)
"""The numbers of tensors of a variadic input."""

Ranks = Sequence[int | Sequence[int]]


class Example(Protocol):
    """A call of an op as data: a `pyops.testing.Sample`."""

    @property
    def op(self) -> AnyOp: ...

    @property
    def inputs(self) -> tuple[Any, ...]: ...

    @property
    def attributes(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class NodeCall:
    """A node as a call of its op; the inputs are arrays of its types and ranks, without elements."""

    op: AnyOp
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Use:
    """Types and ranks of inputs, and values of attributes that stand for all of their kind.

    Attributes
    ----------
    inputs : tuple
        The dtype and rank of each declared input, and of each tensor of a variadic one; None for an absent one.
    asked : bool
        Whether it was requested explicitly, so that it must not be left out.
    without_loops : tuple, optional
        The inputs of its example, compiled instead if the shape function, which loops need, cannot be compiled.
    """

    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    asked: bool
    without_loops: tuple[Tensor | None, ...] | None = None

    def __str__(self) -> str:
        return ", ".join("None" if item is None else type_of(*item) for item in self.inputs)


def of_example(example: Example) -> Iterator[Use]:
    """Iterate over the uses that serve an example: one, or, for an op with loops, one for each number of loops."""
    signature, cores = example.op.signature, loop_cores(example.op)
    inputs = [None if array is None else (array.dtype, array.ndim) for array in example.inputs]
    inputs += [None] * (len(signature.inputs) - signature.is_variadic - len(inputs))
    attributes = signature.convert_attributes(example.attributes)
    if cores is None:
        yield Use(tuple(inputs), attributes, True)
        return
    for ranks in _ranks(None, cores, len(inputs)):
        looped = (item and (item[0], rank) for item, rank in zip(inputs, ranks, strict=True))
        yield Use(tuple(looped), attributes, True, tuple(inputs))


def of_declaration(op: AnyOp, ranks: Ranks | None) -> Iterator[Use]:
    """Iterate over all uses that the declaration allows, for these ranks.

    Parameters
    ----------
    ranks : sequence of int or of sequences of int, optional
        Ranks that all inputs have, or one for each input.

    Raises
    ------
    CompileError
        The declaration is not specific enough, or numba does not support its types.
    """
    cores = loop_cores(op)
    choices = [_of_attribute(op.signature, attribute) for attribute in op.signature.attributes]
    names = [attribute.name for attribute in op.signature.attributes]
    # How many tensors each input may have.
    counts = [COUNTS if item.variadic else (1, 0) if item.optional else (1,) for item in op.signature.inputs]
    for types, present in itertools.product(_type_choices(op.signature), itertools.product(*counts)):
        items = [item for item, times in zip(op.signature.inputs, present, strict=True) for _ in range(max(times, 1))]
        there = [times > 0 for times in present for _ in range(max(times, 1))]
        for given in _ranks(ranks, cores, len(items)):
            tensors = zip(items, there, given, strict=True)
            inputs = tuple((types[item.type], rank) if is_there else None for item, is_there, rank in tensors)
            for values in itertools.product(*choices):
                yield Use(inputs, dict(zip(names, values, strict=True)), ranks is not None)


def loop_cores(op: AnyOp) -> Sequence[int] | None:
    """Return the number of core dimensions of each tensor if the op's other dimensions are loops, otherwise None."""
    kernel = op.kernels["cpu"]
    return kernel.cores if isinstance(kernel, CompiledKernel) and op.shape_function is not None else None


def left_out_types(signature: Signature) -> list[str]:
    """Return the declared element types that numba does not support."""
    dtypes = dict.fromkeys(dtype for parameter in signature.type_parameters for dtype in parameter.dtypes)
    return [dtype_name(dtype) for dtype in dtypes if not is_compilable(dtype)]


def _type_choices(signature: Signature) -> Iterator[dict[TypeParameter, DType]]:
    parameters = signature.type_parameters
    for parameter in parameters:
        if not any(map(is_compilable, parameter.dtypes)):
            raise CompileError(f"numba does not support {parameter}")
    for dtypes in itertools.product(*(filter(is_compilable, parameter.dtypes) for parameter in parameters)):
        yield dict(zip(parameters, dtypes, strict=True))


def _ranks(ranks: Ranks | None, cores: Sequence[int] | None, count: int) -> Iterator[Sequence[int]]:
    if cores is not None:
        # Leading dimensions are taken together (see `run_loops` in runtime.c), as far as all inputs have them.
        for loops in (1, 2) if count > 1 else (1,):
            yield [loops + core for core in cores[:count]]
        return
    for given in RANKS if ranks is None else ranks:
        if isinstance(given, int):
            yield [given] * count
        elif len(given) == count:
            yield given


def _of_attribute(signature: Signature, attribute: Attribute) -> list[Any]:
    """Return one value for each kind of value that needs its own machine code."""
    if attribute.choices and attribute.kind is AttributeKind.STRING:
        values = list(attribute.choices)
    elif attribute.kind in (AttributeKind.INT, AttributeKind.FLOAT):
        values = [attribute.choices[0] if attribute.choices else attribute.convert(1)]
    elif attribute.required:
        raise CompileError(
            f"attribute {attribute.name!r} is {attribute.spelling}, and each {_WHAT[attribute.kind]} needs its own "
            "code; give a model that has the op (--for), or an example"
        )
    else:
        values = [attribute.default]
    return [*values, None] if attribute.default is None and not attribute.required and None not in values else values


_WHAT = {
    AttributeKind.STRING: "string",
    AttributeKind.STRINGS: "list of strings",
    AttributeKind.TENSOR: "type and rank",
} | dict.fromkeys((AttributeKind.INTS, AttributeKind.FLOATS), "length")


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
            f"the model does not declare the type and rank of {name!r}, an input of {op.signature.qualified_name}; add "
            "them to the model's value_info"
        )
    return np.empty((0,) * len(types[name].shape.dim), row.dtype)
