"""Calls at which ``torch.export`` stops because their result, or its shape, depends on the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .._torch_private import schema_arguments, schema_returns
from ..torch_ops import find_overload
from . import calls, opaque


class Intercepted(TorchFunctionMode):
    """Inside its ``with`` block such calls become fallback calls, or others that say the same."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None and torch.compiler.is_exporting():
            return replacement(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _equal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.eq(x, y).all() if x.shape == y.shape else torch.tensor(False)


def _allclose(x: torch.Tensor, y: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.isclose(x, y, *args, **kwargs).all()


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    lengths = [torch.as_tensor(item, dtype=torch.int64) for item in (input_lengths, target_lengths)]
    code = ("none", "mean", "sum").index(reduction)
    return _call("aten::ctc_loss.Tensor", (log_probs, targets, *lengths, blank, code, zero_infinity), {})


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Torch's own, without the check that no variance is negative."""
    variance = torch.as_tensor(var, dtype=input.dtype)
    if variance.dim() and variance.shape != input.shape and variance.shape == input.shape[:-1]:
        variance = variance.unsqueeze(-1)
    variance = variance.detach().clamp(min=eps)
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _falling_back(operator: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: _call(operator, args, kwargs)


def _call(operator: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a call of an operator returns, by the operator that stands for it in the graph."""
    target = find_overload(operator)
    assert target is not None
    given = dict(zip([item.name for item in schema_arguments(target)], args, strict=False))
    # Python's names of the first argument are not the schema's.
    given |= {"self" if name in ("input", "A", "tensor") else name: value for name, value in kwargs.items()}
    tensors: list[torch.Tensor] = []
    sizes: list[Any] = []
    for value in given.values():
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, torch.SymInt):
            sizes.append(value)

    def place(value: Any) -> dict[str, int] | None:
        for index, item in enumerate([*tensors, *sizes]):
            if value is item:
                return {_tag(item): index}
        return None

    text = calls.encode(given, place)
    pairs = [torch.view_as_real(item.resolve_conj()) if item.is_complex() else item for item in tensors]
    name = operator.partition("::")[2].partition(".")[0]
    several = len(schema_returns(target))
    results = opaque.several(name)(opaque.spell(opaque.Call(operator, text, several)), pairs, sizes)
    if tensors[0].is_complex():  # and so is what these operators return first
        results[0] = torch.view_as_complex(results[0])
    return results[0] if several == 1 else _LSTSQ(results)


def _tag(item: Any) -> str:
    if not isinstance(item, torch.Tensor):
        return "size"
    return "complex" if item.is_complex() else "tensor"


_LSTSQ: Callable[..., Any] = vars(torch.return_types)["linalg_lstsq"]

_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.allclose: _allclose,
    torch.Tensor.allclose: _allclose,
    torch.cov: _falling_back("aten::cov"),
    torch.Tensor.cov: _falling_back("aten::cov"),
    torch.corrcoef: _falling_back("aten::corrcoef"),
    torch.Tensor.corrcoef: _falling_back("aten::corrcoef"),
    torch.linalg.lstsq: _falling_back("aten::linalg_lstsq"),
    functional.ctc_loss: _ctc_loss,
    functional.gaussian_nll_loss: _gaussian_nll_loss,
    functional.one_hot: _falling_back("aten::one_hot"),
}
