"""Compiles an op's kernel before anything calls it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernel
from ..errors import CompileError, DeclarationError, PyopsError
from .kernel import CompiledKernel
from .specialization import specialize

if TYPE_CHECKING:
    from ..op import Op

_RANKS = (1, 2, 3, 4, 0)


def compile_op(op: Op[..., Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """As `Op.compile`."""
    compiled = op.kernels["cpu"]
    name = op.signature.qualified_name
    if not isinstance(compiled, CompiledKernel):
        raise DeclarationError(f'{name} has no kernel to compile; declare it with @onnx_op("{name}", compile=True)')
    if inputs:
        arrays, named = kernel.split_arguments(op.signature, inputs, attributes)
        _compile(op, compiled, arrays, named)
        return
    named = op.signature.convert_attributes(attributes)
    for dtypes in _choices(op):
        failures = []
        for rank in _RANKS:
            try:
                _compile(op, compiled, [np.ones((1,) * rank, dtype) for dtype in dtypes], named)
                break
            except PyopsError as error:  # a shape function may refuse a rank, too
                failures.append(error)
        else:
            raise next((error for error in failures if isinstance(error, CompileError)), failures[0])


def _compile(op: Op[..., Any], compiled: CompiledKernel, arrays: list[Any], attributes: dict[str, Any]) -> None:
    if not compiled.compile_call(arrays, attributes):
        return
    dtypes = compiled.output_dtypes(arrays)
    shapes = None if op.shape_function is None else op.output_shapes(arrays, attributes)
    found, _ = specialize(op.signature, compiled.cores, arrays, attributes, dtypes, len(dtypes), shapes)
    compiled.entry(found, attributes)


def _choices(op: Op[..., Any]) -> Iterator[list[Any]]:
    """The dtypes of the inputs, for each choice of the type parameters."""
    parameters = list(dict.fromkeys(item.type for item in op.signature.inputs))
    for choice in itertools.product(*(parameter.dtypes for parameter in parameters)):
        chosen = dict(zip(parameters, choice, strict=True))
        yield [chosen[item.type] for item in op.signature.inputs]
