"""The decisions of a capture are true and complete, and each is guarded, for models of the kinds that people write."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import exporters
from exporters import CaptureWarning
from tests.exporters._capture import capture_models, deciding_models
from tests.exporters._capture.deciding_models import DECIDING, Deciding
from tests.exporters._capture.test_capture import CASES
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


FILES = (deciding_models.__file__, capture_models.__file__)

QUESTIONS = {
    torch.allclose,
    torch.equal,
    torch.Tensor.__bool__,
    torch.Tensor.__dlpack__,
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
        self.computed: list[tuple[int, Any]] = []
        """What each call of torch returned."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.computed.append((self.line(), result))
        if func in QUESTIONS:
            self.answer(result if isinstance(result, (bool, int, float)) else args[0].detach().clone())
        elif func is torch.Tensor.__getitem__ and isinstance(args[1], torch.Tensor) and not args[1].dim():
            self.answer(args[1].item())  # torch asks for the index
        return result

    def answer(self, value: Any) -> None:
        self.found.append((self.line(), value))

    def line(self) -> int:
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in FILES:
            frame = frame.f_back
        return frame.f_lineno if frame else 0


def run(model: torch.nn.Module, args: tuple[Any, ...]) -> Asked:
    with Asked() as mode, torch.no_grad(), contextlib.suppress(ValueError):  # the model's own
        model(*args)
    return mode


def asked(case: Deciding, args: tuple[Any, ...]) -> list[tuple[int, Any]]:
    return run(case.model(), args).found


def shown(answers: list[tuple[int, Any]]) -> list[tuple[int, str | None]]:
    return [(line, repr(answer) if isinstance(answer, (bool, int, float)) else None) for line, answer in answers]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and one == other


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
    assert int(found[1]) == next(line for (line, answer), (_, other) in pairs if not same(answer, other))


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
    answers, others = asked(case, case.others), asked(case, case.args)
    assert listed(program) == shown(answers)
    assert len(answers) != len(others) or not all(same(a, b) for (_, a), (_, b) in zip(answers, others, strict=True))


@functools.cache
def bodies(file: str) -> dict[int, range]:
    """Return the lines of the body of each condition in a file, by the line of the condition; negations have none."""
    nodes = [item for item in ast.walk(ast.parse(Path(file).read_text())) if isinstance(item, (ast.If, ast.While))]
    nodes = [item for item in nodes if not isinstance(item.test, ast.UnaryOp)]
    found = {item.lineno: range(item.body[0].lineno, (item.body[-1].end_lineno or 0) + 1) for item in nodes}
    return {line: body for line, body in found.items() if line not in body}


def ways(function: Callable[[], Any]) -> Counter[tuple[str, int, bool]]:
    """Return how often the body of each condition ran next, and how often it did not, by Python's own trace."""
    found: Counter[tuple[str, int, bool]] = Counter()
    last: dict[Any, int] = {}

    def follow(frame: Any, event: str, arg: Any) -> Any:
        file, line = frame.f_code.co_filename, last.get(frame, 0)
        if event in ("line", "return") and line in bodies(file):
            found[file, line, event == "line" and frame.f_lineno in bodies(file)[line]] += 1
        last[frame] = frame.f_lineno
        return follow

    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: follow if frame.f_code.co_filename in FILES else None)
    try:
        with torch.no_grad(), contextlib.suppress(ValueError):
            function()
    finally:
        sys.settrace(before)
    return found


def spelled(result: Any, of_size: bool = False) -> str:
    if isinstance(result, (tuple, list)):
        return " and ".join(spelled(item, of_size) for item in result)
    if not isinstance(result, torch.Tensor):
        return repr(result)
    if not of_size and result.numel() <= 8 and not result.is_floating_point():
        return repr(result.tolist())
    return f"{str(result.dtype).removeprefix('torch.')}{list(result.shape)}"


MODELS = {
    **{name: (case.model(), case.args) for name, case in DECIDING.items()},
    **{n: c[:2] for n, c in CASES.items()},
}
SEEN = {"early exit", "clusters", "while", "one element", "rows", "numpy", "loop over a buffer", "list of sizes"}


@pytest.mark.parametrize("capture", ["auto", "trace"])
@pytest.mark.parametrize("name", [name if name in SEEN else exhaustive(name) for name in MODELS])
def test_no_decision_is_false(name, capture):
    """Each is what a run of the model, as it is, does at that line for the example."""
    model, args = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        decisions = exporters.export(model, args, verbose=False, capture=capture).decisions
    mode, taken = run(model, args), ways(lambda: model(*args))
    answers = Counter((line, spelled(value)) for line, value in mode.found)
    results = Counter((line, spelled(value, of_size=True)) for line, value in mode.computed)
    for item, times in Counter(decisions).items():
        assert item.file in FILES
        right = results if item.kind == "size" else answers
        if item.kind == "branch" and item.line in bodies(item.file):
            assert taken[item.file, item.line, item.value == "True"] > 0, item
        elif item.kind == "number":  # a draft export lists the line that uses it
            assert float(item.value) in [value for _, value in mode.found if isinstance(value, (int, float))], item
        else:
            assert right[item.line, item.value] >= times, item
