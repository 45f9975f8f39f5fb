"""The export by a plan: captured, planned and lowered in one run of torch's exporter, and finished.

Another run follows only a failure: with an operator kept whole, with calls replaced on which ``torch.export`` fails,
or without translations that turned out to be wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

import torch

from pyops.errors import PyopsError

from .._capture.interception import Interception
from .._finishing import dynamo
from .._finishing.program import Model, Program, fallbacks
from .._lowering.emission import record_emission
from .._lowering.explanations import unwrapping_errors
from .._torch_private.tracing import without_dynamo
from ..errors import NoTranslationError
from . import checking
from .plan import Backends, KeptWholeError, Plan

T = TypeVar("T")


def export(
    model: Model,
    args: tuple[Any, ...],
    *,
    backends: Backends,
    verified: bool = False,
    fill_missing: bool = False,
    **arguments: Any,
) -> Program:
    """Export a model by a plan.

    Parameters
    ----------
    backends : Backends
        What may compute calls that torch's exporter cannot translate.
    verified : bool
        Compare every distinct call with ONNX Runtime, and let those that differ fall back.
    fill_missing : bool
        Compare them in sessions with ``fill_missing=True``.
    model, args, **arguments
        As for `exporters._finishing.dynamo.capture`.

    Returns
    -------
    Program
        ``program.fallbacks`` lists what fell back.

    Raises
    ------
    ExportError
        A call cannot be exported; the message says why.
    Exception
        Any error of torch's exporter that is not about an operator.
    """
    table = arguments.get("custom_translation_table") or {}

    def run(plan: Plan) -> Program:
        return dynamo.capture(model, args, plan, **arguments)

    program, plan = _attempt(lambda mode: Plan(backends, table, mode), run, model)
    if verified:
        passed: dict[str, Any] = {name: arguments.get(name) for name in ("opset_version", "custom_translation_table")}
        passed |= {"backends": Backends(backends.kernels, torch=False), "optimize": arguments.get("optimize", True)}
        alone = functools.partial(export, **passed)
        plan.findings = checking.findings(plan, args, arguments.get("kwargs") or {}, alone, fill_missing)
        if plan.findings:
            program = _repeated(plan, run)
    program.fallbacks = fallbacks(plan.decisions)
    program.conditions = tuple(plan.interception.conditions)
    return program


def planned(
    model: Model, args: tuple[Any, ...], make_plan: Callable[[Interception], Plan], arguments: Mapping[str, Any]
) -> Plan:
    """Return the plan of an export that is not finished; it includes the calls that nothing translates.

    Parameters
    ----------
    make_plan : callable
        Makes a plan with ``explaining=True`` for each attempt.
    """

    def run(plan: Plan) -> None:
        with unwrapping_errors(), record_emission():
            dynamo.lower(model, args, plan, arguments)

    return _attempt(make_plan, run, model)[1]


def _attempt(make_plan: Callable[[Interception], Plan], run: Callable[[Plan], T], model: Model) -> tuple[T, Plan]:
    """Run an export, and after a failure again, with calls replaced on which ``torch.export`` fails."""
    failures: list[tuple[bool, Exception]] = []
    done: tuple[T, Plan] | None = None
    for replacing in (False, True):
        plan = make_plan(Interception(replacing))
        last = replacing or plan.backends == Backends(kernels=False, torch=False)
        try:
            # TorchDynamo is slow, and does not see the replacements, so it runs only once.
            with nullcontext() if last else without_dynamo():
                result = _repeated(plan, run)
        except Exception as error:  # torch or the model's own code may raise anything
            if _is_users(error):
                raise
            failures.append((plan.captured is not None, error))
        else:
            if done is None or plan.interception.replaced:
                done = result, plan
            if all(item.by != "nothing" for item in plan.decisions):
                break
        if last or isinstance(model, torch.export.ExportedProgram):
            break
    if done is not None:
        return done
    # An error of the lowering says more than one of the capture.
    raise max(failures, key=lambda failure: failure[0])[1]


def _repeated(plan: Plan, run: Callable[[Plan], T]) -> T:
    """Run an export, and again each time that the plan keeps another operator whole."""
    while True:
        plan.interception.capturing = True
        try:
            with plan.interception:
                return run(plan)
        except KeptWholeError:
            continue


def _is_users(error: Exception) -> bool:
    """Return whether the user's registration raised the error, or it is about the arguments."""
    return isinstance(error, PyopsError) and error.__cause__ is None and not isinstance(error, NoTranslationError)
