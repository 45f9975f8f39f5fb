"""The ways of capturing a model, from one that changes nothing to a trace of the example arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

import torch

from .._torch_private.operators import OpOverload
from .._torch_private.patching import quiet
from .._torch_private.tracing import asked_conditions, capturing_by, draft_failures
from .._torch_private.trees import clone_tensors, tensor_leaves
from ..errors import ExportError
from .calls import Place, calling_place
from .decisions import CaptureDecision, Kind, decision
from .failures import asks_for_gradients, capture_failure, check_arguments, in_trace, is_capture_failure
from .known_state import known_state
from .preparation import prepared, separated, unchanged_attributes, unmarked
from .sizes import check_dynamic_shapes, model_place
from .sources import expression_sources
from .trace import trace

Capture = Literal["export", "trace", "auto"]

Model = torch.nn.Module | torch.export.ExportedProgram

T = TypeVar("T")


def check_capture(capture: Any, model: Model, dynamo: bool = True, guards: bool = False) -> None:
    """Raise ExportError if a way of capturing does not exist, or not for this model and exporter."""
    if capture not in get_args(Capture):
        raise ExportError(f'capture is {capture!r}; expected "export", "trace" or "auto"')
    if guards and capture == "export":
        raise ExportError(
            'guards=True guards values that a trace fixes, and capture="export" makes no trace; pass capture="auto" or '
            'capture="trace"'
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


def check_example(
    model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any = None
) -> None:
    """Raise ExportError if a module does not take the example arguments, or `dynamic_shapes` does not match them."""
    if isinstance(model, torch.nn.Module):
        check_arguments(model, args, kwargs or {})
        check_dynamic_shapes(model, args, kwargs or {}, dynamic_shapes)


def captured(
    run: Callable[..., T],
    model: Model,
    args: tuple[Any, ...],
    arguments: Mapping[str, Any],
    capture: Capture = "export",
    guard: OpOverload | None = None,
) -> tuple[T, tuple[CaptureDecision, ...]]:
    """Export a model, captured in the first way that succeeds.

    Parameters
    ----------
    run : callable
        Exports ``(model, args, **arguments)``. It also takes a captured program as the model.
    guard : OpOverload, optional
        As for `trace.trace`.

    Returns
    -------
    tuple
        What `run` returns, and what the capture fixed.

    Raises
    ------
    ExportError
        The model cannot be captured; the message names the line.
    Exception
        Whatever else `run` raises.
    """
    kwargs = arguments.get("kwargs") or {}

    def run_unmarked(model: Model, args: tuple[Any, ...], **arguments: Any) -> T:
        with unmarked((args, arguments["kwargs"])):
            return run(model, args, **arguments)

    for gradients in (False, True):
        with prepared(model, args, kwargs), torch.set_grad_enabled(gradients):
            args, kwargs = separated(model, (args, kwargs))
            arguments = {**arguments, "kwargs": kwargs}
            try:
                if capture == "export" or not isinstance(model, torch.nn.Module):
                    return run_unmarked(model, args, **arguments), ()
                return _first(run_unmarked, model, args, arguments, capture, guard)
            except Exception as error:  # the model's code may raise anything
                if not is_capture_failure(error) and (capture == "export" or not in_trace(error)):
                    raise
                failure = capture_failure(error, capture)
                if not asks_for_gradients(error):
                    break
    raise failure


def _first(
    run: Callable[..., T],
    model: torch.nn.Module,
    args: tuple[Any, ...],
    arguments: Mapping[str, Any],
    capture: Capture,
    guard: OpOverload | None,
) -> tuple[T, tuple[CaptureDecision, ...]]:
    """Return what `run` returns with the first way of capturing that succeeds, and what that way fixed."""
    if capture == "auto":
        attempts: list[Callable[..., tuple[T, tuple[CaptureDecision, ...]]]] = [_exported, _with_known_state]
        # The conditions that a draft export fixes are on sizes and numbers, not on tensors that a guard could read.
        attempts += [] if guard else [_drafted]
        for attempt in attempts:
            with quiet(), unchanged_attributes(model), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    return attempt(run, model, args, arguments)
                except Exception as error:  # the model's code may raise anything
                    if attempt is _exported and not is_capture_failure(error):
                        raise
    kwargs = arguments.get("kwargs") or {}
    program, decisions = trace(model, args, kwargs, guard)
    result = run(program, (), **{**arguments, "kwargs": None, "dynamic_shapes": None})
    return result, tuple(decisions)


class _UncapturedError(Exception):
    """A way of capturing failed."""


def _exported(
    run: Callable[..., T], model: torch.nn.Module, args: tuple[Any, ...], arguments: Mapping[str, Any]
) -> tuple[T, tuple[CaptureDecision, ...]]:
    return run(model, args, **arguments), ()


def _with_known_state(
    run: Callable[..., T], model: torch.nn.Module, args: tuple[Any, ...], arguments: Mapping[str, Any]
) -> tuple[T, tuple[CaptureDecision, ...]]:
    with known_state(model) as decisions:
        result = run(model, args, **arguments)
    return result, tuple(decisions)


def _drafted(
    run: Callable[..., T], model: torch.nn.Module, args: tuple[Any, ...], arguments: Mapping[str, Any]
) -> tuple[T, tuple[CaptureDecision, ...]]:
    """Export by ``torch.export.draft_export``, which takes a condition that it cannot prove to be as in the example."""
    asked: list[tuple[str, str, Place]] = []

    def ask(expression: str, value: str) -> None:
        asked.append((expression, value, calling_place()))

    with asked_conditions(ask), capturing_by("draft_export", asked.clear) as programs:
        result = run(model, args, **arguments)
    _check_example(programs[0], model, args, arguments["kwargs"])
    decisions: list[CaptureDecision] = []
    sources = expression_sources(programs[0], (expression for expression, _, _ in asked))
    for (_, value, place), source in zip(asked, sources, strict=True):
        if source:
            kind: Kind = "branch" if value in ("True", "False") else "number"
            decisions.append(decision(kind, value, place, source))
    for failure, found in draft_failures(programs[0]):
        if "FAKE_KERNEL" in failure:
            raise _UncapturedError(f"torch has no fake of {found.get('op')}")
        if failure == "GUARD_ADDED":
            decisions.append(decision("size", str(found["expr"]), model_place(model), "inputs"))
    return result, tuple(decisions)


def _check_example(
    program: torch.export.ExportedProgram, model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise an exception if a captured program does not compute what the model does for the example arguments.

    A draft export decides by values that it computes itself, which may be wrong. The program asserts what it decided.
    """
    computed = []
    for run in (model, program.module()):
        with unchanged_attributes(model), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            computed.append(clone_tensors(tensor_leaves(run(*clone_tensors(args), **clone_tensors(dict(kwargs))))))
    for expected, found in zip(*computed, strict=True):
        # Values of different branches differ by more.
        rtol, atol = (1e-3, 1e-4) if expected.dtype.is_floating_point or expected.dtype.is_complex else (0, 0)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
