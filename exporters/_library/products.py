"""Lowering of cross products and einsum to ONNX's own nodes."""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from .._torch.tensors import numpy_dtype
from .._torch_private.exporter import own_translation
from ..errors import ExportError
from .promotion import cast, dtype_of
from .table import Pairs, constant, lower, onnx_ops


@lower("aten::cross", replaces=True)
def _cross(self: Any, other: Any, dim: int | None = None) -> Any:
    # Without dim, torch uses the first dimension of size 3, and its exporter the last dimension.
    own = own_translation(torch.ops.aten.linalg_cross.default)
    if dim is not None or own is None:
        return NotImplemented
    if 3 not in list(self.shape):
        raise ExportError("torch.cross takes the first dimension of size 3, and none is fixed; give it dim=")
    first = list(self.shape).index(3)
    return NotImplemented if first == len(self.shape) - 1 else own(self, other, dim=first)


@lower("aten::einsum", replaces=True, takes_complex=True)
def _einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> Any:
    if any(isinstance(item, Pairs) for item in tensors):
        return _complex_einsum(equation, tensors)
    # ONNX Runtime's Einsum supports few integer types, and torch's exporter misses that integer sums are int64.
    dtype = dtype_of(tensors[0])
    if dtype.is_floating_point or dtype == torch.int64:
        return NotImplemented
    shapes = [[1 if size == 1 else 2 for size in item.shape] for item in tensors]
    result = torch.einsum(equation, [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]).dtype
    if result == dtype == torch.int32:
        return NotImplemented
    total = onnx_ops.Einsum(*(cast(item, torch.int64) for item in tensors), equation=equation)
    return total if result == torch.int64 else onnx_ops.Cast(total, to=onnx_ir.DataType.from_numpy(numpy_dtype(result)))


def _complex_einsum(equation: str, tensors: Sequence[Any]) -> Any:
    """Return an Einsum over the pairs too, with a tensor of the signs of the products of real and imaginary parts."""
    given, arrow, output = equation.replace(" ", "").partition("->")
    if not arrow:
        output = "..." * ("..." in given) + "".join(x for x in sorted(set(given) - set(".,")) if given.count(x) == 1)
    free = iter(sorted(set(string.ascii_letters) - set(equation)))
    labels = [next(free) if isinstance(item, Pairs) else "" for item in tensors]
    inputs = [term + label for term, label in zip(given.split(","), labels, strict=True)]
    values = [item.value if isinstance(item, Pairs) else item for item in tensors]
    units = np.zeros([2] * (len("".join(labels)) + 1))
    for parts in itertools.product((0, 1), repeat=units.ndim - 1):
        power = sum(parts)
        units[(*parts, power % 2)] = 1 - power % 4 // 2 * 2
    last = next(free)
    equation = f"{','.join([*inputs, ''.join(labels) + last])}->{output}{last}"
    weights = constant(units.astype(numpy_dtype(dtype_of(values[0]))))
    return onnx_ops.Einsum(*values, weights, equation=equation)
