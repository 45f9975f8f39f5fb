"""Lowering of random numbers, order statistics, extremes, running results, histograms and covariances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from pyops.kernels import histograms, order_statistics, reductions, sampling

from .promotion import cast, dtype_of, named_dtype, promote
from .table import constant, kernels, like, lower, onnx_ops, vector

lower("aten::grid_sampler_3d")(sampling.grid_sample)


@lower("aten::rand", replaces=True)
def _rand(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    if dtype != onnx_ir.DataType.FLOAT16:
        return NotImplemented
    # ONNX Runtime does not draw float16, and rounding a float32 could give 1. torch draws from these steps as well.
    steps = onnx_ops.Floor(onnx_ops.Mul(_drawn(onnx_ops.RandomUniformLike, size), constant(np.float32(2**11))))
    return onnx_ops.Cast(onnx_ops.Div(steps, constant(np.float32(2**11))), to=dtype)


@lower("aten::randn", replaces=True)
def _randn(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    if dtype != onnx_ir.DataType.FLOAT16:
        return NotImplemented
    return onnx_ops.Cast(_drawn(onnx_ops.RandomNormalLike, size), to=dtype)


@lower("aten::native_dropout", replaces=True)
def _dropout(input: Any, p: float, train: bool | None) -> Any:
    if p != 1 or train is False:
        return NotImplemented
    # ONNX Runtime rejects a ratio of 1. The product keeps NaN, as torch does.
    kept = onnx_ops.Expand(constant(False), onnx_ops.Shape(input))
    return onnx_ops.Mul(input, like(0.0, input)), kept


def _drawn(like: Callable[..., Any], size: Any) -> Any:
    return like(onnx_ops.ConstantOfShape(vector(size)), dtype=onnx_ir.DataType.FLOAT)


lower("aten::median")(order_statistics.median)
lower("aten::median.dim")(order_statistics.median_dim)
lower("aten::nanmedian")(order_statistics.nanmedian)
lower("aten::nanmedian.dim")(order_statistics.nanmedian_dim)
lower("aten::kthvalue")(order_statistics.kthvalue)
lower("aten::mode")(order_statistics.mode)
lower("aten::cummax")(reductions.cummax)
lower("aten::cummin")(reductions.cummin)
lower("aten::hash_tensor")(reductions.hash_tensor)
lower("aten::histogram.bins_tensor")(histograms.histogram_bins_tensor)


@lower("aten::cumprod")
def _cumprod(self: Any, dim: int, *, dtype: Any = None) -> Any:
    return kernels.Cumprod(_factors(self, dtype), dim=dim)


def _factors(x: Any, dtype: Any) -> Any:
    """Return the factors that torch multiplies: integers as int64 unless another dtype is requested."""
    result = dtype_of(x) if dtype_of(x).is_floating_point else torch.int64
    return cast(x, named_dtype(dtype) if dtype else result)


# torch's exporter supports neither a reduction over all elements here, nor a dimension of a scalar.


@lower("aten::amax", replaces=True)
def _amax(self: Any, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    return NotImplemented if dim and len(self.shape) else kernels.Amax(self, dim=dim, keepdim=keepdim)


@lower("aten::amin", replaces=True)
def _amin(self: Any, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    return NotImplemented if dim and len(self.shape) else kernels.Amin(self, dim=dim, keepdim=keepdim)


@lower("aten::argmax", replaces=True)
def _argmax(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(onnx_ops.ArgMax, self, dim, keepdim)


@lower("aten::argmin", replaces=True)
def _argmin(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(onnx_ops.ArgMin, self, dim, keepdim)


def _place(find: Callable[..., Any], x: Any, dim: int | None, keepdim: bool) -> Any:
    # For keepdim, torch's exporter keeps only the one dimension of the flattened tensor.
    if dim is not None or not keepdim or not len(x.shape):
        return NotImplemented
    return onnx_ops.Reshape(find(onnx_ops.Reshape(x, constant([-1]))), constant([1] * len(x.shape)))


@lower("aten::prod.dim_int", replaces=True)
def _prod(self: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return NotImplemented if len(self.shape) else onnx_ops.Identity(_factors(self, dtype))


@lower("aten::all.dim", replaces=True)
@lower("aten::all.dims", replaces=True)
@lower("aten::any.dim", replaces=True)
@lower("aten::any.dims", replaces=True)
def _truth(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return NotImplemented if len(self.shape) else onnx_ops.Cast(self, to=onnx_ir.DataType.BOOL)


@lower("aten::linalg_vector_norm", replaces=True)
def _vector_norm(self: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if len(self.shape) or not dim:
        return NotImplemented
    x = cast(self, named_dtype(dtype)) if dtype else self
    return onnx_ops.Abs(x) if ord else onnx_ops.CastLike(onnx_ops.Cast(x, to=onnx_ir.DataType.BOOL), x)


@lower("aten::histogram.bin_ct")
def _histogram(
    self: Any, bins: int | None = None, *, range: Any = None, weight: Any = None, density: bool | None = None
) -> Any:
    return kernels.HistogramBinCt(self, weight, bins=bins, range=_limits(range), density=density)


@lower("aten::histc", replaces=True)
def _histc(self: Any, bins: int | None = None, min: Any = 0, max: Any = 0) -> Any:
    # torch's exporter supports a given range only.
    return kernels.Histc(self, bins=bins) if min == max else NotImplemented


@lower("aten::bincount", replaces=True)
def _bincount(self: Any, weights: Any = None, minlength: Any = None) -> Any:
    # torch's exporter supports no weights.
    if weights is None:
        return NotImplemented
    exact = dtype_of(weights) == torch.float32
    return kernels.Bincount(
        cast(self, torch.int64), weights if exact else cast(weights, torch.float64), minlength=minlength
    )


@lower("aten::_histogramdd_bin_edges")
def _histogramdd_edges(
    self: Any, bins: list[int], *, range: Any = None, weight: Any = None, density: bool | None = None
) -> Any:
    return kernels.HistogramddBinEdges(self, bins=bins, range=_limits(range), _outputs=len(bins))


@lower("aten::_histogramdd_from_bin_cts")
def _histogramdd(self: Any, bins: list[int], *, range: Any = None, weight: Any = None, density: Any = None) -> Any:
    return kernels.HistogramddFromBinCts(self, weight, bins=bins, range=_limits(range), density=density)


@lower("aten::_histogramdd_from_bin_tensors")
def _histogramdd_of_edges(self: Any, bins: Sequence[Any], *, weight: Any = None, density: Any = None) -> Any:
    return kernels.HistogramddFromBinTensors(self, weight, *bins, density=density)


@lower("aten::cov")
def _cov(self: Any, *, correction: int | None = None, fweights: Any = None, aweights: Any = None) -> Any:
    given = [self] if aweights is None else [self, aweights]
    counts = None if fweights is None else cast(fweights, torch.int64)
    return kernels.Cov(promote(*given, floating=True)[0], counts, aweights, correction=correction)


@lower("aten::corrcoef")
def _corrcoef(self: Any) -> Any:
    return kernels.Corrcoef(*promote(self, floating=True))


def _limits(range: Sequence[float] | None) -> Any:
    # A tensor, because an attribute of floats is float32.
    return None if range is None else np.array(range, np.float64)
