"""Replacement of calls on which ``torch.export`` fails or specializes sizes.

It fails on a call whose result, or its shape, depends on the data, and on an operator without a fake. Such a call is
replaced by equivalent calls, or by a call of a stand-in: an operator with the same schema, whose fake is defined here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.fx import Node
from torch.fx.traceback import annotate, preserve_node_meta
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .._torch.private.operators import OpOverload, describe, find_overload, promise, qualified_name, schema_arguments
from .._torch.private.torch_export import failed_evaluations, script_calls, unchecked_states
from .._torch.private.trees import replace_leaves, tensor_leaves
from .data_dependent import DATA_READING
from .graph_calls import LINE, Place, calling_line, calling_place, definition_place, format_place


@contextmanager
def intercepted(replacing: bool, tracing: bool = False) -> Iterator[Interception]:
    """Context manager: capture in an `Interception`, and let captures run scripted modules."""
    mode = Interception(replacing, tracing)
    states = unchecked_states() if replacing else nullcontext()
    with failed_evaluations(mode.record), script_calls(_annotations), states, mode:
        yield mode


class Interception(TorchFunctionMode):
    """A mode that annotates every node of a graph with the line of the user's code, for `graph_calls.source_line`.

    Parameters
    ----------
    replacing : bool
        Replace calls on which ``torch.export`` fails.
    tracing : bool
        The capture is a run on real tensors, which torch does not recognize as part of an export.
    """

    def __init__(self, replacing: bool, tracing: bool = False) -> None:
        super().__init__()
        self._replacing, self._tracing = replacing, tracing
        self.replaced = False
        """Whether a call was replaced."""
        self.unanswered: list[tuple[BaseException, Place]] = []
        """What torch raised because it does not know the values of a tensor, and where it was asked for them."""

    def record(self, error: Exception) -> None:
        """Record what torch raised."""
        self.unanswered.append((error, calling_place()))

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        exporting = self._tracing or (torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling())
        if not exporting:
            return func(*args, **kwargs)
        with preserve_node_meta(), annotate({LINE: calling_line()}):
            replacement = _REPLACEMENTS.get(func) if self._replacing else None
            result = replacement(*args, **kwargs) if replacement else NotImplemented
            if result is not NotImplemented:
                self.replaced = True
                return result
            try:
                return func(*args, **kwargs)
            except Exception as error:
                if func in DATA_READING:
                    self.record(error)
                raise


def _annotations(method: Any) -> dict[str, Any]:
    """Return the annotation with the line that calls a scripted method, or else with the one where it begins."""
    return {LINE: calling_line() or format_place(definition_place(method))}


_NAMESPACE = "pyops_capture"
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")


@functools.cache
def _standing_for(operator: str) -> OpOverload:
    """Return the stand-in for an operator of aten: it has the same schema and results, and a fake from `_FAKES`."""
    target = find_overload(operator)
    assert target is not None
    name = operator.partition("::")[2]

    def compute(*args: Any, **kwargs: Any) -> Any:
        results = target(*args, **kwargs)
        # torch requires that the results of an operator are dense and share no memory with its arguments.
        copies = [item.clone(memory_format=torch.contiguous_format) for item in tensor_leaves(results)]
        return replace_leaves(results, copies)

    def fake(*args: Any, **kwargs: Any) -> Any:
        names = [item.name for item in schema_arguments(target)]
        return _FAKES[operator](dict(zip(names, args, strict=False)) | kwargs)

    # The schema of pad_packed_sequence has a number, but the longest length depends on data.
    _library.define(describe(target).partition("::")[2].replace("int total_length", "SymInt total_length"))
    _library.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=_library)
    found = find_overload(f"{_NAMESPACE}::{name}")
    assert found is not None
    return found


def original(target: OpOverload) -> OpOverload:
    """Return the operator of torch that a stand-in stands for, or any other operator itself."""
    namespace, _, name = qualified_name(target).partition("::")
    found = find_overload(f"aten::{name}") if namespace == _NAMESPACE else target
    assert found is not None
    return found


def target_of(call: Node) -> OpOverload:
    """Return the operator that a node calls; for a stand-in, the operator of torch."""
    assert isinstance(call.target, OpOverload)
    return original(call.target)


# Parameters have torch's names, because a model may pass them as keywords.


def _equal(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.eq(input, other).all() if input.shape == other.shape else torch.tensor(False)


def _allclose(input: torch.Tensor, other: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.isclose(input, other, *args, **kwargs).all()


_REDUCTIONS = ("none", "mean", "sum")  # in the order of their codes in torch


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    if reduction not in _REDUCTIONS:
        return NotImplemented
    lengths = [torch.as_tensor(item, dtype=torch.int64) for item in (input_lengths, target_lengths)]
    code = _REDUCTIONS.index(reduction)
    call = _kept("aten::ctc_loss.Tensor")
    return call(log_probs, targets, *lengths, blank, code, zero_infinity)


def _gaussian_nll_loss(
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
    variance = var.unsqueeze(-1) if input.ndim and var.shape == input.shape[:-1] else var
    # The gradient is that of the variance itself, also where `eps` takes its place.
    variance = torch.where(variance < eps, variance - variance.detach() + eps, variance)
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _one_hot(input: torch.Tensor, num_classes: int = -1) -> Any:
    return _kept("aten::one_hot")(input) if num_classes == -1 else NotImplemented


def _narrow(input: torch.Tensor, dim: int, start: Any, length: int) -> Any:
    """Narrow by a start in a tensor, as torch does, and tell ``torch.export`` the bounds that torch assumes."""
    if not isinstance(start, torch.Tensor):
        return NotImplemented
    size = input.shape[dim]
    first: Any = torch.where(start < 0, start + size, start).item()
    promise(first >= 0)
    promise(first + length <= size)
    return input.narrow(dim, first, length)


def _zeros(*size: Any, **options: Any) -> Any:
    """Return zeros of sizes some of which are tensors, as recurrent layers ask for; the fake of torch takes none."""
    if not any(isinstance(item, torch.Tensor) for item in size):
        return NotImplemented
    sizes: list[Any] = [item.item() if isinstance(item, torch.Tensor) else item for item in size]
    return torch.zeros(sizes, **options)


def _where(condition: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    # The fake of torch takes only a boolean mask, and torch itself also one of bytes.
    return torch.where(condition.bool(), *args, **kwargs) if condition.dtype == torch.uint8 else NotImplemented


def _histogram(input: torch.Tensor, bins: Any, *args: Any, **kwargs: Any) -> Any:
    kind = "bins_tensor" if isinstance(bins, torch.Tensor) else "bin_ct"
    return _kept(f"aten::histogram.{kind}", _named("histogram"))(input, bins, *args, **kwargs)


def _recurrent(name: str) -> Callable[..., Any]:
    """Return the replacement of a function of recurrent layers, for calls with a packed sequence."""
    call = _kept(f"aten::{name}.data")
    # Where a padded sequence follows its initial state, a packed one follows the sizes of its steps.
    return lambda *args: call(*args) if isinstance(args[3], (tuple, list)) else NotImplemented


def _kept(operator: str, wrap: Callable[[Any], Any] = lambda results: results) -> Callable[..., Any]:
    """Return a function that calls the stand-in for an operator of torch.

    Parameters
    ----------
    operator : str
    wrap : callable
        Converts the operator's outputs to the result of torch's function.
    """

    def function(*args: Any, **kwargs: Any) -> Any:
        # Python functions and schemas name the first argument differently.
        renamed = {"self" if name in ("input", "A", "tensor") else name: value for name, value in kwargs.items()}
        return wrap(_standing_for(operator)(*args, **renamed))

    return function


def _named(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = vars(torch.return_types)[name]
    return found


_RECURRENT = ("gru", "lstm", "rnn_relu", "rnn_tanh")
_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    torch.linalg.lstsq: _kept("aten::linalg_lstsq", _named("linalg_lstsq")),
    functional.ctc_loss: _ctc_loss,
    functional.gaussian_nll_loss: _gaussian_nll_loss,
    functional.one_hot: _one_hot,
    torch.where: _where,
    torch.zeros: _zeros,
}
# These functions are methods of tensors too.
for _name, _replacement in {
    "_grouped_mm": _kept("aten::_grouped_mm"),
    "_pack_padded_sequence": _kept("aten::_pack_padded_sequence"),
    "_pad_packed_sequence": _kept("aten::_pad_packed_sequence"),
    "allclose": _allclose,
    "combinations": _kept("aten::combinations"),
    "corrcoef": _kept("aten::corrcoef"),
    "cov": _kept("aten::cov"),
    "equal": _equal,
    "geqrf": _kept("aten::geqrf", _named("geqrf")),
    "histogram": _histogram,
    "narrow": _narrow,
    **{name: _recurrent(name) for name in _RECURRENT},
}.items():
    _REPLACEMENTS |= {getattr(place, _name): _replacement for place in (torch, torch.Tensor) if hasattr(place, _name)}


# torch's fakes of these operators read the data, or torch has none. Each function gets the operator's arguments by
# name, and returns empty tensors of the shapes and dtypes of the results.


def _fake_covariance(values: Mapping[str, Any]) -> torch.Tensor:
    x, weights = values["self"], values.get("aweights")
    shape = [x.shape[0]] * 2 if x.dim() == 2 and x.shape[0] != 1 else []
    dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.get_default_dtype()
    if weights is not None:
        dtype = torch.promote_types(dtype, weights.dtype)
    return torch.empty(shape, dtype=dtype, device=x.device)


def _fake_one_hot(values: Mapping[str, Any]) -> torch.Tensor:
    x, classes = values["self"], values.get("num_classes", -1)
    # By default the size is one more than the largest index.
    size = torch.library.get_ctx().new_dynamic_size() if classes == -1 else classes
    return torch.empty([*x.shape, size], dtype=torch.int64, device=x.device)


def _fake_combinations(values: Mapping[str, Any]) -> torch.Tensor:
    x, chosen = values["self"], values.get("r", 2)
    if chosen > 2 and not isinstance(x.shape[0], int):
        # torch cannot prove that a product of three consecutive sizes is divisible by six.
        count = torch.library.get_ctx().new_dynamic_size()
    else:
        factors = (x.shape[0] + (index if values.get("with_replacement") else -index) for index in range(chosen))
        count = math.prod(factors) // math.factorial(chosen)
    return torch.empty([count, chosen] if chosen else [0], dtype=x.dtype, device=x.device)


def _fake_geqrf(values: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    x = values["self"]
    return torch.empty_like(x), x.new_empty([*x.shape[:-2], torch.sym_min(x.shape[-2], x.shape[-1])])


def _fake_histogram(values: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    x, bins = values["self"], values["bins"]
    edges = bins.shape[0] if isinstance(bins, torch.Tensor) else bins + 1
    return x.new_empty([edges - 1]), x.new_empty([edges])


def _fake_ctc_loss(values: Mapping[str, Any]) -> torch.Tensor:
    log_probs = values["log_probs"]
    batched = log_probs.dim() == 3 and values.get("reduction", 1) == 0
    return torch.empty([log_probs.shape[1]] if batched else [], dtype=log_probs.dtype, device=log_probs.device)


def _fake_lstsq(values: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
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


def _fake_grouped_mm(values: Mapping[str, Any]) -> Any:
    """Return the products of groups; torch's fake takes bfloat16 only."""
    a, b = values["self"], values["mat2"]
    groups = [(a if a.dim() == 3 else values["offs"]).shape[0]] if a.dim() == b.dim() else []
    return torch.empty([*groups, a.shape[-2], b.shape[-1]], dtype=values.get("out_dtype") or a.dtype, device=a.device)


