"""Compilation of an op's kernel before its first call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._schema import validation
from .._schema.signature import Signature
from ..errors import CompileError, DeclarationError, PyopsError
from .kernel import CompiledKernel
from .specialization import specialize

_RANKS = (1, 2, 3, 4, 0)


def compile_kernel(
    signature: Signature,
    compiled: Callable[..., Any],
    output_shapes: Callable[..., Any] | None,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
) -> None:
    """Compile a kernel, as `Op.compile` documents.

    Without inputs it is compiled for every assignment of dtypes to the type parameters, each for the first of several
    ranks that works.

    Parameters
    ----------
    compiled : callable
        The op's CPU kernel.
    output_shapes : callable or None
        `pyops._ops.op.output_shapes` bound to the op; None if the op has no shape function.

    Raises
    ------
    DeclarationError
        The op was declared without ``compile``.
    CompileError
        numba cannot compile the kernel.
    """
    name = signature.qualified_name
    if not isinstance(compiled, CompiledKernel):
        raise DeclarationError(f'{name} has no kernel to compile; declare it with @onnx_op("{name}", compile=True)')
    if inputs:
        arrays, named = validation.split_arguments(signature, inputs, attributes)
        _compile(compiled, output_shapes, arrays, named)
        return
    named = signature.convert_attributes(attributes)
    for dtypes in _choices(signature):
        failures = []
        for rank in _RANKS:
            try:
                _compile(compiled, output_shapes, [np.ones((1,) * rank, dtype) for dtype in dtypes], named)
                break
            except PyopsError as error:  # a shape function may reject a rank, too
                failures.append(error)
        else:
            raise next((error for error in failures if isinstance(error, CompileError)), failures[0])


def _compile(
    compiled: CompiledKernel, output_shapes: Callable[..., Any] | None, arrays: list[Any], attributes: dict[str, Any]
) -> None:
    if not compiled.compile_call(arrays, attributes):
        return
    dtypes = compiled.output_dtypes(arrays)
    shapes = None if output_shapes is None else output_shapes(arrays, attributes)
    found, _ = specialize(compiled.signature, compiled.cores, arrays, attributes, dtypes, len(dtypes), shapes)
    compiled.entry(found, attributes)


def _choices(signature: Signature) -> Iterator[list[Any]]:
    """Yield the dtypes of the inputs for each assignment of dtypes to the type parameters."""
    parameters = list(dict.fromkeys(item.type for item in signature.inputs))
    for choice in itertools.product(*(parameter.dtypes for parameter in parameters)):
        chosen = dict(zip(parameters, choice, strict=True))
        yield [chosen[item.type] for item in signature.inputs]
