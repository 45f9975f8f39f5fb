"""Lowering of products of complex matrices, and of what real matrices twice as large compute for complex ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir

from .complex_numbers import Parts, multiply, parts
from .complex_tensors import as_real
from .table import lower_complex
from .values import Pairs, constant, join, onnx_ops, split, transposed


def _product(x: Any, y: Any) -> Parts:
    """Return the matrix product of two tensors, of which one may be real."""
    beside = (x if isinstance(x, Pairs) else y).value
    if not isinstance(y, Pairs):
        return tuple(onnx_ops.MatMul(part, onnx_ops.CastLike(y, beside)) for part in split(x))
    if not isinstance(x, Pairs):
        return tuple(onnx_ops.MatMul(onnx_ops.CastLike(x, beside), part) for part in split(y))
    (a, b), (c, d) = split(x), split(y)
    product = onnx_ops.MatMul
    return onnx_ops.Sub(product(a, c), product(b, d)), onnx_ops.Add(product(a, d), product(b, c))


@lower_complex("aten::mm")
@lower_complex("aten::bmm")
def _mm(self: Any, mat2: Any) -> Any:
    return join(*_product(self, mat2))


@lower_complex("aten::mv")
def _mv(self: Any, vec: Any) -> Any:
    return join(*_product(self, vec))


@lower_complex("aten::dot")
def _dot(self: Any, tensor: Any) -> Any:
    return join(*_product(self, tensor))


@lower_complex("aten::vdot")
def _vdot(self: Any, other: Any) -> Any:
    real, imaginary = split(self)
    return join(*_product(Pairs(join(real, onnx_ops.Neg(imaginary))), other))


@lower_complex("aten::addmm")
def _addmm(self: Any, mat1: Any, mat2: Any, *, beta: complex = 1, alpha: complex = 1) -> Any:
    return _sum(self, mat1, mat2, beta, alpha)


@lower_complex("aten::baddbmm")
def _baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: complex = 1, alpha: complex = 1) -> Any:
    return _sum(self, batch1, batch2, beta, alpha)


@lower_complex("aten::addmv")
def _addmv(self: Any, mat: Any, vec: Any, *, beta: complex = 1, alpha: complex = 1) -> Any:
    return _sum(self, mat, vec, beta, alpha)


def _sum(x: Any, y: Any, z: Any, beta: complex, alpha: complex) -> Any:
    beside = next(item for item in (x, y, z) if isinstance(item, Pairs)).value
    product = multiply(_product(y, z), parts(alpha, beside))
    start = multiply(parts(x, beside), parts(beta, beside))
    return join(*map(onnx_ops.Add, start, product))


@lower_complex("aten::linear")
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    turned = _turned(weight)
    real, imaginary = _product(input, turned)
    if bias is None:
        return join(real, imaginary)
    return join(
        *map(onnx_ops.Add, (real, imaginary), parts(bias, (input if isinstance(input, Pairs) else weight).value))
    )


def _turned(matrices: Any) -> Any:
    """Return matrices with rows and columns exchanged."""
    if not isinstance(matrices, Pairs):
        return transposed(matrices)
    return Pairs(join(*map(transposed, split(matrices))))


# A + iB acts on complex vectors as [[A, -B], [B, A]] on their real parts, followed by their imaginary parts.


def _as_real_matrices(matrices: Pairs) -> Any:
    a, b = split(matrices)
    rows = [onnx_ops.Concat(a, onnx_ops.Neg(b), axis=-1), onnx_ops.Concat(b, a, axis=-1)]
    result = onnx_ops.Concat(*rows, axis=-2)
    shape = list(matrices.value.shape or ())[:-1]
    result.dtype = matrices.value.dtype
    if shape and all(isinstance(size, int) for size in shape[-2:]):
        result.shape = onnx_ir.Shape([*shape[:-2], 2 * shape[-2], 2 * shape[-1]])
    return result


def _halves(stacked: Any, axis: int) -> list[Any]:
    return list(onnx_ops.Split(stacked, axis=axis, num_outputs=2, _outputs=2))


def _of_real_matrices(name: str, argument: str) -> Callable[..., Any]:
    """Return a translation of a function that commutes with the representation by real matrices."""

    def translation(**given: Any) -> Any:
        result = as_real(name, **{**given, argument: _as_real_matrices(given[argument])})
        return NotImplemented if result is NotImplemented else join(*_halves(_halves(result, -1)[0], -2))

    return translation


lower_complex("aten::linalg_inv")(_of_real_matrices("aten::linalg_inv", "A"))
lower_complex("aten::linalg_matrix_exp")(_of_real_matrices("aten::linalg_matrix_exp", "self"))

_PINV = "aten::linalg_pinv.atol_rtol_tensor"
lower_complex(_PINV)(_of_real_matrices(_PINV, "self"))


@lower_complex("aten::linalg_solve")
def _solve(A: Any, B: Any, *, left: bool = True) -> Any:  # noqa: N803
    if not left or not isinstance(A, Pairs) or not isinstance(B, Pairs) or A.value.shape is None:
        return NotImplemented
    is_vector = B.value.shape is not None and len(B.value.shape) < len(A.value.shape)
    right = [onnx_ops.Unsqueeze(part, constant([-1])) if is_vector else part for part in split(B)]
    stacked = onnx_ops.Concat(*right, axis=-2)
    stacked.dtype = B.value.dtype
    result = join(*_halves(as_real("aten::linalg_solve", A=_as_real_matrices(A), B=stacked), -2))
    return onnx_ops.Squeeze(result, constant([-2])) if is_vector else result


def _every_second(values: Any) -> Any:
    """Return values of which the representation has each twice, in order."""
    return onnx_ops.Slice(values, constant([0]), constant([2**62]), constant([-1]), constant([2]))


@lower_complex("aten::linalg_svdvals")
def _svdvals(A: Any, *, driver: str | None = None) -> Any:  # noqa: N803
    found = as_real("aten::_linalg_svd", A=_as_real_matrices(A), compute_uv=False)
    return NotImplemented if found is NotImplemented else _every_second(found[1])
