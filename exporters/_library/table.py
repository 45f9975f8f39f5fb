"""The table of the torch operators that ops of `pyops.kernels` carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir

from .._lowering.nodes import opset
from .._lowering.translations import Registration, registrations
from .._torch.operators import NoOperatorError

F = TypeVar("F", bound=Callable[..., Any])

# Nodes of ONNX's own; torch's exporter converts them to the opset that is asked for.
onnx_ops = opset("", 18)
kernels = opset("pyops")


@dataclass(frozen=True)
class Row:
    """How the library carries an operator.

    Attributes
    ----------
    registration : Registration
    takes_complex : bool
        Whether complex tensors may be among the arguments, each as `Pairs`.
    replaces : bool
        Whether it takes the place of what torch's exporter makes of the operator, because that is wrong.
    """

    registration: Registration
    takes_complex: bool
    replaces: bool


@dataclass(frozen=True)
class Pairs:
    """A complex tensor among the arguments: real and imaginary parts along a last dimension of 2."""

    value: onnx_ir.Value


def constant(value: Any) -> Any:
    """A constant of the model: float64 for Python's floats, int64 for its ints; `like` gives it another type."""
    return onnx_ops.Constant(value=onnx.numpy_helper.from_array(np.asarray(value)))


def like(value: Any, x: onnx_ir.Value) -> Any:
    """A constant of a graph value's element type."""
    return onnx_ops.CastLike(constant(value), x)


def transposed(matrices: onnx_ir.Value) -> Any:
    """A graph value with its last two dimensions exchanged."""
    assert matrices.shape is not None  # torch's exporter has it of every value
    rank = len(matrices.shape)
    return onnx_ops.Transpose(matrices, perm=[*range(rank - 2), rank - 1, rank - 2])


def vector(sizes: Sequence[Any]) -> Any:
    """Sizes, some of which may be values of the graph, as one tensor."""
    if all(isinstance(size, int) for size in sizes):
        return constant(list(sizes))
    parts = [constant([size]) if isinstance(size, int) else onnx_ops.Reshape(size, constant([1])) for size in sizes]
    return onnx_ops.Concat(*parts, axis=0)


rows: dict[str, Row] = {}
"""By the overload's name."""

absent: list[str] = []
"""What rows were entered for that this release of torch does not have: releases drop operators."""


def lower(torch_op: str, *, takes_complex: bool = False, replaces: bool = False) -> Callable[[F], F]:
    """Enter an op of the library, or a function that emits nodes of it, as `register_translation` does.

    A function that returns NotImplemented leaves the call to others. Complex results are returned as pairs of
    reals along a last dimension of 2.

    Parameters
    ----------
    torch_op : str
        ``"ns::name.overload"``, or ``"ns::name"`` for every overload that the function can take.
    takes_complex, replaces : bool
        As in `Row`.
    """

    def enter(function: F) -> F:
        try:
            found = registrations(torch_op, function)
        except NoOperatorError:
            absent.append(torch_op)
        else:
            rows.update({name: Row(item, takes_complex, replaces) for name, item in found.items()})
        return function

    return enter
