"""Sampling volumes; torch's exporter has what samples images."""

from __future__ import annotations

from pyops.kernels import sampling

from .table import lower

lower("aten::grid_sampler_3d")(sampling.grid_sample)
