"""Distances, whose exponent is a tensor so that none of its digits are lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import kernels, lower


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
