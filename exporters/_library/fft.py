"""Lowering of the ``torch.fft`` functions over several dimensions, and of the inverse short-time transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import onnx_ir

from pyops.kernels.fft import NORMS

from .operands import Pairs, constant, kernels, onnx_ops, vector
from .row_table import lower

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
        if kind == "real to half":
            return kernels.FftR2c(values, sizes, **given)
        transform = kernels.FftC2r if kind == "half to real" else kernels.FftC2c
        return transform(values if complex_given else _as_pairs(values, rank), sizes, **given)

    return translation


for _family, _what in _FUNCTIONS.items():
    lower(f"aten::fft_{_family}2", takes_complex=True)(_over((-2, -1), *_what))
    lower(f"aten::fft_{_family}n", takes_complex=True)(_over(None, *_what))


def _as_pairs(x: Any, rank: int) -> Any:
    """Return real values as complex pairs with zero imaginary parts."""
    return onnx_ops.Pad(onnx_ops.Unsqueeze(x, constant([-1])), constant([0] * (2 * rank + 1) + [1]))


# ONNX Runtime's DFT has factors of float32, and takes the length of an inverse transform only as a constant.


@lower("aten::_fft_c2c", takes_complex=True, replaces=True)
def _c2c(self: Pairs, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    if self.value.dtype != onnx_ir.DataType.DOUBLE:
        return NotImplemented
    return kernels.FftC2c(self.value, None, dim=list(dim), forward=forward, normalization=normalization)


@lower("aten::_fft_r2c", replaces=True)
def _r2c(self: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if self.dtype != onnx_ir.DataType.DOUBLE:
        return NotImplemented
    given: dict[str, Any] = {"dim": list(dim), "forward": True, "normalization": normalization}
    if onesided:
        return kernels.FftR2c(self, None, **given)
    return kernels.FftC2c(_as_pairs(self, len(self.shape)), None, **given)


@lower("aten::_fft_c2r", takes_complex=True, replaces=True)
def _c2r(self: Pairs, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    if isinstance(last_dim_size, int) and self.value.dtype != onnx_ir.DataType.DOUBLE:
        return NotImplemented
    sizes = vector([*[-1] * (len(dim) - 1), last_dim_size])
    return kernels.FftC2r(self.value, sizes, dim=list(dim), normalization=normalization)


@lower("aten::istft", takes_complex=True)
def _istft(self: Pairs, window: Any = None, return_complex: bool = False, **given: Any) -> Any:
    real = not return_complex and not isinstance(window, Pairs)
    return kernels.Istft(self.value, window, **given) if real else NotImplemented
