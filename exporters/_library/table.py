"""The table of the torch operators that `pyops.kernels` supports."""

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

# torch's exporter converts these nodes to the requested opset.
onnx_ops = opset("", 18)
kernels = opset("pyops")


@dataclass(frozen=True)
class Row:
    """How the library translates an operator.

    Attributes
    ----------
    registration : Registration
    takes_complex : bool
        Whether complex tensors, each as `Pairs`, are accepted among the arguments.
    replaces : bool
        Whether it replaces torch's own translation, because that gives wrong results.
    """

    registration: Registration
    takes_complex: bool
    replaces: bool


@dataclass(frozen=True)
class Pairs:
    """A complex tensor among the arguments, with real and imaginary parts along a last dimension of 2."""

    value: onnx_ir.Value


def constant(value: Any) -> Any:
    """Return a constant of the model: float64 for Python floats, int64 for ints; `like` gives it another type."""
    return onnx_ops.Constant(value=onnx.numpy_helper.from_array(np.asarray(value)))


def like(value: Any, x: onnx_ir.Value) -> Any:
    """Return a constant with the element type of a graph value."""
    return onnx_ops.CastLike(constant(value), x)


def transposed(matrices: onnx_ir.Value) -> Any:
    """Return a graph value with its last two dimensions exchanged."""
    assert matrices.shape is not None  # torch's exporter sets it for every value
    rank = len(matrices.shape)
    return onnx_ops.Transpose(matrices, perm=[*range(rank - 2), rank - 1, rank - 2])


def vector(sizes: Sequence[Any]) -> Any:
    """Return sizes, some of which may be graph values, as one tensor."""
    if all(isinstance(size, int) for size in sizes):
        return constant(list(sizes))
    parts = [constant([size]) if isinstance(size, int) else onnx_ops.Reshape(size, constant([1])) for size in sizes]
    return onnx_ops.Concat(*parts, axis=0)


rows: dict[str, Row] = {}
"""The table, by the overload's name."""

absent: list[str] = []
"""Names of operators with a row that the installed torch does not have; releases of torch drop operators."""


def lower(torch_op: str, *, takes_complex: bool = False, replaces: bool = False) -> Callable[[F], F]:
    """Register an op of the library, or a function that emits nodes of it, as `register_translation` does.

    A function that returns NotImplemented passes the call on to torch's own translation. It returns complex results
    as pairs along a last dimension of 2.

    Parameters
    ----------
    torch_op : str
        ``"ns::name.overload"``, or ``"ns::name"`` for every overload whose arguments the function takes.
    takes_complex, replaces : bool
        As in `Row`.
    """

    def register(function: F) -> F:
        try:
            found = registrations(torch_op, function)
        except NoOperatorError:
            absent.append(torch_op)
        else:
            rows.update({name: Row(item, takes_complex, replaces) for name, item in found.items()})
        return function

    return register
