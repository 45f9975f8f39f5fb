"""The kernel library in an export: the translations that replace torch's, and those for unsupported operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir
import torch

from pyops.errors import PyopsError

from .._lowering.translations import NoTranslationError, or_own_translation
from .._torch.operators import as_exported, find_overload, is_native
from .._torch_private.exporter import default_opset, element_type, one_at_a_time, recorded_nodes
from .._torch_private.operators import OpOverload, qualified_name, schema_arguments
from .._torch_private.trees import flatten, unflatten
from . import (  # noqa: F401
    attention,
    complex_constants,
    convolution,
    elementwise,
    fft,
    indexing,
    linear_algebra,
    losses,
    normalization,
    products,
    recurrent,
    sorting,
    statistics,
)
from .table import Pairs, Row, rows


@functools.cache
def translations() -> Mapping[OpOverload, Callable[..., Any]]:
    """Return the library's translations of operators that torch's exporter does not support or translates wrongly."""
    found = {find_overload(name): row for name, row in rows.items()}
    return {
        target: or_own_translation(target, functools.partial(_translate, target, row))
        for target, row in found.items()
        if target is not None and (row.replaces or not is_native(target))
    }


def find(operator: str) -> Row | None:
    """Return the row of an operator, ``"ns::name.overload"``, or None."""
    return rows.get(operator)


def emit(target: OpOverload, arguments: Mapping[str, Any]) -> Any:
    """Emit the nodes for a call, or return NotImplemented if the library does not support the operator.

    Parameters
    ----------
    arguments : mapping
        By torch's names: graph values for tensors, `Pairs` for complex tensors, and constants.

    Raises
    ------
    NoTranslationError
        The library supports the operator but not this call.
    """
    row = find(qualified_name(target))
    if row is None or (_has_pairs(list(arguments.values())) and not row.takes_complex):
        return NotImplemented
    declared = schema_arguments(target)
    args, kwargs = as_exported(declared, [arguments.get(item.name, item.default) for item in declared])
    return _translate(target, row, *args, **kwargs)


@one_at_a_time
def takes(node: torch.fx.Node) -> bool:
    """Return whether the library handles a call of an operator that torch's exporter translates too."""
    target = node.target
    assert isinstance(target, OpOverload)
    names = [item.name for item in schema_arguments(target)]
    given = node.args, node.kwargs
    args, kwargs = unflatten(given, [_stand_in(argument) for argument in flatten(given)])
    with recorded_nodes(default_opset()):
        try:
            return emit(target, {**dict(zip(names, args, strict=False)), **kwargs}) is not NotImplemented
        except Exception:  # an error, unlike NotImplemented, does not pass the call on to torch
            return True


def _stand_in(argument: Any) -> Any:
    """Return the value that a translation gets for an argument of a call."""
    if isinstance(argument, torch.dtype):
        return element_type(argument)
    if not isinstance(argument, torch.fx.Node):
        return argument
    value = argument.meta["val"]
    if not isinstance(value, torch.Tensor):
        number = _value(torch.int64)
        return number if _depends_on_data(argument) else onnx_ir.Node("", "Size", [number]).outputs[0]
    sizes = [size if isinstance(size, int) else str(size) for size in value.shape]
    return Pairs(_value(value.dtype.to_real(), *sizes, 2)) if value.is_complex() else _value(value.dtype, *sizes)


def _depends_on_data(number: torch.fx.Node) -> bool:
    """Return whether a number is computed from the data of tensors, and not from their sizes alone."""
    if number.target is torch.ops.aten.sym_size.int:
        return False
    return any(isinstance(item.meta["val"], torch.Tensor) or _depends_on_data(item) for item in number.all_input_nodes)


def _value(dtype: torch.dtype, *sizes: int | str) -> onnx_ir.Value:
    return onnx_ir.Value(shape=onnx_ir.Shape(sizes), type=onnx_ir.TensorType(element_type(dtype)))


def _has_pairs(value: Any) -> bool:
    return any(map(_has_pairs, value)) if isinstance(value, (list, tuple)) else isinstance(value, Pairs)


def _translate(target: OpOverload, row: Row, *args: Any, **kwargs: Any) -> Any:
    try:
        return row.registration.translation(*args, **kwargs)
    except PyopsError as error:
        # With this error type, a fallback may still handle the call.
        name = qualified_name(target)
        raise NoTranslationError(
            f"pyops.kernels does not support this call of {name}: {error}; "
            "exporters.export(..., fallback=True) lets torch compute it"
        ) from error
