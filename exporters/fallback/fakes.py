"""Fakes of operators at which ``torch.export`` stops, because torch's own look at the data.

Each takes the operator and its arguments by name, as `kernel.call` does, and returns tensors of the shapes and
dtypes that the operator returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._torch_private import OpOverload

Values = Mapping[str, Any]


def _covariance(_: OpOverload, values: Values) -> torch.Tensor:
    x = values["self"]
    shape = [x.shape[0]] * 2 if x.dim() == 2 else []
    dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.get_default_dtype()
    return torch.empty(shape, dtype=dtype, device=x.device)


def _one_hot(_: OpOverload, values: Values) -> torch.Tensor:
    x, classes = values["self"], values.get("num_classes", -1)
    # One more than the largest index in it.
    size = torch.library.get_ctx().new_dynamic_size() if classes == -1 else classes
    return torch.empty([*x.shape, size], dtype=torch.int64, device=x.device)


def _ctc_loss(_: OpOverload, values: Values) -> torch.Tensor:
    log_probs = values["log_probs"]
    batched = log_probs.dim() == 3 and values.get("reduction", 1) == 0
    return torch.empty([log_probs.shape[1]] if batched else [], dtype=log_probs.dtype, device=log_probs.device)


def _lstsq(_: OpOverload, values: Values) -> tuple[torch.Tensor, ...]:
    a, b, driver = values["self"], values["b"], values.get("driver") or "gelsy"
    rows, columns = a.shape[-2:]
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    right = [] if vector else [b.shape[-1]]
    batch = list(torch.broadcast_shapes(a.shape[:-2], b.shape[: b.dim() - 1 - len(right)]))
    # Of a matrix without full rank there are none; only a run tells.
    size = torch.library.get_ctx().new_dynamic_size() if rows > columns and not batch else None
    residuals = [0] if rows <= columns or driver not in ("gelsy", "gelsd", "gelss", "gels") else [*batch, *right]
    if size is not None and right:
        residuals = [size]
    real = a.real if a.is_complex() else a
    return (
        a.new_empty([*batch, columns, *right]),
        real.new_empty(residuals),
        a.new_empty(batch if driver != "gels" else [0], dtype=torch.int64),
        real.new_empty([*batch, min(rows, columns)] if driver in ("gelsd", "gelss") else [0]),
    )


FAKES: dict[str, Callable[..., Any]] = {
    "aten::cov": _covariance,
    "aten::corrcoef": _covariance,
    "aten::ctc_loss.Tensor": _ctc_loss,
    "aten::linalg_lstsq": _lstsq,
    "aten::one_hot": _one_hot,
}
"""By the operator's name."""
