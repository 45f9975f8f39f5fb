"""What captures of a model by ``torch.export`` evaluate, and what they may run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.traceback import annotate, preserve_node_meta

from .patching import guarded, private, replaced

_EVALUATE = "torch.fx.experimental.sym_node.SymNode.evaluate"


@contextmanager
def asked_conditions(ask: Callable[[str, str], None]) -> Iterator[None]:
    """Context manager: report each expression that ``torch.export.draft_export`` evaluates for the example.

    Parameters
    ----------
    ask : callable
        Called with the expression, and its value.
    """
    name = "torch.fx.experimental.symbolic_shapes.ShapeEnv._log_real_tensor_propagation"
    log = private(name)

    def logging_too(env: Any, expression: Any, value: Any) -> None:
        ask(str(expression), str(value))
        log(env, expression, value)

    with replaced(name, logging_too):
        yield


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

    evaluate = private(_EVALUATE)

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

    with replaced(_EVALUATE, evaluating):
        yield


@contextmanager
def failed_evaluations(report: Callable[[Exception], None]) -> Iterator[None]:
    """Context manager: report each exception that torch raises for a number or a condition that it does not know."""
    evaluate = private(_EVALUATE)

    def evaluating(*args: Any, **kwargs: Any) -> Any:
        try:
            return evaluate(*args, **kwargs)
        except Exception as error:
            report(error)
            raise

    with replaced(_EVALUATE, evaluating):
        yield


def traced_frames() -> list[tuple[str, int]]:
    """Return the file and the line of each frame of the code that TorchDynamo traces, the innermost first."""
    stack = private("torch._guards.TracingContext.extract_stack")()
    return [(frame.filename, frame.lineno or 0) for frame in reversed(stack)]


@contextmanager
def script_calls(annotations: Callable[[Any], dict[str, Any]]) -> Iterator[None]:
    """Context manager: let captures run the code of scripted modules, and annotate its nodes.

    Within ``torch.export``, torch would call the Python code that was scripted, with one argument too many.

    Parameters
    ----------
    annotations : callable
        Called with a scripted method; returns what `torch.fx.traceback.annotate` takes.
    """
    private("torch.ScriptMethod.raw_owner")
    call = torch.ScriptMethod.__call__

    def calling(method: Any, *args: Any, **kwargs: Any) -> Any:
        with preserve_node_meta(), annotate(annotations(method)):
            return call(method.raw_owner._get_method(method.name), *args, **kwargs)

    with replaced("torch.ScriptMethod.__call__", calling):
        yield


@guarded("torch.fx.experimental.symbolic_shapes.ShapeEnv.replace")
def with_equal_sizes(size: torch.SymInt, expression: Any) -> Any:
    """Return an expression in the symbols that a capture keeps of the sizes that it found to be equal."""
    return size.node.shape_env.replace(expression)


@guarded("torch.fx.experimental.symbolic_shapes.statically_known_true")
def is_certain(condition: Any) -> bool:
    """Return whether a condition on sizes holds for all sizes that a captured graph takes."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


@guarded("torch._subclasses.fake_tensor.FakeTensor")
def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has a shape and no values, or belongs to a transform of ``torch.func``."""
    from torch._C._functorch import is_functorch_wrapped_tensor
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor) or is_functorch_wrapped_tensor(tensor)


def graph_modules(program: torch.export.ExportedProgram) -> dict[str, GraphModule]:
    """Return the graph of a program, whose name is empty, and its subgraphs (branches of ``torch.cond``), by name."""
    return {name: module for name, module in program.graph_module.named_modules() if isinstance(module, GraphModule)}


@guarded("torch.ops.aten._linalg_check_errors.default")
def drop_matrix_checks(program: torch.export.ExportedProgram) -> None:
    """Remove the calls by which torch raises for a singular matrix: they have no result, and nodes cannot raise."""
    for module in graph_modules(program).values():
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten._linalg_check_errors.default):
            module.graph.erase_node(node)
        module.recompile()


@contextmanager
def unchecked_states() -> Iterator[None]:
    """Context manager: let recurrent layers take packed sequences without a check of the initial state.

    The check makes an int of the number of sequences, which a capture on fake tensors does not know.
    """
    with ExitStack() as stack:
        for layer in ("RNNBase", "LSTM"):
            name = f"torch.nn.{layer}.check_forward_args"
            stack.enter_context(replaced(name, _of_padded(private(name))))
        yield


def _of_padded(check: Callable[..., None]) -> Callable[..., None]:
    return lambda layer, input, hidden, sizes: check(layer, input, hidden, sizes) if sizes is None else None


@contextmanager
def unvalidated_distributions() -> Iterator[None]:
    """Context manager: let distributions of torch validate their arguments only where the code asks for it."""
    before = private("torch.distributions.Distribution._validate_args")
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)
