"""Private interfaces of torch's tracers: traces on real tensors, of some known values, and below autograd."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.nn.attention import SDPBackend, sdpa_kernel

from .patching import guarded, private, replaced

_aten = torch.ops.aten
_PROXIES, _FAKES = "torch.fx.experimental.proxy_tensor", "torch._subclasses.fake_tensor"
_MAKE_FX = f"{_PROXIES}.make_fx"


def trace_graph(function: Callable[..., Any], *args: Any) -> GraphModule:
    """Run a function on tensors, and return the graph of the operators that it called.

    The tensors are real, so that Python code sees their values. The operators are those that the code calls, as in
    ``torch.export``.

    Parameters
    ----------
    function : callable
        It is called with the graph that is being recorded, and the arguments; it returns a list of tensors.
    """

    def run(*given: Any) -> Any:
        return function(private(f"{_PROXIES}.get_proxy_mode")().tracer.graph, *given)

    make: Callable[..., GraphModule] = private(_MAKE_FX)(
        run, tracing_mode="real", pre_dispatch=True, _error_on_data_dependent_ops=False
    )
    return make(*args)


@guarded("torch.amp.autocast_mode._enter_autocast")
def enters_autocast(node: Node) -> bool:
    """Return whether a node of a recorded graph enters a region in which torch casts."""
    return node.target is torch.amp.autocast_mode._enter_autocast and bool(node.args[2])  # whether it is enabled


def last_node(graph: Graph) -> Any:
    """Return the node that was recorded last."""
    return next(iter(reversed(graph.nodes)))


@contextmanager
def known_values(state: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Context manager: let the code that ``torch.export`` captures read values that follow from the state only.

    torch allows it for tensors that the code makes from numbers; here also for parameters and buffers.

    Yields
    ------
    list of torch.Tensor
        The copies of the state from which the values are read.
    """
    names = f"{_FAKES}.FakeTensorMode.from_tensor", f"{_PROXIES}.track_tensor"
    make_fake, track = map(private, names)
    unset_fake = private(f"{_FAKES}.unset_fake_temporarily")
    known: dict[int, tuple[Any, torch.Tensor]] = {}  # by the id of the fake, which is kept so that no other gets it
    copies: list[torch.Tensor] = []

    def making(mode: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        fake = make_fake(mode, tensor, *args, **kwargs)
        if any(tensor is item for item in state):
            known[id(fake)] = fake, tensor
        return fake

    def tracking(tensor: Any, proxy: Any, *, constant: torch.Tensor | None, tracer: Any) -> None:
        if constant is None and proxy.node.op == "placeholder" and id(tensor) in known:
            with unset_fake():
                constant = known[id(tensor)][1].detach().clone()
            copies.append(constant)
        track(tensor, proxy, constant=constant, tracer=tracer)

    with (
        replaced(names[0], making),
        replaced(names[1], tracking),
        replaced(f"{_PROXIES}.CONSTANT_NUMEL_LIMIT", _LARGEST_KNOWN),
    ):
        yield copies


# torch computes no values of larger tensors while it captures; its own limit is one element.
_LARGEST_KNOWN = 2**20


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
