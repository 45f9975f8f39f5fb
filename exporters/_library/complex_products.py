"""Lowering of products of complex matrices and vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .complex_numbers import Parts, multiply, parts
from .complex_tensors import as_real
from .operands import Pairs, constant, join, onnx_ops, split, transposed
from .row_table import lower_complex


def _product(x: Any, y: Any, product: Callable[[Any, Any], Any] = onnx_ops.MatMul) -> Parts:
    """Return the matrix product, or another product, of two tensors; one of them may be real."""
    beside = (x if isinstance(x, Pairs) else y).value
    if not isinstance(y, Pairs):
        return tuple(product(part, onnx_ops.CastLike(y, beside)) for part in split(x))
    if not isinstance(x, Pairs):
        return tuple(product(onnx_ops.CastLike(x, beside), part) for part in split(y))
    (a, b), (c, d) = split(x), split(y)
    return onnx_ops.Sub(product(a, c), product(b, d)), onnx_ops.Add(product(a, d), product(b, c))


@lower_complex("aten::mm")
@lower_complex("aten::bmm")
@lower_complex("aten::mv")
@lower_complex("aten::dot")
def _plain(**operands: Any) -> Any:
    return join(*_product(*operands.values()))


@lower_complex("aten::vdot")
def _vdot(self: Any, other: Any) -> Any:
    real, imaginary = split(self)
    return join(*_product(Pairs(join(real, onnx_ops.Neg(imaginary))), other))


def _cross(name: str) -> Callable[..., Any]:
    def translation(self: Any, other: Any, **given: Any) -> Any:
        return join(*_product(self, other, lambda x, y: as_real(name, self=x, other=y, **given)))

    return translation


for _name in ("aten::cross", "aten::linalg_cross"):
    lower_complex(_name)(_cross(_name))


@lower_complex("aten::linalg_vecdot")
def _vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    real, imaginary = split(x)
    axis = constant([dim])

    def product(one: Any, other: Any) -> Any:
        return onnx_ops.ReduceSum(onnx_ops.Mul(one, other), axis, keepdims=0)

    return join(*_product(Pairs(join(real, onnx_ops.Neg(imaginary))), y, product))


def _added(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a translation that adds the product of two tensors to another one, each times a number."""

    def translation(self: Any, *, beta: complex = 1, alpha: complex = 1, **operands: Any) -> Any:
        beside = next(item for item in (self, *operands.values()) if isinstance(item, Pairs)).value
        x, y = operands.values()
        more = multiply(_product(x, y, product), parts(alpha, beside))
        start = multiply(parts(self, beside), parts(beta, beside))
        return join(*map(onnx_ops.Add, start, more))

    return translation


lower_complex("aten::addr")(_added(lambda x, y: onnx_ops.Mul(onnx_ops.Unsqueeze(x, constant([-1])), y)))
for _name in ("aten::addmm", "aten::addmv", "aten::baddbmm"):
    lower_complex(_name)(_added(onnx_ops.MatMul))


@lower_complex("aten::linear")
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    real, imaginary = _product(input, transposed(weight))
    if bias is None:
        return join(real, imaginary)
    return join(
        *map(onnx_ops.Add, (real, imaginary), parts(bias, (input if isinstance(input, Pairs) else weight).value))
    )
