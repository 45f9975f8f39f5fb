"""Sampling volumes; torch's exporter has what samples images."""

from __future__ import annotations

from typing import Any

from .table import kernels, lower


@lower("aten::grid_sampler_3d")
def _grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    return kernels.GridSample(
        input,
        grid,
        interpolation_mode=interpolation_mode,
        padding_mode=padding_mode,
        align_corners=align_corners,
    )
