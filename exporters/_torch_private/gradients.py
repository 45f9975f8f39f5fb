"""Private interfaces of torch's captures for models that compute gradients themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .guard import guarded
from .patching import replaced

_aten = torch.ops.aten


@contextmanager
def below_autograd() -> Iterator[None]:
    """Context manager: let captures record what autograd and the transforms of ``torch.func`` compute.

    Otherwise captures record the operators that the code calls, and lose the tensors that autograd saves for gradients.
    Here the composite ones are recorded as their parts.
    """
    modules, table = _modules(), _decompositions()
    make = modules[0].make_fx

    def making(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return make(function, *args, **{**kwargs, "pre_dispatch": False, "decomposition_table": table})

    exporting, tracing = (replaced(module, "make_fx", making) for module in modules)
    attention = sdpa_kernel(SDPBackend.MATH)  # the gradients of its other ways are single operators
    with exporting, tracing, attention, _lost_constants(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "We found a fake tensor", UserWarning)
        yield


@guarded("torch._export.config.error_on_lifted_constant_tensors")
def _lost_constants() -> AbstractContextManager[None]:
    """Return a context manager: let ``torch.export`` return a program without the values of some constants."""
    from torch._export import config

    return config.patch(error_on_lifted_constant_tensors=False)  # type: ignore[no-any-return] # torch has no types


@guarded("torch.export._trace.make_fx")
def _modules() -> tuple[Any, Any]:
    from torch.export import _trace
    from torch.fx.experimental import proxy_tensor

    assert _trace.make_fx is proxy_tensor.make_fx
    return _trace, proxy_tensor


@guarded("torch._decomp.get_decompositions")
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of gradients that torch's exporter neither translates nor decomposes."""
    from torch._decomp import get_decompositions

    found = get_decompositions([_aten.silu_backward, _aten.mish_backward])
    return {**found, _aten.convolution_backward.default: _convolution_backward}


def _convolution_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> Any:
    """Return the gradient by the input of a convolution, which is another convolution."""
    if mask[1] or mask[2]:
        return NotImplemented
    none = [0] * len(stride)
    start = padding if transposed else none
    found = _aten.convolution(gradient, weight, None, stride, start, dilation, not transposed, none, groups)
    if not transposed:
        ends = [size + pad - full for size, pad, full in zip(x.shape[2:], padding, found.shape[2:], strict=True)]
        sides = [side for pad, end in zip(padding, ends, strict=True) for side in (end, -pad)]
        found = torch.nn.functional.pad(found, sides[::-1])
    return found, None, None
