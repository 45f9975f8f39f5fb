"""The export by ``torch.export``, from top to bottom: capture, plan, lower, finish."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pyops._support.progress import track
from pyops.errors import PyopsError

from ._capture.capture_modes import Capture, Captured, captured, ways
from ._capture.decisions import CaptureDecision, decision, record, warn_of_decisions, warn_of_draws
from ._capture.failures import capture_failure, in_trace, is_capture_failure
from ._capture.graph_calls import random_calls
from ._capture.preparation import Example, prepared
from ._capture.sizes import SizeCondition, fixed_sizes, model_place, recorded_conditions, size_conditions, size_names
from ._finishing.finish import Finishing, finish
from ._finishing.size_checks import add_size_checks
from ._lowering.emission_record import Emission
from ._lowering.lower import lower, unwrapped
from ._plan import call_verification
from ._plan.plan import Plan
from ._plan.reasons import Finding, fallbacks
from ._program import Program
from ._torch.private.onnx_exporter import record_strategy, report_failure
from .errors import CaptureError, NoTranslationError


@dataclass(frozen=True)
class Request:
    """What an export is asked for.

    Attributes
    ----------
    kernels : bool
        Let the ops of `pyops.kernels` compute calls.
    fallback : bool
        Let nodes that call torch compute them.
    arguments : mapping
        As for ``torch.onnx.export``.
    compared : bool
        Compare what is captured with the model for the example arguments.
    verified : bool
        Compare every distinct call with ONNX Runtime, and let those that differ fall back.
    fill_missing : bool
        Compare them in sessions with ``fill_missing=True``.
    explaining : bool
        As for `Plan`.
    """

    kernels: bool
    fallback: bool
    capture: Capture
    finishing: Finishing
    arguments: Mapping[str, Any]
    compared: bool = False
    verified: bool = False
    fill_missing: bool = False
    explaining: bool = False


@dataclass
class Lowered:
    """A captured model, its plan, what torch's exporter makes of it by the plan, and what translations emitted."""

    captured: Captured
    plan: Plan
    exported: torch.onnx.ONNXProgram
    emitted: Emission
    conditions: list[SizeCondition]


def export(example: Example, request: Request) -> Program:
    """Export a model; raise what `exporters.export` does."""
    with prepared(example) as example:
        lowered = capture_and_lower(example, request)
        if request.verified:
            lowered.plan.findings = _findings(lowered.plan, example, request)
            if lowered.plan.findings:
                lowered = _lowered(lowered.captured, lowered.plan, request)
    model, graph = lowered.exported.model, lowered.exported.exported_program
    assert graph is not None
    finish(model, graph, lowered.emitted, request.finishing)
    program = Program(model, graph)
    record_strategy(program, lowered.captured.strategy)
    program.captured, program.unverified = lowered.captured.program, lowered.captured.unverified
    program.fallbacks = fallbacks(lowered.plan.decisions)
    program.decisions = (*_enforced_sizes(program, example, lowered.conditions), *lowered.captured.decisions)
    if program.decisions:
        record(model, program.decisions)
        warn_of_decisions(program.decisions)
    if calls := random_calls(graph):
        warn_of_draws(calls)
    return program


def capture_and_lower(example: Example, request: Request) -> Lowered:
    """Capture a model in the first way whose graph can be lowered, plan what translates its calls, and lower it.

    Raises
    ------
    CaptureError
        The model cannot be captured; the message names the line.
    ExportError
        A call cannot be exported; the message says why.
    Exception
        Whatever else torch's exporter or a translation raises.
    """
    failures: list[tuple[int, Exception]] = []
    done: Lowered | None = None
    stops = False
    for number, way in enumerate(ways(example, request.capture, request.kernels or request.fallback)):
        if stops and way.fixes_values:
            break
        graph: Captured | None = None
        try:
            graph = captured(way, example, request.compared)
            table = request.arguments.get("custom_translation_table") or {}
            plan = Plan(graph.program, request.kernels, request.fallback, table, request.explaining)
            lowered = _lowered(graph, plan, request)
        except Exception as error:  # torch or the model's own code may raise anything
            failure = unwrapped(error)
            if isinstance(failure, CaptureError) and is_capture_failure(error):
                failure = error  # which has the line
            stops |= not (way.fixes_values or is_capture_failure(failure))
            # An error of the lowering says more than one of the capture, and a later one than an earlier one.
            failures.append((number if way.fixes_values else int(graph is not None), failure))
            if _is_users(failure):
                failures, done = failures[-1:], None
                break
            continue
        if done is None or graph.has_replaced_calls:
            done = lowered
        if all(item.by != "unsupported" for item in lowered.plan.decisions):
            break
    if done is not None:
        return done
    _, failure = max(reversed(failures), key=lambda item: item[0])
    if is_capture_failure(failure) or (request.capture != "export" and in_trace(failure)):
        failure = capture_failure(failure, request.capture)
        if request.arguments.get("report"):
            report_failure(failure, request.arguments.get("artifacts_dir", "."))
    raise failure


def _lowered(graph: Captured, plan: Plan, request: Request) -> Lowered:
    with recorded_conditions() as asked:
        exported, emitted = lower(graph.program, plan, request.arguments)
    return Lowered(graph, plan, exported, emitted, list(dict.fromkeys((*graph.conditions, *asked))))


def _is_users(error: Exception) -> bool:
    """Return whether the user's registration raised the error, or it is about the arguments."""
    ours = isinstance(error, PyopsError) and error.__cause__ is None and not isinstance(error, NoTranslationError)
    return ours and not is_capture_failure(error)


def _findings(plan: Plan, example: Example, request: Request) -> dict[call_verification.Place, Finding]:
    """Return what is wrong with the translations of a plan, by captured call and operator; correct ones are left out.

    Every distinct call is exported alone, by such a plan without fallbacks.
    """
    passed = {name: request.arguments.get(name) for name in ("opset_version", "custom_translation_table")}
    alone = Request(request.kernels, False, "export", Finishing(optimize=request.finishing.optimize), passed)
    found: dict[call_verification.Place, Finding] = {}
    with warnings.catch_warnings(), torch.no_grad():
        # Warnings about parts of a model, or what torch decomposes it into, do not concern the user.
        warnings.simplefilter("ignore")
        for call in track(call_verification.distinct_calls(plan, example.args, example.kwargs), "checking calls"):
            try:
                finding = call_verification.compared(call, export(call.example, alone), request.fill_missing)
            except Exception as error:  # the error is the finding
                finding = call_verification.failed(error)
            if finding is not None:
                found |= {(name, call.target): finding for name in call.names}
    return found


def _enforced_sizes(program: Program, example: Example, asked: Iterable[SizeCondition]) -> Iterator[CaptureDecision]:
    """Name the sizes of a program's inputs, let it check the conditions that held, and yield a decision for each."""
    graph = program.exported_program
    if not isinstance(example.model, torch.nn.Module) or graph is None:
        return
    program.rename_axes(size_names(graph, *example.of_torch))
    fixed = fixed_sizes(graph, *example.of_torch)
    place = model_place(example.model)
    yield from (decision("size", text, place, "inputs", guarded=True) for text in fixed)
    conditions = [item for item in size_conditions(graph, asked) if item.text not in fixed]
    checked = add_size_checks(program.model, conditions) if conditions else []
    yield from (decision("size", item.text, item.place, "inputs", guarded=item in checked) for item in conditions)
