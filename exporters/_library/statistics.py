"""Lowering of sorting, order statistics, extremes, running results, histograms and covariances."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from pyops.kernels import order_statistics, reductions

from .._torch.private.onnx_exporter import recorded_nodes
from .operands import by_torch, cast, constant, dtype_of, kernels, like, named_dtype, onnx_ops, promote, typed_constant
from .row_table import lower

# Sorting puts NaN above everything, as in torch; ONNX does not define where TopK puts a NaN.

# Wider types, with room for infinity and NaN above the largest number; and uint8 because ONNX Runtime does not sort
# booleans.
_KEYS = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.bool: torch.uint8,
}


@lower("aten::topk", replaces=True)
def _topk(self: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not len(self.shape):
        return onnx_ops.Identity(self), typed_constant(0, torch.int64)
    if not _is_keyed(self):
        return NotImplemented
    count = constant([k]) if isinstance(k, int) else onnx_ops.Reshape(k, constant([1]))
    return _first(self, count, axis=dim, largest=int(largest), sorted=int(sorted))


@lower("aten::sort", replaces=True)
def _sort(self: Any, dim: int = -1, descending: bool = False) -> Any:
    if not len(self.shape) or not _is_keyed(self):
        return NotImplemented
    return _first(self, _size(self, dim), axis=dim, largest=int(descending))


@lower("aten::sort.stable")
def _stable_sort(self: Any, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    # TopK is stable: of equal elements, it puts the lower index first.
    result = _sort(self, dim, descending)
    return by_torch("aten::sort", self, dim, descending) if result is NotImplemented else result


def _is_keyed(x: Any) -> bool:
    return dtype_of(x) in (torch.float64, *_KEYS)


def _first(x: Any, count: Any, *, axis: int, **order: int) -> Any:
    """Return the first `count` elements in an order, and their indices, of a tensor that is not a scalar."""
    if dtype_of(x) == torch.float64:
        indices = _places_of_doubles(x, count, axis=axis, **order)
    else:
        _, indices = onnx_ops.TopK(_key(x), count, axis=axis, **order)
    return onnx_ops.GatherElements(x, indices, axis=axis), indices


def _key(x: Any) -> Any:
    """Return numbers of a wider type that sort in torch's order."""
    dtype = dtype_of(x)
    wide = cast(x, _KEYS[dtype])
    if not dtype.is_floating_point:
        return wide
    # Infinity becomes a large finite number, so that NaN can become infinity.
    large = typed_constant(2 * torch.finfo(dtype).max, _KEYS[dtype])
    return onnx_ops.Where(onnx_ops.IsNaN(x), typed_constant(math.inf, _KEYS[dtype]), onnx_ops.Min(wide, large))


def _places_of_doubles(x: Any, count: Any, *, axis: int, largest: int, sorted: int = 1) -> Any:
    """Return the indices of the first `count` elements of a float64 tensor in an order, with NaN above infinity.

    NaN are moved to one end first, and a second, stable sort treats them as infinite.
    """
    flags = onnx_ops.Cast(onnx_ops.IsNaN(x), to=onnx_ir.DataType.UINT8)
    _, apart = onnx_ops.TopK(flags, _size(x, axis), axis=axis, largest=largest)
    ordered = onnx_ops.GatherElements(x, apart, axis=axis)
    key = onnx_ops.Where(onnx_ops.IsNaN(ordered), typed_constant(math.inf, torch.float64), ordered)
    _, places = onnx_ops.TopK(key, count, axis=axis, largest=largest, sorted=sorted)
    return onnx_ops.GatherElements(apart, places, axis=axis)


def _size(x: Any, axis: int) -> Any:
    size = x.shape[axis]
    return constant([size]) if isinstance(size, int) else onnx_ops.Gather(onnx_ops.Shape(x), constant([axis]), axis=0)


lower("aten::median")(lambda self: kernels.Median(self)[0])
lower("aten::median.dim")(order_statistics.median)
lower("aten::nanmedian")(lambda self: kernels.Nanmedian(self)[0])
lower("aten::nanmedian.dim")(order_statistics.nanmedian)
lower("aten::kthvalue")(order_statistics.kthvalue)
lower("aten::mode")(order_statistics.mode)
lower("aten::cummax")(reductions.cummax)
lower("aten::cummin")(reductions.cummin)
lower("aten::hash_tensor")(reductions.hash_tensor)
# torch's exporter adds exp(x - max(x)), which underflows to 0 where the elements so far are much smaller.
lower("aten::logcumsumexp", replaces=True)(reductions.logcumsumexp)


