"""Export, run and comparison of one model."""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from exporters._export import export, verify
from exporters._finishing.optimization import all_nodes
from exporters._report import VerificationReport
from exporters._torch.private.patching import quiet
from exporters._torch.private.trees import clone_tensors, tensor_leaves
from pyops._core.models.model import full_domain
from pyops._support.builtin_operators import is_builtin
from tests.model_coverage.inputs import SIZES
from tests.model_coverage.model import Inputs, load
from tests.model_coverage.results import Exporter, Result, Status
from tests.operator_coverage import reasons
from tests.operator_coverage.plan import TOLERANCES


def attempt(name: str, exporter: Exporter) -> Result:
    """Export, run and compare a model; errors become the result's reason.

    Dimensions that may grow are exported as dynamic. If that fails, the model is exported again at the example's size.
    """
    with warnings.catch_warnings(), torch.no_grad(), quiet():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            model, inputs_of = load()[name].make()
            model.eval().requires_grad_(False)
            samples = [inputs_of(size) for size in SIZES]
            found = [_call(model, sample) for sample in (*samples, samples[-1])]
        except ImportError as error:
            return Result(Status.MISSING, reason=reasons.one_line(error))
        except Exception as error:  # torch or the model's own code may raise anything
            return Result(Status.UNUSABLE, reason=reasons.one_line(error))
        if not _agree(*found[-2:]):
            return Result(Status.UNUSABLE, reason="two runs of it differ: it draws random numbers")
        dynamic = dynamic_shapes(*samples)
        if dynamic is None:
            return _exported(model, exporter, samples[:1], {})
        result = _exported(model, exporter, samples, {"dynamic_shapes": dynamic})
        if result.status is not Status.FAILED:
            return result
        fixed = _exported(model, exporter, samples[:1], {})
        if fixed.status is Status.FAILED:
            return fixed
        return replace(fixed, status=Status.FIXED, kind=result.kind, reason=result.reason)


def _agree(result: Any, again: Any) -> bool:
    """Return whether two runs of a model give the same values."""
    pairs = list(zip(tensor_leaves(result), tensor_leaves(again), strict=False))
    rtol, atol = TOLERANCES[torch.float32]
    return all(a.shape == b.shape and a.allclose(b, rtol, atol, equal_nan=True) for a, b in pairs if _is_inexact(a))


def _is_inexact(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def dynamic_shapes(inputs: Inputs, others: Inputs) -> Any:
    """Return dynamic shapes for the dimensions in which two inputs differ, or None if there are none."""
    flat, spec = torch.utils._pytree.tree_flatten(inputs)
    flat_others, _ = torch.utils._pytree.tree_flatten(others)
    found = [
        {i: torch.export.Dim.AUTO for i, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if a != b}
        if isinstance(x, torch.Tensor)
        else None
        for x, y in zip(flat, flat_others, strict=True)
    ]
    return torch.utils._pytree.tree_unflatten(found, spec) if any(found) else None


def _exported(model: torch.nn.Module, exporter: Exporter, samples: list[Inputs], shapes: dict[str, Any]) -> Result:
    begin = time.process_time()
    positional, keywords = _split(clone_tensors(samples[0]))
    try:
        program = _exporter(exporter)(model, positional, kwargs=keywords, verbose=False, **shapes)
    except Exception as error:  # any error counts as a failure of the model
        return Result(Status.FAILED, reasons.of_export(error), reasons.one_line(error))
    seconds = round(time.process_time() - begin, 1)
    nodes = list(all_nodes(program.model))
    own = [node for node in nodes if not is_builtin(full_domain(node.domain), node.op_type)]
    custom = dict(Counter(f"{node.domain}::{node.op_type}" for node in own))
    decisions = len(getattr(program, "decisions", ()))  # torch's program has none
    result = Result(Status.FAILED, nodes=len(nodes), custom_nodes=custom, decisions=decisions, seconds=seconds)
    reports: list[VerificationReport] = []
    for sample, reproduced in zip(samples, (Status.FIXED, Status.DYNAMIC), strict=False):
        given, named = _split(sample)
        try:
            report = verify(model, given, program, kwargs=named, tolerances=TOLERANCES)
        except Exception as error:  # a kernel may raise anything
            return replace(result, kind=reasons.Kind.RUNTIME, reason=reasons.one_line(error))
        if not report.ok:
            kind, reason = reasons.of_report(report)
            wrong = _difference([report]) if result.status is Status.FAILED else result.difference
            return replace(result, difference=wrong, kind=kind, reason=reason)
        reports.append(report)
        result = replace(result, status=reproduced, difference=_difference(reports))
        if reproduced is Status.FIXED and exporter is Exporter.OURS:
            result = replace(result, counterparts=_counterparts(model, program, sample))
        if reproduced is Status.FIXED and (reason := _wrong_at_other_values(model, program, sample)):
            return replace(result, status=Status.FAILED, kind=reasons.Kind.VALUES, reason=reason)
    return result


def _counterparts(model: torch.nn.Module, program: Any, sample: Inputs) -> str:
    """Return how many of the model's values torch has too, or the node that is called wrong, although none is."""
    given, named = _split(sample)
    try:
        location = verify(model, given, program, kwargs=named, tolerances=TOLERANCES, locate=True).location
    except Exception as error:  # a run of a part of the model may raise anything
        return reasons.one_line(error)
    assert location is not None
    return str(location.first) if location.first else f"{len(location.values) / max(1, location.steps):.0%}"


def _wrong_at_other_values(model: torch.nn.Module, program: Any, sample: Inputs) -> str | None:
    """Return how the exported model differs from torch for other values of the same sizes; None if it does not.

    A model may refuse to run where the example's decisions do not hold, and torch may reject the values.
    """
    given, named = _split(torch.utils._pytree.tree_map_only(torch.Tensor, _varied, sample))
    with contextlib.suppress(Exception):
        report = verify(model, given, program, kwargs=named, tolerances=TOLERANCES)
        if not report.ok:
            return f"at other values of the example's sizes: {reasons.of_report(report)[1]}"
    return None


def _varied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with other values of the same kind: numbers between half and one and a half times as large."""
    if not _is_inexact(tensor):
        return tensor.roll(1, -1) if tensor.dim() else tensor
    generator = torch.Generator().manual_seed(1)
    return tensor * (0.5 + torch.rand(tensor.shape, generator=generator).to(tensor.dtype))


def arguments() -> dict[str, Any]:
    """Return the arguments of `exporters.export` with which it exports what it can."""
    return {"capture": "auto", "fallback": True}


def _exporter(exporter: Exporter) -> Callable[..., Any]:
    if exporter is Exporter.TORCH:
        return functools.partial(torch.onnx.export, dynamo=True)
    return functools.partial(export, **arguments())


def _call(model: torch.nn.Module, sample: Inputs) -> Any:
    positional, keywords = _split(clone_tensors(sample))
    return model(*positional, **keywords)


def _split(sample: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((), sample) if isinstance(sample, dict) else (sample, {})


def _difference(reports: list[VerificationReport]) -> float:
    """Return the largest difference of all outputs; NaN if an output has a NaN."""
    found = [output.absolute for report in reports for output in report.outputs]
    return next((item for item in found if item != item), max(found, default=0.0))
