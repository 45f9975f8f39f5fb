"""The plan of an export as a report: what exports each torch operator of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pyops._support.progress import progress

from ._capture.capture_modes import Capture, check_capture
from ._capture.failures import place_of_failure, summary
from ._capture.graph_calls import format_place, source_line
from ._capture.interception import target_of
from ._capture.model_arguments import as_tuple, check_model, split_arguments
from ._capture.preparation import Example, Model, check_example, prepared
from ._finishing.finish import Finishing
from ._lowering.lower import explain_error
from ._pipeline import Request, capture_and_lower
from ._plan.plan import Plan
from ._plan.reasons import Decision, functional_operator
from ._report import By, OperatorSupport, SupportReport
from ._torch.private.operators import qualified_name
from ._torch.private.patching import one_at_a_time, quiet
from .errors import CaptureError, causes

_RANK: tuple[By, ...] = ("torch", "registration", "kernel", "fallback", "unsupported")


@one_at_a_time
@quiet()
@progress("explaining what exports the model")
def explain(
    model: Model,
    args: tuple[Any, ...] | torch.Tensor = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    kernels: bool = True,
    capture: Capture = "export",
) -> SupportReport:
    """Report what exports each torch operator of a model: torch, a registration, a kernel, a fallback or nothing.

    The model is captured and its calls are translated as by ``export(..., fallback=True)``; the result is discarded. An
    operator is reported as torch's if torch's translation accepts the calls; ``export(..., fallback="verify")`` also
    checks that their values are right.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        Call ``model.eval()`` first.
    args : tuple or torch.Tensor
        Example arguments; a tensor is the only one.
    kwargs, dynamic_shapes, custom_translation_table, kernels, capture
        As for `export`.

    Returns
    -------
    SupportReport
        One entry per operator that the model's code calls, not per operator that torch decomposes it into; shown
        as a table. If ``torch.export`` cannot capture the model, or torch's exporter fails before it translates
        anything, the report is empty and its `problem` says why.

    Raises
    ------
    ExportError
        `model` is not a model; it does not take the arguments; `dynamic_shapes` does not match them; or `capture` is
        unknown or does not apply to the model.

    Examples
    --------
    >>> import exporters, torch
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.lgamma(torch.relu(x))
    >>> [(item.operator, item.by) for item in exporters.explain(Model().eval(), (torch.ones(2),))]
    [('aten::relu', 'torch'), ('aten::lgamma', 'kernel')]
    """
    check_model("explain", model)
    args = as_tuple("explain", args)
    check_capture(capture, model)
    args, keywords = split_arguments(model, args, kwargs)
    example = Example(model, args, keywords, dynamic_shapes)
    check_example(example)
    table = {"custom_translation_table": custom_translation_table or {}}
    request = Request(kernels, True, capture, Finishing(), table, compared=True, explaining=True)
    try:
        with prepared(example) as example:
            plan = capture_and_lower(example, request).plan
    except CaptureError as error:
        return SupportReport([], str(error))
    except Exception as error:  # torch or the model's own code may raise anything
        return SupportReport([], f"torch's exporter stops before it translates anything: {_describe_error(error)}")
    return SupportReport(_supports(plan))


def _supports(plan: Plan) -> list[OperatorSupport]:
    """Return the decisions of a plan by operator, in the order in which the model's code calls the operators."""
    parts: dict[str, list[Decision]] = {}
    for item in plan.decisions:
        parts.setdefault(item.call, []).append(item)
    found: dict[tuple[str, By, str], list[str]] = {}
    for call, node in plan.calls.items():
        name = qualified_name(functional_operator(target_of(node)) or target_of(node))
        found.setdefault((name, *_summary(name, parts.pop(call, []))), []).append(source_line(node))
    for item in (item for items in parts.values() for item in items if item.by == "unsupported"):
        found.setdefault((item.operator, item.by, item.reason), []).append(item.source)
    return [
        OperatorSupport(operator, len(lines), by, reason, tuple(dict.fromkeys(filter(None, lines))))
        for (operator, by, reason), lines in found.items()
    ]


def _summary(operator: str, parts: list[Decision]) -> tuple[By, str]:
    """Return what exports a call, by the decisions for the parts into which torch decomposes it, and why."""
    if not parts:
        return "torch", ""
    hardest = max(parts, key=lambda item: _RANK.index(item.by))
    if hardest.operator == operator or hardest.by in ("torch", "fallback"):
        return hardest.by, hardest.reason
    made = f"torch decomposes it into {hardest.operator}"
    return hardest.by, f"{made}; {hardest.reason}" if hardest.by == "unsupported" else made


def _describe_error(error: Exception) -> str:
    """Return an explanation of an exception, or its message with the line of the model's code that caused it."""
    meaning = explain_error(error)
    if meaning is not None:
        return str(meaning)
    errors = list(causes(error))
    place = format_place(place_of_failure(errors))
    return summary(errors[-1]) + (f" ({place})" if place else "")