@lower("aten::cumprod.default")
def _cumprod(self: Any, dim: int, *, dtype: Any = None) -> Any:
    return kernels.Cumprod(_factors(self, dtype), dim=dim)


def _factors(x: Any, dtype: Any) -> Any:
    """Return the factors that torch multiplies: integers as int64 unless another dtype is requested."""
    result = dtype_of(x) if dtype_of(x).is_floating_point else torch.int64
    return cast(x, named_dtype(dtype) if dtype else result)


# torch's exporter supports neither a reduction over all elements here, nor a dimension of a scalar.


def _extreme(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def translation(self: Any, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
        return NotImplemented if dim and len(self.shape) else kernel(self, dim=dim or None, keepdim=keepdim)

    return translation


lower("aten::amax", replaces=True)(_extreme(kernels.Amax))
lower("aten::amin", replaces=True)(_extreme(kernels.Amin))


def _place(find: Callable[..., Any]) -> Callable[..., Any]:
    def translation(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        # With keepdim, torch's exporter keeps only one dimension, that of the flattened tensor.
        if dim is not None or not keepdim or not len(self.shape):
            return NotImplemented
        found = find(onnx_ops.Reshape(self, constant([-1])))
        return onnx_ops.Reshape(found, constant([1] * len(self.shape)))

    return translation


lower("aten::argmax", replaces=True)(_place(onnx_ops.ArgMax))
lower("aten::argmin", replaces=True)(_place(onnx_ops.ArgMin))


@lower("aten::sum.default", replaces=True)
@lower("aten::sum.dim_IntList", replaces=True)
def _sum(self: Any, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dtype_of(self) != torch.int64 or not len(self.shape) or dtype:
        return NotImplemented
    # ONNX Runtime adds int64 as doubles, which hold the sums of the upper and the lower halves.
    half, axes = constant(2**32), constant(list(dim)) if dim else None
    low = onnx_ops.Mod(self, half)
    high = onnx_ops.Div(self - low, half)
    upper, rest = (onnx_ops.ReduceSum(part, axes, keepdims=int(keepdim)) for part in (high, low))
    return upper * half + rest


@lower("aten::prod.default", replaces=True)
@lower("aten::prod.dim_int", replaces=True)
def _prod(self: Any, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    factors = _factors(self, dtype)
    if not len(self.shape):
        return onnx_ops.Identity(factors)
    if dtype_of(factors).is_floating_point or 0 in self.shape:
        return NotImplemented
    flat, axis = (onnx_ops.Reshape(factors, constant([-1])), 0) if dim is None else (factors, dim % len(self.shape))
    rank = 1 if dim is None else len(self.shape)
    first = onnx_ops.Transpose(flat, perm=[axis, *(other for other in range(rank) if other != axis)])
    one = onnx_ops.Expand(like(1, factors), onnx_ops.Shape(first, start=1))
    product = onnx_ops.Scan(one, first, _outputs=1, body=_multiplication(factors.dtype), num_scan_inputs=1)
    return onnx_ops.Unsqueeze(product, constant([axis])) if keepdim else product


def _multiplication(dtype: onnx_ir.DataType) -> onnx_ir.Graph:
    """Return the graph of one step of a product of integers, which ONNX Runtime's ReduceProd computes as doubles."""
    names = ("product/total", "product/factor")
    total, factor = (onnx_ir.Value(name=name, type=onnx_ir.TensorType(dtype)) for name in names)
    with recorded_nodes(onnx_ops.version) as nodes:
        result = onnx_ops.Mul(total, factor)
    result.name, result.dtype = "product/result", dtype
    return onnx_ir.Graph([total, factor], [result], nodes=nodes, name="product")


@lower("aten::_unique2", replaces=True)
def _unique(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    # ONNX Runtime takes one NaN for another.
    if not dtype_of(self).is_floating_point:
        return NotImplemented
    flat = onnx_ops.Reshape(self, constant([-1]))
    flat.dtype, flat.shape = self.dtype, onnx_ir.Shape([None])
    size = onnx_ops.Shape(flat)
    values, order = _first(flat, size, axis=0, largest=0)
    zero, one, last = constant([0]), constant([1]), constant([2**63 - 1])
    earlier, later = onnx_ops.Slice(values, zero, constant([-1])), onnx_ops.Slice(values, one, last)
    differs = onnx_ops.Concat(constant([True]), onnx_ops.Not(onnx_ops.Equal(earlier, later)), axis=0)
    is_first = onnx_ops.Slice(differs, zero, size)
    numbers = onnx_ops.CumSum(onnx_ops.Cast(is_first, to=onnx_ir.DataType.INT64), constant(0)) - one
    inverse = onnx_ops.Reshape(onnx_ops.ScatterElements(numbers, order, numbers, axis=0), onnx_ops.Shape(self))
    starts = onnx_ops.Reshape(onnx_ops.NonZero(is_first), constant([-1]))
    counts = onnx_ops.Concat(onnx_ops.Slice(starts, one, last), size, axis=0)
    counts = onnx_ops.Slice(counts, zero, onnx_ops.Shape(starts)) - starts
    nothing = constant(np.empty(0, np.int64))
    found = onnx_ops.Compress(values, is_first, axis=0)
    return found, inverse if return_inverse else nothing, counts if return_counts else nothing


@lower("aten::any.default", replaces=True)
@lower("aten::any.dim", replaces=True)
@lower("aten::any.dims", replaces=True)
def _any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    truth = onnx_ops.Cast(self, to=onnx_ir.DataType.BOOL)
    if _reduces_nothing(self, dim):
        return truth
    axes = None if dim is None else constant([dim] if isinstance(dim, int) else dim)
    # The largest of no bytes is 0; torch's exporter takes the largest of int64, and -2**63 is true.
    largest = onnx_ops.ReduceMax(onnx_ops.Cast(truth, to=onnx_ir.DataType.UINT8), axes, keepdims=int(keepdim))
    return onnx_ops.Cast(largest, to=onnx_ir.DataType.BOOL)


@lower("aten::all.dim", replaces=True)
@lower("aten::all.dims", replaces=True)
def _all(self: Any, dim: Any = None, **_: Any) -> Any:
    return cast(self, torch.bool) if _reduces_nothing(self, dim) else NotImplemented


def _reduces_nothing(x: Any, dim: Any) -> bool:
    """Return whether `any` and `all` keep each element: of a scalar, and, unlike sums, over no dimensions."""
    return not len(x.shape) or (isinstance(dim, Sequence) and not dim)


@lower("aten::flip", replaces=True)
def _flip(self: Any, **_: Any) -> Any:
    return NotImplemented if len(self.shape) else onnx_ops.Identity(self)


lower("aten::_is_all_true")(lambda self: by_torch("aten::all", self))
lower("aten::_is_any_true")(lambda self: by_torch("aten::any", self))


def _mean(name: str) -> Callable[..., Any]:
    def translation(self: Any, *, dtype: Any = None, **given: Any) -> Any:
        # torch's exporter casts the mean, and not the numbers.
        x = cast(self, named_dtype(dtype)) if dtype else self
        # Where there is nothing to average, torch gives NaN, but ONNX's ReduceMean gives 0.
        axes = (given.get("dim") or range(len(self.shape))) if len(self.shape) else ()
        if x is self and not any(_may_be_zero(self.shape[axis]) for axis in axes):
            return NotImplemented
        return _nan_of_nothing(by_torch(name, x, **given), self, axes)

    return translation


def _nan_of_nothing(result: Any, x: Any, axes: Sequence[int]) -> Any:
    """Return a mean over axes, or NaN if they have no elements."""
    if not any(_may_be_zero(x.shape[axis]) for axis in axes):
        return result
    count = onnx_ops.ReduceProd(onnx_ops.Gather(onnx_ops.Shape(x), constant(list(axes))), keepdims=0)
    return onnx_ops.Add(result, onnx_ops.Div(like(0.0, result), onnx_ops.CastLike(count, result)))


def _may_be_zero(size: Any) -> bool:
    # torch names sizes that depend on data u0, u1, ...; it assumes that dynamic sizes of inputs are 2 or more.
    # Differences and quotients of these may be 0.
    return size == 0 if isinstance(size, int) else re.search(r"\bu\d+\b|[^\w\s()+*]", str(size)) is not None


for _name in ("aten::mean.default", "aten::mean.dim"):
    lower(_name, replaces=True)(_mean(_name))


@lower("prims::var", replaces=True)
def _variance(inp: Any, dims: Sequence[int] | None, correction: float = 1, **_: Any) -> Any:
    # torch's exporter fails at a scalar.
    x, axes = (inp, dims or range(len(inp.shape))) if len(inp.shape) else (_points(inp), [0])
    result = by_torch("prims::var", x, list(axes), correction)
    return result if x is not inp else _nan_of_nothing(result, inp, axes)


@lower("aten::linalg_vector_norm", replaces=True)
def _vector_norm(self: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = cast(self, named_dtype(dtype)) if dtype else self
    if not len(self.shape) and dim:
        return onnx_ops.Abs(x) if ord else onnx_ops.CastLike(onnx_ops.Cast(x, to=onnx_ir.DataType.BOOL), x)
    # torch's exporter rounds other orders to float32.
    if dtype_of(x) != torch.float64 or ord in (0, 1, 2, math.inf, -math.inf):
        return NotImplemented
    powers = onnx_ops.Pow(onnx_ops.Abs(x), constant(float(ord)))
    total = onnx_ops.ReduceSum(powers, constant(list(dim)) if dim else None, keepdims=int(keepdim))
    return onnx_ops.Pow(total, constant(1 / ord))


@lower("aten::histogram.bin_ct")
def _histogram(self: Any, bins: int = 100, range: Any = None, **given: Any) -> Any:
    return _histogram_of_edges(self, _edges(_points(self), [bins], range)[0], **given)


@lower("aten::histogram.bins_tensor")
def _histogram_of_edges(self: Any, bins: Any, weight: Any = None, **given: Any) -> Any:
    return kernels.HistogramddFromBinTensors(_points(self), weight, bins, **given), onnx_ops.Identity(bins)


def _points(numbers: Any) -> Any:
    return onnx_ops.Unsqueeze(numbers, constant([-1]))


@lower("aten::histc", replaces=True)
def _histc(self: Any, min: Any = 0, max: Any = 0, **given: Any) -> Any:
    # torch's exporter supports only a given range.
    return kernels.Histc(self, **given) if min == max else NotImplemented


@lower("aten::bincount", replaces=True)
def _bincount(self: Any, weights: Any = None, **given: Any) -> Any:
    # torch's exporter supports no weights.
    if weights is None:
        return NotImplemented
    exact = weights if dtype_of(weights) == torch.float32 else cast(weights, torch.float64)
    return kernels.Bincount(cast(self, torch.int64), exact, **given)


@lower("aten::_histogramdd_bin_edges")
def _edges(self: Any, bins: list[int], range: Any = None, **_: Any) -> list[Any]:
    # A tensor, because an attribute of floats is float32.
    limits = None if range is None else np.array(range, np.float64)
    edges = kernels.HistogramddBinEdges(self, bins=bins, range=limits, _outputs=len(bins))
    return [edges] if len(bins) == 1 else list(edges)


@lower("aten::_histogramdd_from_bin_cts")
def _histogramdd(self: Any, bins: list[int], range: Any = None, **given: Any) -> Any:
    return _histogramdd_of_edges(self, _edges(self, bins, range), **given)


@lower("aten::_histogramdd_from_bin_tensors")
def _histogramdd_of_edges(self: Any, bins: Sequence[Any], weight: Any = None, **given: Any) -> Any:
    return kernels.HistogramddFromBinTensors(self, weight, *bins, **given)


@lower("aten::cov")
def _cov(self: Any, fweights: Any = None, aweights: Any = None, **given: Any) -> Any:
    operands = [self] if aweights is None else [self, aweights]
    counts = None if fweights is None else cast(fweights, torch.int64)
    return kernels.Cov(promote(*operands, floating=True)[0], counts, aweights, **given)


@lower("aten::corrcoef")
def _corrcoef(self: Any) -> Any:
    return kernels.Corrcoef(*promote(self, floating=True))
