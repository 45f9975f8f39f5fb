"""Private interfaces of torch's tracers: traces on real tensors, and captures that know the values of some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .patching import guarded, private, replaced

_PROXIES, _FAKES = "torch.fx.experimental.proxy_tensor", "torch._subclasses.fake_tensor"


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

    make: Callable[..., GraphModule] = private(f"{_PROXIES}.make_fx")(
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