def _fake_packing(values: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    x, new_size = values["input"], torch.library.get_ctx().new_dynamic_size
    rows, longest = new_size(min=1), new_size(min=1)
    promise(longest <= x.shape[1 if values["batch_first"] else 0])  # pad_packed_sequence asks for it
    return x.new_empty([rows, *x.shape[2:]]), values["lengths"].new_empty([longest])


def _fake_padding(values: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    data, batch = values["data"], torch.library.get_ctx().new_dynamic_size(min=1)
    sizes = [batch, values["total_length"]] if values["batch_first"] else [values["total_length"], batch]
    return data.new_empty([*sizes, *data.shape[1:]]), values["batch_sizes"].new_empty([batch])


def _fake_recurrent(values: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    data, hx = values["data"], values["hx"]
    states = [hx] if isinstance(hx, torch.Tensor) else hx
    size = states[0].shape[-1] * (2 if values["bidirectional"] else 1)
    return data.new_empty([data.shape[0], size]), *map(torch.empty_like, states)


_FAKES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "aten::_grouped_mm": _fake_grouped_mm,
    "aten::_pack_padded_sequence": _fake_packing,
    "aten::_pad_packed_sequence": _fake_padding,
    "aten::combinations": _fake_combinations,
    "aten::cov": _fake_covariance,
    "aten::corrcoef": _fake_covariance,
    "aten::ctc_loss.Tensor": _fake_ctc_loss,
    "aten::geqrf": _fake_geqrf,
    "aten::histogram.bin_ct": _fake_histogram,
    "aten::histogram.bins_tensor": _fake_histogram,
    "aten::linalg_lstsq": _fake_lstsq,
    "aten::one_hot": _fake_one_hot,
    **{f"aten::{name}.data": _fake_recurrent for name in _RECURRENT},
}
