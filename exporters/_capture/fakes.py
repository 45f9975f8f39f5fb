"""Fakes of operators on which ``torch.export`` fails, because torch's fake reads the data or because torch has none.

Each is called with the operator's arguments by name, and returns empty tensors of the shapes and dtypes of its
results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

Values = Mapping[str, Any]


def _covariance(values: Values) -> torch.Tensor:
    x, weights = values["self"], values.get("aweights")
    shape = [x.shape[0]] * 2 if x.dim() == 2 and x.shape[0] != 1 else []
    dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.get_default_dtype()
    if weights is not None:
        dtype = torch.promote_types(dtype, weights.dtype)
    return torch.empty(shape, dtype=dtype, device=x.device)


def _one_hot(values: Values) -> torch.Tensor:
    x, classes = values["self"], values.get("num_classes", -1)
    # By default the size is one more than the largest index.
    size = torch.library.get_ctx().new_dynamic_size() if classes == -1 else classes
    return torch.empty([*x.shape, size], dtype=torch.int64, device=x.device)


def _combinations(values: Values) -> torch.Tensor:
    x, chosen = values["self"], values.get("r", 2)
    if chosen > 2 and not isinstance(x.shape[0], int):
        # torch cannot prove that a product of three consecutive sizes is divisible by six.
        count = torch.library.get_ctx().new_dynamic_size()
    else:
        factors = (x.shape[0] + (index if values.get("with_replacement") else -index) for index in range(chosen))
        count = math.prod(factors) // math.factorial(chosen)
    return torch.empty([count, chosen] if chosen else [0], dtype=x.dtype, device=x.device)


def _geqrf(values: Values) -> tuple[torch.Tensor, torch.Tensor]:
    x = values["self"]
    return torch.empty_like(x), x.new_empty([*x.shape[:-2], torch.sym_min(x.shape[-2], x.shape[-1])])


def _histogram(values: Values) -> tuple[torch.Tensor, torch.Tensor]:
    x, bins = values["self"], values["bins"]
    edges = bins.shape[0] if isinstance(bins, torch.Tensor) else bins + 1
    return x.new_empty([edges - 1]), x.new_empty([edges])


def _ctc_loss(values: Values) -> torch.Tensor:
    log_probs = values["log_probs"]
    batched = log_probs.dim() == 3 and values.get("reduction", 1) == 0
    return torch.empty([log_probs.shape[1]] if batched else [], dtype=log_probs.dtype, device=log_probs.device)


def _lstsq(values: Values) -> tuple[torch.Tensor, ...]:
    a, b, driver = values["self"], values["b"], values.get("driver") or "gelsy"
    rows, columns = a.shape[-2:]
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    right = [] if vector else [b.shape[-1]]
    batch = list(torch.broadcast_shapes(a.shape[:-2], b.shape[: b.dim() - 1 - len(right)]))
    residuals: list[int | torch.SymInt]
    if driver == "gelsy" or rows <= columns:
        residuals = [0]
    elif driver == "gels" or batch:
        residuals = [*batch, *(right or [1])]
    else:  # there are none for a matrix without full rank, which is known only at run time
        residuals = [torch.library.get_ctx().new_dynamic_size()]
    real = a.real if a.is_complex() else a
    return (
        a.new_empty([*batch, columns, *right]),
        real.new_empty(residuals),
        a.new_empty(batch if driver != "gels" else [0], dtype=torch.int64),
        real.new_empty([*batch, min(rows, columns)] if driver in ("gelsd", "gelss") else [0]),
    )


FAKES: dict[str, Callable[..., Any]] = {
    "aten::combinations": _combinations,
    "aten::cov": _covariance,
    "aten::corrcoef": _covariance,
    "aten::ctc_loss.Tensor": _ctc_loss,
    "aten::geqrf": _geqrf,
    "aten::histogram.bin_ct": _histogram,
    "aten::histogram.bins_tensor": _histogram,
    "aten::linalg_lstsq": _lstsq,
    "aten::one_hot": _one_hot,
}
"""The fakes, by the operator's name."""
