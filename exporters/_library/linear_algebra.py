"""Lowering of linear algebra, cross products and einsum.

Functions that check for errors in torch keep their checks, as an attribute of the op.
"""

from __future__ import annotations

import functools
import itertools
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from pyops.kernels import linear_systems, orthogonal_factorization, spectral, triangular_factorization

from .._torch.tensors import numpy_dtype
from ..errors import ExportError
from .elementwise import atan2
from .operands import (
    Pairs,
    by_torch,
    cast,
    constant,
    dtype_of,
    join,
    kernels,
    like,
    named_dtype,
    onnx_ops,
    plain,
    promote,
    split,
    transposed,
)
from .row_table import lower, lower_complex


@lower("aten::_cdist_forward")
@lower("aten::cdist")
def _cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    return kernels.Cdist(x1, x2, p=np.array(p, np.float64), compute_mode=compute_mode or 0)


@lower("aten::_euclidean_dist")
def _euclidean(x1: Any, x2: Any) -> Any:
    return kernels.Cdist(x1, x2, p=np.array(2.0), compute_mode=1)


@lower("aten::_pdist_forward")
@lower("aten::pdist")
def _pdist(self: Any, p: float = 2.0) -> Any:
    return kernels.Pdist(self, p=np.array(p, np.float64))


lower("aten::linalg_inv_ex")(linear_systems.inv_ex)
lower("aten::linalg_cholesky_ex")(triangular_factorization.cholesky_ex)
lower("aten::cholesky_inverse")(linear_systems.cholesky_inverse)
lower("aten::cholesky_solve")(linear_systems.cholesky_solve)
lower("aten::linalg_lu_factor_ex")(triangular_factorization.lu_factor_ex)
lower("aten::linalg_lu_solve")(linear_systems.lu_solve)
lower("aten::lu_unpack")(triangular_factorization.lu_unpack)
lower("aten::linalg_ldl_factor_ex")(triangular_factorization.ldl_factor_ex)
lower("aten::linalg_ldl_solve")(linear_systems.ldl_solve)
lower("aten::linalg_qr")(orthogonal_factorization.qr)
lower("aten::geqrf")(orthogonal_factorization.geqrf)
lower("aten::linalg_householder_product")(orthogonal_factorization.householder_product)
lower("aten::ormqr")(orthogonal_factorization.ormqr)
lower("aten::_linalg_svd")(spectral.svd)
lower("aten::_linalg_eigh")(spectral.eigh)
lower("aten::linalg_eig")(spectral.eig)
lower("aten::linalg_solve_triangular")(linear_systems.solve_triangular)
lower("aten::linalg_pinv.atol_rtol_tensor")(spectral.pinv)
lower("aten::linalg_matrix_exp")(spectral.matrix_exp)

# torch decomposes each of these into a computation and a check that raises and returns nothing. ONNX has no such
# operator, and torch's exporter fails on it.


@lower("aten::linalg_inv", takes_complex=True, replaces=True)
def _inv(A: Any) -> Any:  # noqa: N803
    return kernels.InvEx(A, check_errors=True)[0]


@lower("aten::linalg_tensorinv", takes_complex=True, replaces=True)
def _tensorinv(self: Any, ind: int = 2) -> Any:
    if isinstance(self, Pairs):
        rows, columns = onnx_ops.Shape(self.value, end=ind), onnx_ops.Shape(self.value, start=ind, end=-1)
        sizes = onnx_ops.ReduceProd(rows), constant([-1]), constant([2])
        inverse = _inv(Pairs(onnx_ops.Reshape(self.value, onnx_ops.Concat(*sizes, axis=0))))
        return onnx_ops.Reshape(inverse, onnx_ops.Concat(columns, rows, constant([2]), axis=0))
    inverse = _inv(onnx_ops.Flatten(self, axis=ind))
    shape = onnx_ops.Concat(onnx_ops.Shape(self, start=ind), onnx_ops.Shape(self, end=ind), axis=0)
    return onnx_ops.Reshape(inverse, shape)


@lower("aten::linalg_solve", takes_complex=True, replaces=True)
def _solve(A: Any, B: Any, *, left: bool = True) -> Any:  # noqa: N803
    return kernels.SolveEx(A, B, left=left, check_errors=True)[0]


@lower("aten::linalg_cholesky", takes_complex=True, replaces=True)
@lower("aten::cholesky", takes_complex=True)
def _cholesky(self: Any, upper: bool = False) -> Any:
    return kernels.CholeskyEx(self, upper=upper, check_errors=True)[0]


