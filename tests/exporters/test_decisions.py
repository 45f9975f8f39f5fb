"""The decisions of a capture are complete, and each is guarded, for models of the kinds that people write."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import exporters
from exporters import CaptureWarning
from tests.exporters import deciding_models
from tests.exporters.deciding_models import DECIDING, Deciding
from tests.helpers.tiers import exhaustive

QUICK = {"early exit", "crop", "same as another"}

DYNAMIC = {
    "bins up to the largest",
    "count as a tensor",
    "crop",
    "packed sequences",
    "padding to the longest",
    "range of a quantizer",
}
"""Models whose numbers ``torch.export`` keeps as numbers that a run tells."""


def export(case: Deciding, args: tuple[Any, ...], **arguments: Any) -> exporters.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        return exporters.export(case.model(), args, verbose=False, **arguments)


QUESTIONS = {
    torch.allclose,
    torch.equal,
    torch.Tensor.__bool__,
    torch.Tensor.__float__,
    torch.Tensor.__index__,
    torch.Tensor.__int__,
    torch.Tensor.item,
    torch.Tensor.numpy,
    torch.Tensor.tolist,
}


class Asked(TorchFunctionMode):
    """What a model asks of tensors when it runs as it is: the line, and the answer where it is one value."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, Any]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in QUESTIONS:
            self.answer(result.tolist() if func is torch.Tensor.numpy else result)
        elif func is torch.Tensor.__getitem__ and isinstance(args[1], torch.Tensor) and not args[1].dim():
            self.answer(args[1].item())  # torch asks for the index
        return result

    def answer(self, value: Any) -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_filename != deciding_models.__file__:
            frame = frame.f_back
        self.found.append((frame.f_lineno, value))


def asked(case: Deciding, args: tuple[Any, ...]) -> list[tuple[int, Any]]:
    model = case.model()
    with Asked() as mode, torch.no_grad(), contextlib.suppress(ValueError):  # the model's own
        model(*args)
    return mode.found


def shown(answers: list[tuple[int, Any]]) -> list[tuple[int, str | None]]:
    return [(line, repr(answer) if isinstance(answer, (bool, int, float)) else None) for line, answer in answers]


def listed(program: exporters.Program) -> list[tuple[int, str | None]]:
    return [
        (item.line, None if item.kind == "values" else item.value) for item in program.decisions if item.kind != "size"
    ]


DECIDED = [name if name in QUICK else exhaustive(name) for name in DECIDING if name not in DYNAMIC]


def test_there_are_enough_models():
    assert len(DECIDED) >= 30


@pytest.mark.parametrize("name", DECIDED)
def test_decisions_are_complete_and_guarded(name):
    """The export lists what the model asks of tensors when it runs as it is, and guards all of it."""
    case = DECIDING[name]
    answers = asked(case, case.args)
    program = export(case, case.args, capture="auto", guards=True)
    assert listed(program) == shown(answers)
    assert all(item.guarded and item.depends_on == "inputs" for item in program.decisions)
    assert exporters.verify(case.model(), case.args, program).ok
    with pytest.raises(Exception, match=r"as in the export, deciding_models\.py:") as caught:
        program(*case.others)
    found = re.search(r"deciding_models.py:(\d+)", str(caught.value))
    # The first answer that differs between the two runs of the model.
    pairs = zip(answers, asked(case, case.others), strict=False)
    assert int(found[1]) == next(line for (line, answer), (_, other) in pairs if answer != other)


@pytest.mark.parametrize("name", [name if name in QUICK else exhaustive(name) for name in sorted(DYNAMIC)])
def test_what_stays_dynamic_is_no_decision(name):
    case = DECIDING[name]
    program = export(case, case.args, capture="auto")
    assert program.decisions == ()
    report = exporters.verify(case.model(), program=program, samples=[case.args, case.others])
    assert report.ok, report


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in DECIDING if name != "division by zero"])  # which raises
def test_other_arguments_list_other_decisions(name):
    case = DECIDING[name]
    program = export(case, case.others, capture="trace")
    answers = asked(case, case.others)
    assert listed(program) == shown(answers)
    assert answers != asked(case, case.args)
