"""Poolings that torch's exporter lacks, or has for some of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyops.kernels import average_pooling, max_pooling

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


lower("aten::_adaptive_avg_pool3d")(average_pooling.adaptive_avg_pool)
for _rank in (2, 3):
    lower(f"aten::avg_pool{_rank}d", replaces=True)(_avg_pool(_rank))
    lower(f"aten::adaptive_max_pool{_rank}d")(max_pooling.adaptive_max_pool)
    lower(f"aten::fractional_max_pool{_rank}d")(max_pooling.fractional_max_pool)