@lower("aten::linalg_lu_factor", takes_complex=True, replaces=True)
def _lu_factor(A: Any) -> Any:  # noqa: N803
    return kernels.LuFactorEx(A, check_errors=True)[:2]


@lower("aten::linalg_lu", takes_complex=True)
def _lu(A: Any) -> Any:  # noqa: N803
    factors, pivots, _ = kernels.LuFactorEx(A)
    return kernels.LuUnpack(Pairs(factors) if isinstance(A, Pairs) else factors, pivots)


@lower("aten::triangular_solve", takes_complex=True)
def _triangular_solve(self: Any, A: Any, upper: bool = True, transpose: bool = False, **given: Any) -> Any:  # noqa: N803
    solution = kernels.SolveTriangular(transposed(A) if transpose else A, self, upper=upper != transpose, **given)
    batch = -3 if isinstance(A, Pairs) else -2
    shape = onnx_ops.Concat(onnx_ops.Shape(solution, end=batch), onnx_ops.Shape(plain(A), start=batch), axis=0)
    return solution, onnx_ops.Expand(plain(A), shape)


@lower("aten::linalg_ldl_factor", takes_complex=True, replaces=True)
def _ldl_factor(self: Any, *, hermitian: bool = False) -> Any:
    return kernels.LdlFactorEx(self, hermitian=hermitian, check_errors=True)[:2]


# torch decomposes these into operators that are deprecated, or that also return unused factors.

lower("aten::_lu_with_info", replaces=True)(triangular_factorization.lu_factor_ex)
lower("aten::linalg_solve_ex", replaces=True)(linear_systems.solve_ex)
lower("aten::linalg_slogdet", replaces=True)(linear_systems.slogdet)


@lower("aten::linalg_eigvals", takes_complex=True, replaces=True)
def _eigenvalues(self: Any) -> Any:
    return kernels.Eig(self, compute_v=False)[0]


@lower("aten::logdet", replaces=True)
def _logdet(self: Any) -> Any:
    sign, logabsdet = kernels.Slogdet(self)
    return onnx_ops.Where(onnx_ops.Less(sign, like(0.0, sign)), like(float("nan"), sign), logabsdet)


@lower_complex("aten::logdet")
def _complex_logdet(self: Any) -> Any:
    sign, logabsdet = kernels.Slogdet(self)
    sign.dtype = self.value.dtype
    real, imaginary = split(Pairs(sign))
    return join(logabsdet, atan2(imaginary, real))


@lower_complex("aten::det")
@lower_complex("aten::linalg_det")
def _complex_det(**given: Any) -> Any:
    sign, logabsdet = kernels.Slogdet(*given.values())
    return onnx_ops.Mul(sign, onnx_ops.Unsqueeze(onnx_ops.Exp(logabsdet), constant([-1])))


