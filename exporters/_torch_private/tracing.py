"""Private interfaces of torch's tracers: traces on real tensors, and what captures on fake tensors evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.traceback import annotate, preserve_node_meta

from .guard import guarded
from .patching import replaced


@guarded("torch.fx.experimental.proxy_tensor.make_fx")
def trace_graph(function: Callable[..., Any], *args: Any) -> GraphModule:
    """Run a function on tensors, and return the graph of the operators that it called.

    The tensors are real, so that Python code sees their values. The operators are those that the code calls, as in
    ``torch.export``.

    Parameters
    ----------
    function : callable
        It is called with the graph that is being recorded, and the arguments; it returns a list of tensors.
    """
    from torch.fx.experimental import proxy_tensor

    def run(*given: Any) -> Any:
        mode = proxy_tensor.get_proxy_mode()
        assert mode is not None
        return function(mode.tracer.graph, *given)

    return proxy_tensor.make_fx(run, tracing_mode="real", pre_dispatch=True, _error_on_data_dependent_ops=False)(*args)


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
    proxies, fakes = _proxies(), _fake_tensors()
    track, make_fake = proxies.track_tensor, fakes.FakeTensorMode.from_tensor
    known: dict[int, tuple[Any, torch.Tensor]] = {}  # by the id of the fake, which is kept so that no other gets it
    copies: list[torch.Tensor] = []

    def making(mode: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        fake = make_fake(mode, tensor, *args, **kwargs)
        if any(tensor is item for item in state):
            known[id(fake)] = fake, tensor
        return fake

    def tracking(tensor: Any, proxy: Any, *, constant: torch.Tensor | None, tracer: Any) -> None:
        if constant is None and proxy.node.op == "placeholder" and id(tensor) in known:
            with fakes.unset_fake_temporarily():
                constant = known[id(tensor)][1].detach().clone()
            copies.append(constant)
        track(tensor, proxy, constant=constant, tracer=tracer)

    with (
        replaced(fakes.FakeTensorMode, "from_tensor", making),
        replaced(proxies, "track_tensor", tracking),
        replaced(proxies, "CONSTANT_NUMEL_LIMIT", _LARGEST_KNOWN),
    ):
        yield copies


# torch computes no values of larger tensors while it captures; its own limit is one element.
_LARGEST_KNOWN = 2**20


@guarded("torch.fx.experimental.proxy_tensor.track_tensor")
def _proxies() -> Any:
    from torch.fx.experimental import proxy_tensor

    assert callable(proxy_tensor.track_tensor)
    assert proxy_tensor.CONSTANT_NUMEL_LIMIT
    return proxy_tensor


@guarded("torch._subclasses.fake_tensor.FakeTensorMode.from_tensor")
def _fake_tensors() -> Any:
    from torch._subclasses import fake_tensor

    assert callable(fake_tensor.FakeTensorMode.from_tensor)
    return fake_tensor


@contextmanager
def asked_conditions(ask: Callable[[str, str], None]) -> Iterator[None]:
    """Context manager: report each expression that ``torch.export.draft_export`` evaluates for the example.

    Parameters
    ----------
    ask : callable
        Called with the expression, and its value.
    """
    shapes = _shapes()
    log = shapes.ShapeEnv._log_real_tensor_propagation

    def logging_too(env: Any, expression: Any, value: Any) -> None:
        ask(str(expression), str(value))
        log(env, expression, value)

    with replaced(shapes.ShapeEnv, "_log_real_tensor_propagation", logging_too):
        yield


@guarded("torch.fx.experimental.symbolic_shapes.ShapeEnv._log_real_tensor_propagation")
def _shapes() -> Any:
    from torch.fx.experimental import symbolic_shapes

    assert callable(symbolic_shapes.ShapeEnv._log_real_tensor_propagation)
    return symbolic_shapes


@contextmanager
def asked_sizes(ask: Callable[[Any, bool], None], contradict: Callable[[], None]) -> Iterator[None]:
    """Context manager: report each expression of sizes that a capture evaluates and that differs between sizes.

    Parameters
    ----------
    ask : callable
        Called with the SymPy condition that does not hold, and whether the capture evaluated a number.
    contradict : callable
        Called where the answer to a condition is not that of the example.
    """
    import sympy  # which torch.export imports anyway

    nodes = _sym_nodes()
    evaluate = nodes.SymNode.evaluate

    def evaluating(node: Any, *args: Any, **kwargs: Any) -> Any:
        certain = node.is_bool() and any(is_certain(torch.SymBool(item)) for item in (node, node.sym_not()))
        value = evaluate(node, *args, **kwargs)
        violation = (~node.expr if value else node.expr) if node.is_bool() else sympy.Ne(node.expr, value)
        # A symbol of a size is positive, even where the size is 0.
        if violation == sympy.true or (node.is_bool() and node.has_hint() and node.hint != value):
            contradict()
        if not certain:
            ask(violation, not node.is_bool())
        return value

    with replaced(nodes.SymNode, "evaluate", evaluating):
        yield


@contextmanager
def failed_evaluations(report: Callable[[Exception], None]) -> Iterator[None]:
    """Context manager: report each exception that torch raises for a number or a condition that it does not know."""
    nodes = _sym_nodes()
    evaluate = nodes.SymNode.evaluate

    def evaluating(*args: Any, **kwargs: Any) -> Any:
        try:
            return evaluate(*args, **kwargs)
        except Exception as error:
            report(error)
            raise

    with replaced(nodes.SymNode, "evaluate", evaluating):
        yield


@guarded("torch._guards.TracingContext.extract_stack")
def traced_frames() -> list[tuple[str, int]]:
    """Return the file and the line of each frame of the code that TorchDynamo traces, the innermost first."""
    from torch._guards import TracingContext

    return [(frame.filename, frame.lineno or 0) for frame in reversed(TracingContext.extract_stack())]


@contextmanager
def script_calls(annotations: Callable[[Any], dict[str, Any]]) -> Iterator[None]:
    """Context manager: let captures run the code of scripted modules, and annotate its nodes.

    Within ``torch.export``, torch would call the Python code that was scripted, with one argument too many.

    Parameters
    ----------
    annotations : callable
        Called with a scripted method; returns what `torch.fx.traceback.annotate` takes.
    """
    call = _script_method().__call__

    def calling(method: Any, *args: Any, **kwargs: Any) -> Any:
        with preserve_node_meta(), annotate(annotations(method)):
            return call(method.raw_owner._get_method(method.name), *args, **kwargs)

    with replaced(_script_method(), "__call__", calling):
        yield


@guarded("torch.ScriptMethod.raw_owner")
def _script_method() -> Any:
    method: Any = torch.ScriptMethod
    assert method.raw_owner
    return method


@guarded("torch.fx.experimental.sym_node.SymNode.evaluate")
def _sym_nodes() -> Any:
    from torch.fx.experimental import sym_node

    assert callable(sym_node.SymNode.evaluate)
    return sym_node


@guarded("torch.fx.experimental.symbolic_shapes.statically_known_true")
def is_certain(condition: Any) -> bool:
    """Return whether a condition on sizes holds for all sizes that a captured graph takes."""
    return bool(_shapes().statically_known_true(condition))


@guarded("torch._subclasses.fake_tensor.FakeTensor")
def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has a shape and no values, or belongs to a transform of ``torch.func``."""
    from torch._C._functorch import is_functorch_wrapped_tensor
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor) or is_functorch_wrapped_tensor(tensor)


@contextmanager
def unvalidated_distributions() -> Iterator[None]:
    """Context manager: let distributions of torch validate their arguments only where the code asks for it."""
    before = _validates()
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


@guarded("torch.distributions.Distribution._validate_args")
def _validates() -> bool:
    return bool(torch.distributions.Distribution._validate_args)
