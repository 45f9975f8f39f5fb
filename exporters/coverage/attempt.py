"""One call, from torch through the exporter to ONNX Runtime."""

from __future__ import annotations

import logging
import time
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from .._torch_private import clone_tensors, flatten
from ..export import export
from ..program import Program
from ..report import OutputReport
from ..tensors import TORCH_DTYPES
from ..verify import verify
from . import reasons
from .chance import chance
from .plan import TOLERANCES, Plan
from .resizing import dynamic_shapes, resized
from .results import Result, Status
from .samples import Database, Sample

_DTYPES = {theirs: ours for ours, theirs in TORCH_DTYPES.items()}


def attempt(database: Database, plan: Plan, op: str, index: int) -> Result:
    """Try one sample of one operator."""
    begin = time.perf_counter()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.getLogger("torch").setLevel(logging.CRITICAL)
        result = _attempt(database, plan, Result(op, index, Status.REPRODUCED))
    return replace(result, seconds=round(time.perf_counter() - begin, 2))


def _attempt(database: Database, plan: Plan, result: Result) -> Result:
    try:
        sample = database.sample(result.op, plan.dtype, result.sample)
        if sample is None:
            return replace(result, status=Status.ABSENT)
        problem = _unusable(sample)
    except Exception as error:  # whatever torch or the sample's own code raises
        problem = f"torch does not run it: {reasons.one_line(error)}"
    if problem:
        return replace(result, status=Status.UNUSABLE, reason=problem)
    assert sample is not None
    try:
        program = _export(sample, plan)
    except Exception as error:
        return _failed(result, reasons.of_export(error), reasons.one_line(error))
    return _compared(replace(result, fallbacks=_fallbacks(program)), sample, program, plan)


def _unusable(sample: Sample) -> str:
    if not sample.tensors:
        return "it takes no tensor"
    returned = flatten(sample.module(*clone_tensors(sample.tensors)))
    return "" if any(isinstance(leaf, torch.Tensor) for leaf in returned) else "it returns no tensor"


def _export(sample: Sample, plan: Plan) -> Program:
    shapes: dict[str, Any] = {"dynamic_shapes": dynamic_shapes(sample)} if plan.dynamic else {}
    return export(sample.module, clone_tensors(sample.tensors), verbose=False, **shapes, **plan.mode.arguments)


def _compared(result: Result, sample: Sample, program: Program, plan: Plan) -> Result:
    tensors: tuple[torch.Tensor, ...] | None = sample.tensors
    if plan.dynamic:
        assert program.exported_program is not None
        tensors = resized(sample, program.exported_program)
    if tensors is None:
        return replace(result, status=Status.FIXED, reason="torch takes no other size, or the capture admits none")
    allowed = {_DTYPES[dtype]: pair for dtype, pair in TOLERANCES.items()}
    try:
        report = verify(sample.module, tensors, program, tolerances=allowed)
    except Exception as error:
        return _failed(result, reasons.Kind.RUNTIME, reasons.one_line(error))
    undecided = chance(sample)
    if undecided and not any(map(_mismatched, report.outputs)):
        return replace(result, status=Status(undecided))
    return result if report.ok else _failed(result, *reasons.of_report(report))


def _failed(result: Result, kind: reasons.Kind, reason: str) -> Result:
    return replace(result, status=Status.FAILED, kind=kind, reason=reason)


def _mismatched(output: OutputReport) -> bool:
    return bool(output.problem)


def _fallbacks(program: Program) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for item in program.fallbacks:
        counts[item.operator] += item.count
    return dict(counts)