@lower("aten::_linalg_solve_ex", takes_complex=True)
def _solve_with_factors(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:  # noqa: N803
    result, info = kernels.SolveEx(A, B, left=left, check_errors=check_errors)
    return result, *kernels.LuFactorEx(A)[:2], info


@lower("aten::_linalg_slogdet", takes_complex=True)
def _slogdet_with_factors(A: Any) -> Any:  # noqa: N803
    # torch factors the transposed matrix, whose memory is in LAPACK's column-major order, unless it is complex.
    return *kernels.Slogdet(A), *kernels.LuFactorEx(A if isinstance(A, Pairs) else transposed(A))[:2]


@lower("aten::linalg_lstsq", takes_complex=True)
def _lstsq(self: Any, b: Any, rcond: float | None = None, *, driver: str | None = None) -> Any:
    return kernels.Lstsq(self, b, None if rcond is None else constant(rcond), driver=driver)


@lower("aten::cross", replaces=True)
def _cross(self: Any, other: Any, dim: int | None = None) -> Any:
    # Without dim, torch uses the first dimension of size 3, and its exporter the last dimension.
    if dim is not None:
        return NotImplemented
    if 3 not in list(self.shape):
        raise ExportError("torch.cross takes the first dimension of size 3, and no fixed size is 3; pass dim=")
    first = list(self.shape).index(3)
    return NotImplemented if first == len(self.shape) - 1 else by_torch("aten::linalg_cross", self, other, dim=first)


@lower("aten::_grouped_mm")
def _grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if bias is not None or (out_dtype is not None and named_dtype(out_dtype) != dtype_of(self)):
        return NotImplemented
    if offs is None or (len(self.shape), len(mat2.shape)) != (2, 3):
        return NotImplemented
    # ONNX Runtime does not multiply bfloat16 matrices on the CPU; torch also adds such products in float32.
    wide = torch.float32 if dtype_of(self) == torch.bfloat16 else dtype_of(self)
    return cast(_product_of_groups(cast(self, wide), cast(mat2, wide), offs), dtype_of(self))


@lower("transformers::grouped_mm_fallback")
def _product_of_groups(input: Any, weight: Any, offs: Any) -> Any:
    """Emit a product for each group of rows of `input`, which end at `offs`; rows after the last become zeros."""
    count = weight.shape[0]
    if not isinstance(count, int):
        raise ExportError("the number of groups (the first size of the weights) must not be dynamic")
    ends = onnx_ops.Cast(offs, to=onnx_ir.DataType.INT64)
    rows = onnx_ops.Shape(input, start=0, end=1)
    sizes = onnx_ops.Sub(onnx_ops.Concat(ends, rows, axis=0), onnx_ops.Concat(constant([0]), ends, axis=0))
    *groups, others = onnx_ops.Split(input, sizes, axis=0, _outputs=count + 1)
    products = [onnx_ops.MatMul(group, onnx_ops.Gather(weight, constant(i))) for i, group in enumerate(groups)]
    left = onnx_ops.Concat(onnx_ops.Shape(others, start=0, end=1), onnx_ops.Shape(weight, start=2, end=3), axis=0)
    result: Any = onnx_ops.Concat(*products, onnx_ops.Expand(like(0.0, input), left), axis=0)
    result.dtype = input.dtype
    return result


@lower("aten::einsum", replaces=True, takes_complex=True)
def _einsum(equation: str, tensors: Sequence[Any], **_: Any) -> Any:
    spelled = _with_equal_ellipses(equation, tensors)
    if any(isinstance(item, Pairs) for item in tensors):
        return _complex_einsum(spelled, tensors)
    # ONNX Runtime's Einsum supports few integer types, and torch's exporter does not make integer sums int64.
    numbers = promote(*tensors)
    dtype = dtype_of(numbers[0])
    if dtype.is_floating_point or dtype == torch.int64:
        kept = spelled == equation and {dtype_of(item) for item in tensors} == {dtype}
        return NotImplemented if kept else onnx_ops.Einsum(*numbers, equation=spelled)
    shapes = [[1 if size == 1 else 2 for size in item.shape] for item in tensors]
    result = torch.einsum(equation, [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]).dtype
    if result == dtype == torch.int32 and spelled == equation:
        return NotImplemented
    total = onnx_ops.Einsum(*(cast(item, torch.int64) for item in tensors), equation=spelled)
    return total if result == torch.int64 else onnx_ops.Cast(total, to=onnx_ir.DataType.from_numpy(numpy_dtype(result)))


def _complex_einsum(equation: str, tensors: Sequence[Any]) -> Any:
    """Return the pairs of the sums of an Einsum over every choice of real and imaginary parts."""
    halves = [split(item) if isinstance(item, Pairs) else (item,) for item in tensors]
    sums: tuple[list[Any], list[Any]] = ([], [])
    for places in itertools.product(*(range(len(parts)) for parts in halves)):
        term = onnx_ops.Einsum(*(parts[at] for parts, at in zip(halves, places, strict=True)), equation=equation)
        power = sum(places)  # of the imaginary unit
        sums[power % 2].append(onnx_ops.Neg(term) if power % 4 > 1 else term)
    return join(*(functools.reduce(onnx_ops.Add, terms) for terms in sums))


def _with_equal_ellipses(equation: str, tensors: Sequence[Any]) -> str:
    """Return the equation with letters for the dimensions of its ellipses, if those are of several lengths.

    torch broadcasts them, but ONNX does not.
    """
    given, _, wanted = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    shapes: list[Any] = [item.value.shape if isinstance(item, Pairs) else item.shape for item in tensors]
    ranks = [len(shape) - isinstance(item, Pairs) for shape, item in zip(shapes, tensors, strict=True)]
    lengths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term]
    if len(set(lengths)) < 2:
        return equation
    if "->" not in equation:
        wanted = "..." + "".join(sorted(letter for letter in set(given) - set(".,") if given.count(letter) == 1))
    letters = "".join(sorted(set(string.ascii_letters) - set(given)))[: max(lengths)]
    rest = iter(lengths)
    spelled = [term.replace("...", letters[len(letters) - next(rest) :]) if "..." in term else term for term in terms]
    return f"{','.join(spelled)}->{wanted.replace('...', letters)}"
