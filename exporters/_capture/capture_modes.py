"""The ways of capturing a model, from one that changes nothing to a trace of the example arguments."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch

from pyops._support.progress import step

from .._torch.private.onnx_exporter import Strategy, UncapturedError, by_strategy, draft_failures
from .._torch.private.patching import quiet
from .._torch.private.torch_export import asked_conditions, drop_matrix_checks, is_fake
from .._torch.private.tracing import below_autograd
from ..errors import ExportError
from .comparison import check_program
from .data_dependent import known_state
from .decisions import CaptureDecision, Kind, decision
from .failures import check_answers, differentiates, lost
from .graph_calls import Place, calling_place
from .interception import intercepted
from .preparation import Example, Model, unchanged
from .sizes import SizeCondition, model_place, recorded_conditions
from .trace import trace
from .value_sources import expression_sources

Capture = Literal["export", "trace", "auto"]


@dataclass(frozen=True)
class Captured:
    """A model as a graph of torch's operators.

    Attributes
    ----------
    decisions : tuple of CaptureDecision
        The values that the capture specialized.
    conditions : tuple of SizeCondition
        The conditions on sizes that held.
    has_replaced_calls : bool
        Whether calls were replaced on which ``torch.export`` fails.
    strategy : str
        The strategy of torch's exporter.
    unverified : str
        Why the program was not compared with the model; ``""`` if it was.
    """

    program: torch.export.ExportedProgram
    decisions: tuple[CaptureDecision, ...] = ()
    conditions: tuple[SizeCondition, ...] = ()
    has_replaced_calls: bool = False
    strategy: Strategy = "NonStrict"
    unverified: str = ""


def check_capture(capture: Any, model: Model, dynamo: bool = True, guards: bool = False) -> None:
    """Raise ExportError if a way of capturing does not exist, or not for this model and exporter."""
    if capture not in get_args(Capture):
        raise ExportError(f'capture is {capture!r}; expected "export", "trace" or "auto"')
    if guards and capture == "export":
        raise ExportError(
            'guards=True guards values that a trace specializes, and capture="export" makes no trace; pass '
            'capture="auto" or capture="trace"'
        )
    if capture == "export":
        return
    if not dynamo:
        raise ExportError(
            f'capture="{capture}" needs the exporter that is built on torch.export; leave out dynamo=False, which '
            "always traces in its own way"
        )
    if isinstance(model, torch.export.ExportedProgram) and (capture == "trace" or guards):
        raise ExportError(
            f'capture="{capture}" captures a torch.nn.Module, and this model is an ExportedProgram already; pass the '
            "module, or leave out capture="
        )


@dataclass(frozen=True)
class Way:
    """A way of capturing a model.

    Attributes
    ----------
    fixes_values : bool
        Whether it may specialize values that the model's Python code reads.
    is_silent : bool
        Whether what torch prints and warns of is dropped, since another way follows.
    """

    capture: Callable[[Example], Captured]
    fixes_values: bool = False
    is_silent: bool = False


def ways(example: Example, capture: Capture, replacing: bool) -> list[Way]:
    """Return the ways of capturing a model, in the order in which they are to be tried.

    Parameters
    ----------
    replacing : bool
        Whether calls may be replaced on which ``torch.export`` fails.
    """
    if isinstance(example.model, torch.export.ExportedProgram):
        return [Way(_given)]
    # TorchDynamo is slow, and does not see the replacements, so it comes last.
    last = functools.partial(_by_torch, strategies=("NonStrict", "Strict"), replacing=replacing)
    exact: list[Callable[[Example], Captured]] = [_by_torch, last] if replacing else [last]
    if capture == "export":
        return [Way(way) for way in exact]
    found = [Way(_traced, fixes_values=True)]
    if capture == "auto":
        # A draft export specializes conditions on sizes and numbers, not on tensors that a guard could read.
        more = [_with_known_state] if example.guard else [_with_known_state, _drafted]
        fixing = [Way(way, fixes_values=True, is_silent=True) for way in more]
        found = [*(Way(way, is_silent=True) for way in exact), *fixing, *found]
    return found


def captured(way: Way, example: Example, compared: bool) -> Captured:
    """Capture a model in one way, with gradients if it computes gradients itself.

    Parameters
    ----------
    compared : bool
        Compare the captured program with the model for the example arguments; that of a draft export always is.

    Raises
    ------
    CaptureError
        The graph would not compute what the model does.
    Exception
        Whatever the model or torch raises.
    """
    step("capturing the model")
    with ExitStack() as stack:
        if way.is_silent:
            stack.enter_context(quiet())
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        # Otherwise opt_einsum, where it is installed, makes ints of the sizes, which specializes them.
        stack.enter_context(torch.backends.opt_einsum.flags(enabled=False))
        try:
            with torch.no_grad():
                return _checked(way, example, compared)
        except Exception as error:  # the model's code may raise anything
            if not differentiates(error):
                raise
        with below_autograd():
            return _checked(way, example, compared)


def _checked(way: Way, example: Example, compared: bool) -> Captured:
    with unchanged(example):
        found = way.capture(example)
    if found.program is not example.model:
        drop_matrix_checks(found.program)
    _check_constants(found.program)
    if way.capture is _drafted:  # compared already
        return found
    reason = check_program(found.program, example, found.decisions) if compared else "verify=False"
    return replace(found, unverified=reason)


def _check_constants(program: torch.export.ExportedProgram) -> None:
    """Raise CaptureError if a captured program has a constant without values, on which torch would crash."""
    names = program.graph_signature.inputs_to_lifted_tensor_constants
    for node in program.graph.nodes:
        constant = program.constants.get(names.get(node.name, ""))
        if isinstance(constant, torch.Tensor) and is_fake(constant):
            raise lost(node)


def _given(example: Example) -> Captured:
    assert isinstance(example.model, torch.export.ExportedProgram)
    return Captured(example.model)


def _by_torch(example: Example, strategies: tuple[Strategy, ...] = ("NonStrict",), replacing: bool = False) -> Captured:
    """Capture by the first strategy of torch's exporter that succeeds; the first error says most."""
    failure: UncapturedError | None = None
    for strategy in strategies:
        try:
            # TorchDynamo does not see replacements.
            with intercepted(replacing and strategy != "Strict") as mode, recorded_conditions() as asked:
                program = by_strategy(strategy, *example.of_torch, example.verbose)
        except UncapturedError as error:
            error.places = tuple(dict.fromkeys(condition.place for condition in asked))
            failure = failure or error
            continue
        if mode.unanswered:
            check_answers(mode.unanswered)
        return Captured(program, (), tuple(asked), mode.replaced, strategy)
    assert failure is not None
    raise failure


