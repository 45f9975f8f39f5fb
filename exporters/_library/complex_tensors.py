"""Lowering of complex tensors: constants, for which torch's exporter emits ONNX's complex types; and ``torch.fft``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import onnx_ir
import torch

from pyops.kernels.fft import NORMS

from .table import lower
from .values import Pairs, constant, kernels, onnx_ops, vector

_PARTS: dict[Any, type[np.floating[Any]]] = {
    torch.complex64: np.float32,
    torch.complex128: np.float64,
    onnx_ir.DataType.COMPLEX64: np.float32,  # torch's exporter passes a dtype argument as ONNX's enum
    onnx_ir.DataType.COMPLEX128: np.float64,
}


def _filled(number: int) -> Callable[..., Any]:
    """Return a translation to a complex tensor of one number, which an argument `fill_value` replaces."""

    def translation(
        self: Any = None, size: Sequence[Any] | None = None, fill_value: Any = number, dtype: Any = None, **_: Any
    ) -> Any:
        if dtype is None and self is None and isinstance(fill_value, complex):
            dtype = torch.get_default_dtype().to_complex()
        if dtype is None and isinstance(self, Pairs):
            assert self.value.dtype is not None
            part: Any = self.value.dtype.numpy()
        else:
            part = _PARTS.get(dtype)
        if part is None or isinstance(fill_value, onnx_ir.Value):
            return NotImplemented
        if size is not None:
            shape = vector([*size, 2])
        elif isinstance(self, Pairs):
            shape = onnx_ops.Shape(self.value)
        else:
            shape = onnx_ops.Concat(onnx_ops.Shape(self), constant([2]), axis=0)
        return onnx_ops.Expand(constant(np.array([fill_value.real, fill_value.imag], part)), shape)

    return translation


lower("aten::empty.memory_format", replaces=True)(_filled(0))
for _name, _number in {"zeros": 0, "ones": 1, "full": 0}.items():
    lower(f"aten::{_name}", replaces=True)(_filled(_number))
    lower(f"aten::new_{_name}", replaces=True, takes_complex=True)(_filled(_number))
    lower(f"aten::{_name}_like", replaces=True, takes_complex=True)(_filled(_number))


_Kind = Literal["full", "real to half", "half to real"]

_FUNCTIONS: dict[str, tuple[_Kind, bool]] = {
    "fft": ("full", True),
    "ifft": ("full", False),
    "rfft": ("real to half", True),
    "ihfft": ("real to half", False),
    "irfft": ("half to real", False),
    "hfft": ("half to real", True),
}
"""The kind of each family of functions, and whether it is a forward transform."""


def _over(default: tuple[int, ...] | None, kind: _Kind, forward: bool) -> Callable[..., Any]:
    def translation(self: Any, s: Any = None, dim: int | Sequence[int] | None = None, norm: str | None = None) -> Any:
        # torch accepts a number in place of a sequence of one.
        s = s if s is None or isinstance(s, (list, tuple)) else [s]
        dim = default if dim is None else [dim] if isinstance(dim, int) else dim
        complex_given = isinstance(self, Pairs)
        values: Any = self.value if isinstance(self, Pairs) else self
        rank = len(values.shape) - complex_given
        axes = list(dim) if dim is not None else list(range(rank if s is None else len(s)))
        if dim is None and s is not None:
            axes = [axis - len(s) for axis in axes]
        normalization = NORMS[forward].index(norm or "backward")
        given: dict[str, Any] = {"dim": axes, "forward": forward, "normalization": normalization}
        sizes = None if s is None else vector(s)
        if values.dtype not in (onnx_ir.DataType.FLOAT, onnx_ir.DataType.DOUBLE):
            values = onnx_ops.Cast(values, to=onnx_ir.DataType.FLOAT)
        if kind == "half to real":
            return kernels.FftC2r(values if complex_given else _as_pairs(values, rank), sizes, **given)
        if kind == "real to half":
            return kernels.FftR2c(values, sizes, onesided=True, **given)
        if complex_given:
            return kernels.FftC2c(values, sizes, **given)
        return kernels.FftR2c(values, sizes, onesided=False, **given)

    return translation


for _family, _what in _FUNCTIONS.items():
    lower(f"aten::fft_{_family}2", takes_complex=True)(_over((-2, -1), *_what))
    lower(f"aten::fft_{_family}n", takes_complex=True)(_over(None, *_what))


def _as_pairs(x: Any, rank: int) -> Any:
    """Return real values as complex pairs with zero imaginary parts."""
    return onnx_ops.Pad(onnx_ops.Unsqueeze(x, constant([-1])), constant([0] * (2 * rank + 1) + [1]))


@lower("aten::_fft_c2r", takes_complex=True)
def _c2r(self: Pairs, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    sizes = vector([*[-1] * (len(dim) - 1), last_dim_size])
    return kernels.FftC2r(self.value, sizes, dim=list(dim), normalization=normalization)


@lower("aten::istft", takes_complex=True)
def _istft(self: Pairs, window: Any = None, **given: Any) -> Any:
    return NotImplemented if isinstance(window, Pairs) else kernels.Istft(self.value, window, **given)
