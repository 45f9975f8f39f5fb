"""Replacement of calls on which ``torch.export`` fails or fixes sizes as constants.

It fails if a result or its shape depends on the data, and if torch has no fake of an operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch.fx.traceback import annotate, preserve_node_meta
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .._torch.operators import find_overload
from .._torch.tensors import as_pairs
from .._torch_private.operators import OpOverload, promise, schema_arguments, schema_returns
from . import calls, opaque
from .sources import LINE, calling_line


class Interception(TorchFunctionMode):
    """A mode in which such calls become fallback calls or equivalent ones, unless their operator is translated.

    Every node of the graph is annotated with the line of the user's code that calls it, for `sources.source_line`.
    """

    def __init__(self, translated: Collection[OpOverload] = ()) -> None:
        super().__init__()
        self._translated = translated

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not torch.compiler.is_exporting():
            return func(*args, **kwargs)
        with preserve_node_meta(), annotate({LINE: calling_line()}):
            replacement = _REPLACEMENTS.get(func)
            result = replacement(self._translated, *args, **kwargs) if replacement else NotImplemented
            return func(*args, **kwargs) if result is NotImplemented else result


Translated = Collection[OpOverload]


# Parameters have torch's names, because a model may pass them as keywords.


def _equal(_: Translated, input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.eq(input, other).all() if input.shape == other.shape else torch.tensor(False)


def _allclose(_: Translated, input: torch.Tensor, other: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.isclose(input, other, *args, **kwargs).all()


def _ctc_loss(
    translated: Translated,
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
    call = _falling_back("aten::ctc_loss.Tensor")
    return call(translated, log_probs, targets, *lengths, blank, code, zero_infinity)


def _gaussian_nll_loss(
    _: Translated,
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """Compute torch's loss for variances in a tensor, without the check that none is negative."""
    if not isinstance(var, torch.Tensor):
        return NotImplemented
    variance = (var.unsqueeze(-1) if var.shape == input.shape[:-1] else var).detach().clamp(min=eps)
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _one_hot(translated: Translated, input: torch.Tensor, num_classes: int = -1) -> Any:
    return _falling_back("aten::one_hot")(translated, input) if num_classes == -1 else NotImplemented


def _narrow(_: Translated, input: torch.Tensor, dim: int, start: Any, length: int) -> Any:
    """Narrow by a start in a tensor, as torch does, and tell ``torch.export`` the bounds that torch assumes."""
    if not isinstance(start, torch.Tensor):
        return NotImplemented
    size = input.shape[dim]
    first: Any = torch.where(start < 0, start + size, start).item()
    promise(first >= 0)
    promise(first + length <= size)
    return input.narrow(dim, first, length)


def _histogram(translated: Translated, input: torch.Tensor, bins: Any, *args: Any, **kwargs: Any) -> Any:
    kind = "bins_tensor" if isinstance(bins, torch.Tensor) else "bin_ct"
    return _falling_back(f"aten::histogram.{kind}", _named("histogram"))(translated, input, bins, *args, **kwargs)


def _falling_back(
    operator: str, wrap: Callable[[list[torch.Tensor]], Any] = lambda results: results[0], complex_outputs: int = 1
) -> Callable[..., Any]:
    """Return a function that calls an operator through the fallback operator that represents it in a graph.

    Parameters
    ----------
    operator : str
    wrap : callable
        Converts the operator's outputs to the result of torch's function.
    complex_outputs : int
        Number of leading outputs that are complex if the first tensor is.
    """

    def function(translated: Translated, *args: Any, **kwargs: Any) -> Any:
        target = find_overload(operator)
        assert target is not None
        if target in translated:
            return NotImplemented
        given = dict(zip([item.name for item in schema_arguments(target)], args, strict=False))
        # Python functions and schemas name the first argument differently.
        given |= {"self" if name in ("input", "A", "tensor") else name: value for name, value in kwargs.items()}
        tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
        sizes = [value for value in given.values() if isinstance(value, torch.SymInt)]
        text = calls.encode(given, [*tensors, *sizes], list(map(calls.tag, [*tensors, *sizes])))
        call = opaque.Call(operator, text, len(schema_returns(target)))
        results = opaque.several_outputs(call.name)(opaque.spell(call), list(map(as_pairs, tensors)), sizes)
        if tensors[0].is_complex():
            results[:complex_outputs] = map(torch.view_as_complex, results[:complex_outputs])
        return wrap(results)

    return function


def _named(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = vars(torch.return_types)[name]
    return found


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    torch.linalg.lstsq: _falling_back("aten::linalg_lstsq", _named("linalg_lstsq")),
    functional.ctc_loss: _ctc_loss,
    functional.gaussian_nll_loss: _gaussian_nll_loss,
    functional.one_hot: _one_hot,
}
# These functions are methods of tensors too.
for _name, _replacement in {
    "allclose": _allclose,
    "combinations": _falling_back("aten::combinations"),
    "corrcoef": _falling_back("aten::corrcoef"),
    "cov": _falling_back("aten::cov"),
    "equal": _equal,
    "geqrf": _falling_back("aten::geqrf", _named("geqrf"), complex_outputs=2),
    "hash_tensor": _falling_back("aten::hash_tensor"),
    "histogram": _histogram,
    "narrow": _narrow,
}.items():
    _REPLACEMENTS |= {getattr(place, _name): _replacement for place in (torch, torch.Tensor) if hasattr(place, _name)}