def _with_known_state(example: Example) -> Captured:
    assert isinstance(example.model, torch.nn.Module)
    with known_state(example.model) as decisions:
        found = _by_torch(example, replacing=True)
    return replace(found, decisions=tuple(decisions))


def _drafted(example: Example) -> Captured:
    """Capture by ``torch.export.draft_export``, which takes a condition that it cannot prove to be as in the example.

    It decides by values that it computes itself, which may be wrong. The program asserts what it decided.
    """
    assert isinstance(example.model, torch.nn.Module)
    asked: list[tuple[str, str, Place]] = []

    def ask(expression: str, value: str) -> None:
        asked.append((expression, value, calling_place()))

    with asked_conditions(ask):
        found = _by_torch(example, ("DraftExport",), replacing=True)
    check_program(found.program, example, drafted=True)
    decisions: list[CaptureDecision] = []
    sources = expression_sources(found.program, (expression for expression, _, _ in asked))
    for (_, value, place), source in zip(asked, sources, strict=True):
        if source:
            kind: Kind = "branch" if value in ("True", "False") else "number"
            decisions.append(decision(kind, value, place, source))
    for failure, data in draft_failures(found.program):
        if "FAKE_KERNEL" in failure:
            raise UncapturedError(f"torch has no fake of {data.get('op')}")
        if failure == "GUARD_ADDED":
            decisions.append(decision("size", str(data["expr"]), model_place(example.model), "inputs"))
    return replace(found, decisions=tuple(decisions))


def _traced(example: Example) -> Captured:
    assert isinstance(example.model, torch.nn.Module)
    program, decisions = trace(example.model, example.args, example.kwargs, example.guard)
    return Captured(program, tuple(decisions))
