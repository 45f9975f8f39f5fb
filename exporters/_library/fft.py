"""Lowering of the Fourier transforms that torch decomposes all others into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir

from .._torch.private.onnx_exporter import recording
from .operands import Pairs, by_torch, constant, kernels, onnx_ops, vector
from .row_table import lower


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
        is_inferred = not onesided or isinstance(self.shape[dim[-1]], int)
        return NotImplemented if is_inferred else _half(self, dim, normalization)
    given: dict[str, Any] = {"dim": list(dim), "forward": True, "normalization": normalization}
    if onesided:
        return kernels.FftR2c(self, None, **given)
    return kernels.FftC2c(_as_pairs(self, len(self.shape)), None, **given)


def _half(x: Any, dim: Sequence[int], normalization: int) -> Any:
    """Return what torch's exporter emits for half of the frequencies, with their number in the shape.

    For a dynamic size, onnx infers as many frequencies as there are numbers, and ONNX Runtime plans its memory by that.
    """
    nodes, _ = recording()
    count = len(nodes)
    result = by_torch("aten::_fft_r2c", x, dim, normalization, True)
    last = dim[-1] % len(x.shape)
    sizes = [*x.shape, 2]
    sizes[last] = f"{x.shape[last]}//2 + 1"
    for node in nodes[count:]:
        if node.op_type == "DFT" and node.attributes["onesided"].as_int():
            added = node.attributes["axis"].as_int() - last  # a dimension before the first, if that is transformed
            node.outputs[0].shape = onnx_ir.Shape([1] * added + sizes)
    return result


@lower("aten::_fft_c2r", takes_complex=True, replaces=True)
def _c2r(self: Pairs, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    if isinstance(last_dim_size, int) and self.value.dtype != onnx_ir.DataType.DOUBLE:
        return NotImplemented
    sizes = vector([*[-1] * (len(dim) - 1), last_dim_size])
    return kernels.FftC2r(self.value, sizes, dim=list(dim), normalization=normalization)
