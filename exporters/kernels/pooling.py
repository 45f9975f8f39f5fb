"""Poolings that torch's exporter lacks, or has for some of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .table import kernels, lower


def _spread(numbers: Sequence[int], rank: int) -> list[int] | None:
    """One number for each dimension, of as many as torch takes; None for none."""
    return (list(numbers) * rank)[:rank] or None


def _avg_pool(rank: int) -> Callable[..., Any]:
    def translation(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] | None = None,
        padding: Sequence[int] | int | None = None,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        # ONNX's AveragePool has all the rest.
        if divisor_override is None:
            return NotImplemented
        return kernels.AvgPool(
            self,
            kernel_size=_spread(kernel_size, rank),
            stride=_spread(stride or (), rank),
            padding=_spread([padding] if isinstance(padding, int) else padding or (), rank),
            ceil_mode=ceil_mode,
            divisor_override=divisor_override,
        )

    return translation


def _adaptive_avg_pool(self: Any, output_size: Sequence[Any]) -> Any:
    return kernels.AdaptiveAvgPool(self, output_size=list(output_size))


def _adaptive_max_pool(self: Any, output_size: Sequence[Any]) -> Any:
    return kernels.AdaptiveMaxPool(self, output_size=list(output_size))


def _fractional_max_pool(self: Any, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Any) -> Any:
    return kernels.FractionalMaxPool(self, random_samples, kernel_size=list(kernel_size), output_size=list(output_size))


lower("aten::avg_pool2d", _avg_pool(2), replaces=True)
lower("aten::avg_pool3d", _avg_pool(3), replaces=True)
lower("aten::_adaptive_avg_pool3d", _adaptive_avg_pool)
lower("aten::adaptive_max_pool2d", _adaptive_max_pool)
lower("aten::adaptive_max_pool3d", _adaptive_max_pool)
lower("aten::fractional_max_pool2d", _fractional_max_pool)
lower("aten::fractional_max_pool3d", _fractional_max_pool)
