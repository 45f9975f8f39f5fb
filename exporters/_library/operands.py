"""Graph values in the translations of the library: constants, torch's type promotion, and complex pairs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch

from .._lowering.node_emission import opset
from .._torch.private.onnx_exporter import own_translation
from .._torch.private.operators import find_overload
from .._torch.tensors import numpy_dtype, torch_dtype

# torch's exporter converts these nodes to the requested opset.
onnx_ops = opset("", 18)
_pyops = opset("pyops")


def by_torch(name: str, *args: Any, **kwargs: Any) -> Any:
    """Return what torch's own translation of an operator emits, or NotImplemented if torch has none."""
    target = find_overload(name)
    own = None if target is None else own_translation(target)
    return NotImplemented if own is None else own(*args, **kwargs)


def constant(value: Any) -> Any:
    """Return a constant of the model: float64 for Python floats, int64 for ints; `like` gives it another type."""
    return onnx_ops.Constant(value=onnx.numpy_helper.from_array(np.asarray(value)))


def like(value: Any, x: onnx_ir.Value) -> Any:
    """Return a constant with the element type of a graph value."""
    result: Any = onnx_ops.CastLike(constant(value), x)
    if x.dtype is not None:  # outputs of library ops have none
        result.dtype = x.dtype
    return result


def typed_constant(number: float, dtype: torch.dtype) -> Any:
    """Return a scalar constant of a torch dtype, an infinity for a number beyond it."""
    with np.errstate(over="ignore"):
        result = constant(np.array(number, numpy_dtype(dtype)))
    result.dtype = onnx_ir.DataType.from_numpy(numpy_dtype(dtype))  # torch's own translations read it
    return result


def vector(sizes: Sequence[Any]) -> Any:
    """Return sizes, some of which may be graph values, as one tensor."""
    if all(isinstance(size, int) for size in sizes):
        return constant(list(sizes))
    parts = [constant([size]) if isinstance(size, int) else onnx_ops.Reshape(size, constant([1])) for size in sizes]
    return onnx_ops.Concat(*parts, axis=0)


def dtype_of(value: onnx_ir.Value) -> torch.dtype:
    """Return the torch dtype of a graph value."""
    assert value.dtype is not None  # torch's exporter sets it for every value
    return torch_dtype(value.dtype.numpy())


def named_dtype(dtype: Any) -> torch.dtype:
    """Return the torch dtype of a dtype argument, which torch's exporter passes as ONNX's enum."""
    return dtype if isinstance(dtype, torch.dtype) else torch_dtype(onnx_ir.DataType(dtype).numpy())


def cast(value: onnx_ir.Value, dtype: torch.dtype) -> Any:
    """Return a graph value cast to a dtype."""
    if dtype_of(value) == dtype:
        return value
    to = onnx_ir.DataType.from_numpy(numpy_dtype(dtype))
    result: Any = onnx_ops.Cast(value, to=to)
    result.dtype, result.shape = to, value.shape  # torch's own translations read them
    return result


def widened(value: onnx_ir.Value) -> Any:
    """Return a graph value, as float32 if it has fewer than 32 bits."""
    return cast(value, torch.float32) if dtype_of(value).itemsize < 4 else value


def promote(*values: Any, floating: bool = False) -> list[Any]:
    """Return numbers and graph values as graph values of the element type that `promoted` returns."""
    dtype = promoted(*values, floating=floating)
    return [typed_constant(value, dtype) if isinstance(value, (int, float)) else cast(value, dtype) for value in values]


def promoted(*values: Any, floating: bool = False) -> torch.dtype:
    """Return the element type in which torch computes with graph values and numbers.

    Parameters
    ----------
    floating : bool
        Return torch's default dtype if every argument is an integer.
    """
    # In torch's promotion, a scalar tensor counts less than one with dimensions, and a number less than a tensor.
    total = functools.reduce(operator.add, map(_example, values))
    dtype = torch.result_type(total, total)
    return torch.get_default_dtype() if floating and not dtype.is_floating_point else dtype


def _example(value: Any) -> Any:
    """Return a tensor without values, of the element type of a graph value and with dimensions if it has any."""
    if not isinstance(value, onnx_ir.Value):
        return value
    dims = [1] if value.shape is None or len(value.shape) else []
    return torch.empty(dims, dtype=dtype_of(value), device="meta")


@dataclass(frozen=True)
class Pairs:
    """A complex tensor among the arguments, with real and imaginary parts along a last dimension of 2."""

    value: onnx_ir.Value


class _Kernels:
    """The ops of `pyops.kernels`; for `Pairs`, those of complex numbers."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def emitted(*inputs: Any, **attributes: Any) -> Any:
            of_pairs = any(isinstance(item, Pairs) for item in inputs)
            return getattr(_pyops, f"Complex{name}" if of_pairs else name)(*map(plain, inputs), **attributes)

        return emitted


kernels = _Kernels()


def plain(value: Any) -> Any:
    """Return the graph value of `Pairs`, and anything else unchanged."""
    return value.value if isinstance(value, Pairs) else value


def transposed(matrices: Any) -> Any:
    """Return a graph value or `Pairs` with the last two dimensions exchanged."""
    shape = plain(matrices).shape
    assert shape is not None  # torch's exporter sets it for every value
    if isinstance(matrices, Pairs):
        *batch, rows, columns, two = range(len(shape))
        return Pairs(onnx_ops.Transpose(matrices.value, perm=[*batch, columns, rows, two]))
    *batch, rows, columns = range(len(shape))
    return onnx_ops.Transpose(matrices, perm=[*batch, columns, rows])


def by_parts(emit: Callable[..., Any], *values: Any) -> Any:
    """Return what `emit` gives for the values; for `Pairs`, apply it to real and imaginary parts, and join the results.

    Return NotImplemented if some values are real and some complex.
    """
    if not any(isinstance(value, Pairs) for value in values):
        return emit(*values)
    if not all(isinstance(value, Pairs) for value in values):
        return NotImplemented
    return join(*(emit(*of_all) for of_all in zip(*map(split, values), strict=True)))


def split(pairs: Pairs) -> tuple[Any, Any]:
    """Return the real and the imaginary parts of a complex tensor."""
    parts = [onnx_ops.Gather(pairs.value, constant(index), axis=-1) for index in (0, 1)]
    for part in parts:
        part.dtype = pairs.value.dtype  # the validation of inputs reads it
        part.shape = None if pairs.value.shape is None else onnx_ir.Shape(list(pairs.value.shape)[:-1])
    return parts[0], parts[1]


def join(real: Any, imaginary: Any) -> Any:
    """Return the pairs of real and imaginary parts."""
    return onnx_ops.Concat(*(onnx_ops.Unsqueeze(part, constant([-1])) for part in (real, imaginary)), axis=-1)


def join_zeros(real: Any) -> Any:
    """Return the pairs of real numbers."""
    return join(real, onnx_ops.Expand(like(0.0, real), onnx_ops.Shape(real)))
