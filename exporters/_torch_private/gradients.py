"""Private interfaces of torch's captures for models that compute gradients themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .patching import private, replaced

_MAKE_FX = "torch.fx.experimental.proxy_tensor.make_fx"
_aten = torch.ops.aten


@contextmanager
def below_autograd() -> Iterator[None]:
    """Context manager: let models compute gradients, by autograd and the transforms of ``torch.func``, and record them.

    Otherwise captures record the operators that the code calls, and lose the tensors that autograd saves for gradients.
    Here the composite ones are recorded as their parts. Constants that are lost all the same have no values.
    """
    make, table = private(_MAKE_FX), _decompositions()

    def making(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return make(function, *args, **{**kwargs, "pre_dispatch": False, "decomposition_table": table})

    with (
        torch.enable_grad(),
        replaced("torch.export._trace.make_fx", making),
        replaced(_MAKE_FX, making),
        private("torch._export.config").patch(error_on_lifted_constant_tensors=False),
        sdpa_kernel(SDPBackend.MATH),  # the gradients of the other ways of attention are single operators
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "We found a fake tensor", UserWarning)
        yield


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of gradients that torch's exporter neither translates nor decomposes."""
    found = private("torch._decomp.get_decompositions")([_aten.silu_backward, _aten.mish_backward])
    return {**found, _aten.convolution_backward.default: _convolution_backward}


def _convolution_backward(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *others: Any) -> Any:
    """Return the gradient by the input of a convolution, which is a transposed convolution."""
    _, stride, padding, dilation, transposed, _, groups, (_, by_weight, by_bias) = others
    if transposed or by_weight or by_bias:
        return NotImplemented
    none = [0] * len(stride)
    found = _aten.convolution(gradient, weight, None, stride, none, dilation, True, none, groups)
    ends = [size + pad - full for size, pad, full in zip(x.shape[2:], padding, found.shape[2:], strict=True)]
    sides = [side for pad, end in zip(padding, ends, strict=True) for side in (end, -pad)]
    return torch.nn.functional.pad(found, sides[::-1]), None, None
