"""Export, run and comparison of one sample call."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from exporters._capture.model_arguments import to_onnx_inputs, to_onnx_outputs
from exporters._export import export, verify
from exporters._finishing.optimization import all_nodes
from exporters._program import Program
from exporters._report import VerificationReport, compare
from exporters._torch.private.patching import quiet
from exporters._torch.private.trees import clone_tensors, tensor_leaves
from exporters._torch.single_call import SingleCall
from exporters._torch.tensors import numpy_dtype
from pyops._core.models.model import full_domain
from pyops._support.builtin_operators import is_builtin
from tests.operator_coverage import reasons
from tests.operator_coverage.chance import chance
from tests.operator_coverage.plan import MODES, TOLERANCES, Mode, Plan
from tests.operator_coverage.results import Result, Status
from tests.operator_coverage.samples import Database
from tests.operator_coverage.without_torch import run_without_torch


def attempt(database: Database, plan: Plan, op: str, index: int) -> Result:
    """Export, run and compare one sample of one operator; errors become the result's reason."""
    begin = time.perf_counter()
    with warnings.catch_warnings(), torch.no_grad(), quiet():
        warnings.simplefilter("ignore")
        result = _attempt(database, plan, Result(op, index, Status.REPRODUCED))
    return replace(result, seconds=round(time.perf_counter() - begin, 2))


def _attempt(database: Database, plan: Plan, result: Result) -> Result:
    try:
        sample = _sample(database, plan, result)
        if sample is None:
            return replace(result, status=Status.ABSENT)
        problem = _unusable(sample)
    except Exception as error:  # torch or the sample's own code may raise anything
        problem = f"torch does not run it: {reasons.one_line(error)}"
    if problem:
        return replace(result, status=Status.UNUSABLE, reason=problem)
    assert sample is not None
    try:
        program = _export(sample, plan)
    except Exception as error:  # any error counts as a failure of the call
        return _failed(result, reasons.of_export(error), reasons.one_line(error))
    result = replace(result, custom_nodes=_custom_nodes(program))
    if not plan.dynamic:
        return _compared(result, sample, sample.tensors, program, plan)
    if not is_resizable(sample):
        result = _compared(result, sample, sample.tensors, program, plan)
        return replace(result, status=Status.FIXED) if result.status is Status.REPRODUCED else result
    assert program.exported_program is not None
    tensors = sample.resized(program.exported_program)
    if tensors is None:
        return _failed(result, reasons.Kind.SIZE, "torch takes it at another size too, and what was captured does not")
    return _compared(result, sample, tensors, program, plan)


def is_resizable(sample: SingleCall) -> bool:
    """Return whether torch accepts the call at another size."""
    return next(sample.other_sizes(), None) is not None


def dynamic_shapes(sample: SingleCall) -> Any:
    """Return dynamic shapes in which every dimension is dynamic if torch finds that it can be."""
    auto = torch.export.Dim.AUTO
    return (tuple(dict.fromkeys(range(tensor.dim()), auto) for tensor in sample.tensors),)


def _sample(database: Database, plan: Plan, result: Result) -> SingleCall | None:
    """Return the sample with the result's index, or None.

    In a run with dynamic dimensions, only samples that torch accepts at another size count, if there are any.
    """
    wanted = (result.op, plan.dtype)
    if plan.dynamic and database.sample(*wanted, fits=is_resizable):
        return database.sample(*wanted, result.sample, is_resizable)
    return database.sample(*wanted, result.sample)


def _unusable(sample: SingleCall) -> str:
    if not sample.tensors:
        return "it takes no tensor"
    return "" if tensor_leaves(sample(*clone_tensors(sample.tensors))) else "it returns no tensor"


def _export(sample: SingleCall, plan: Plan) -> Program:
    shapes: dict[str, Any] = {"dynamic_shapes": dynamic_shapes(sample)} if plan.dynamic else {}
    return export(sample, clone_tensors(sample.tensors), verbose=False, **shapes, **MODES[plan.mode][1])


def _compared(
    result: Result, sample: SingleCall, tensors: tuple[torch.Tensor, ...], program: Program, plan: Plan
) -> Result:
    try:
        if plan.mode is Mode.KERNELS:
            report = _compared_without_torch(sample, tensors, program)
        else:
            report = verify(sample, tensors, program, tolerances=TOLERANCES)
    except Exception as error:  # a kernel may raise anything
        return _failed(result, reasons.Kind.RUNTIME, reasons.one_line(error))
    undecided = chance(sample)
    if undecided and not any(output.problem for output in report.outputs):
        return replace(result, status=Status(undecided))
    return result if report.ok else _failed(result, *reasons.of_report(report))


def _compared_without_torch(
    sample: SingleCall, tensors: tuple[torch.Tensor, ...], program: Program
) -> VerificationReport:
    allowed = {numpy_dtype(dtype).name: pair for dtype, pair in TOLERANCES.items()}
    expected = to_onnx_outputs(sample(*clone_tensors(tensors)))
    actual = run_without_torch(program, to_onnx_inputs(program, *tensors))
    names = [item.name or "" for item in program.model.graph.outputs]
    return VerificationReport(tuple(compare(0, names, expected, actual, allowed)))


def _failed(result: Result, kind: reasons.Kind, reason: str) -> Result:
    return replace(result, status=Status.FAILED, kind=kind, reason=reason)


def _custom_nodes(program: Program) -> dict[str, int]:
    """Return the number of nodes of each operator that neither ONNX nor ONNX Runtime has."""
    nodes = [node for node in all_nodes(program.model) if not is_builtin(full_domain(node.domain), node.op_type)]
    return dict(Counter(f"{node.domain}::{node.op_type}" for node in nodes))
