"""`pyops.testing.check`: a call, and its report."""

from __future__ import annotations

import inspect
import logging
import pickle
import re
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyops import Op, onnx_op
from pyops.errors import InputError, RedeclarationWarning
from pyops.testing import CHECKS, CheckError, CheckReport, Sample, check
from tests.helpers import op_db
from tests.helpers.scripts import run_plain_script
from tests.project.test_imports import BLOCK
from tests.pyops.testing.halving import F32, WITHOUT_TORCH, X, declare_halve, halve


@pytest.fixture
def op() -> Op[..., Any]:
    return declare_halve()


def test_the_page_says_what_each_check_holds():
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    loaded = {name: one.load() if isinstance(one, EntryPoint) else one for name, one in CHECKS.items()}
    page = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE) == [
        (name, inspect.getdoc(one.run).splitlines()[0].removeprefix("Check that ").rstrip("."))
        for name, one in loaded.items()
    ]


def test_a_report_has_a_result_for_every_check_with_the_reason_where_one_is_not_run(op):
    report = check(op, X, by=4)
    assert report.ok
    assert [result.name for result in report] == list(CHECKS)
    assert {result.status for result in report} == {"passed", "not run"}
    assert all(result.reason for result in report if result.status == "not run")
    assert "no shape function is registered" in report["symbolic_shapes"].reason
    assert report["engine_native"].status == "passed"
    assert report["dtypes"].reason == "float32, float64"
    with pytest.raises(KeyError, match=r"no check called 'threads'.*thread_safe"):
        report["threads"]


def test_a_report_is_a_table(op):
    report = check(op, X, expected=X, checks=["expected", "inputs_*"], raise_exception=False)
    lines = str(report).splitlines()
    assert lines[0] == "Halve(float32[2, 3]): 1 failed, 2 passed, 0 not run"
    assert lines[1].split() == ["check", "result", "reason"]
    assert [line.split()[:2] for line in lines[2:]] == [["expected", "FAILED"]]
    assert "first at [0, 0]: 0.125 where 0.25 is expected" in lines[2]
    html = report._repr_html_()
    assert html.count("<tr>") == 2
    report = check(op, X, checks=["out_buffers", "inputs_*"])
    assert [line.split()[0] for line in str(report).splitlines()[2:]] == [result.name for result in report]
    assert "Halve(float32[2, 3])" in html
    assert repr(report) == str(report)


def test_checks_that_one_failure_prevents_are_one_row():
    @onnx_op("checked::Lost")
    def lost(x: F32) -> F32:
        raise KeyError("nothing")

    report = check(lost, X, raise_exception=False)
    rows = [line.split() for line in str(report).splitlines()[2:]]
    assert [row[:2] for row in rows] == [["outputs", "FAILED"], [str(len(report) - 2), "others"]]
    assert rows[1][2:] == ["not", "run", "outputs", "failed"]
    assert report["engine_native"].reason == "outputs failed"


def test_a_failed_check_is_raised_with_its_reason(op):
    with pytest.raises(CheckError, match="1 of 1 checks failed\n  expected: the kernel returns other") as caught:
        check(op, X, expected=X, checks="expected")
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value.report, CheckReport)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), str(copied.report)) == (str(caught.value), str(caught.value.report))


def test_what_failed_stands_before_what_is_not_run():
    @onnx_op("checked::Wrong")
    def wrong(x: F32) -> F32:
        return x.astype(np.float64)

    report = check(wrong, X, checks=["inputs_*", "outputs", "cuda"], raise_exception=False)
    assert [line.split()[:2] for line in str(report).splitlines()[2:]] == [
        ["outputs", "FAILED"],
        ["2", "others"],
    ]
    assert [(row.name, row.reason) for row in report if row.status == "not run"] == [
        ("inputs_released", "outputs failed"),
        ("cuda", "outputs failed"),
    ]


SLOW = """
import os, time, numpy as np
from numpy.typing import NDArray
from pyops._support import progress as _progress; from pyops import onnx_op
from pyops.testing import check

@onnx_op("checked::Slow")
def slow(x: NDArray[np.float32]) -> NDArray[np.float32]:
    time.sleep(0.3)
    return x

_progress.DELAY = 0.05
in_test = os.environ.pop("PYTEST_CURRENT_TEST")
check(slow, np.ones(2, np.float32), checks=["outputs", "repeatable"])
os.environ["PYTEST_CURRENT_TEST"] = in_test
check(slow, np.ones(3, np.float32), checks=["inputs_unchanged"])
"""


def test_what_takes_long_is_told_in_a_pipe_and_not_to_pytest():
    told = [line.rpartition(" (")[0] for line in run_plain_script(SLOW, "").splitlines()]
    assert told[-2:] == ["checking checked::Slow, outputs: 0 of 2", "checking checked::Slow, repeatable: 1 of 2"]


def test_torch_logs_nothing_into_the_test(op, caplog):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    op.register_shape_inference(lambda x, *, by=2: x)
    caplog.set_level("DEBUG")
    assert check(op, X, checks="torch_*")["torch_export"].status == "passed"
    assert [record.name for record in caplog.records] == []
    logging.getLogger("mine").debug("as before")
    assert [record.name for record in caplog.records] == ["mine"]


def test_the_kernels_own_exception_is_the_cause():
    @onnx_op("checked::Raising")
    def raising(x: F32) -> F32:
        raise ZeroDivisionError("planted")

    with pytest.raises(CheckError, match="outputs: ZeroDivisionError: planted") as caught:
        check(raising, X)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__ is not None
    assert check(raising, X, raise_exception=False)["engine_native"].reason == "outputs failed"


def test_inputs_and_expected_outputs_are_one_call(op):
    assert check(op, X, by=4, expected=X / 4)["expected"].status == "passed"
    assert check(op, np.array([1.0]), expected=[0.5], checks="expected").ok
    assert check(op, X, expected=X / 2 + 1e-3, atol=1e-2, checks="expected").ok
    assert not check(op, X, expected=X / 2 + 1e-3, rtol=0, checks="expected", raise_exception=False).ok
    extremes = op_db.extremes
    assert check(extremes, X, axis=0, expected=([3, 1.5, 1], [1, 0, 1]), checks="expected").ok
    with pytest.raises(InputError, match=r"got 1 expected outputs; .* has 2"):
        check(extremes, X, expected=[3.0])


def test_checks_are_chosen_by_name_and_pattern(op):
    assert [result.name for result in check(op, X, checks="engine_reference")] == ["engine_reference"]
    assert {result.name for result in check(op, X, checks=("engine_r*", "dtypes"))} == {"engine_reference", "dtypes"}
    with pytest.raises(InputError, match=r"no check 'engines_\*'; there are: inputs_unchanged, outputs"):
        check(op, X, checks="engines_*")


def test_a_check_that_was_not_asked_for_is_reported_where_it_fails():
    @onnx_op("checked::Wrong")
    def wrong(x: F32) -> F32:
        return x.astype(np.float64)

    report = check(wrong, X, checks="engine_reference", raise_exception=False)
    assert [(result.name, result.status) for result in report] == [
        ("outputs", "failed"),
        ("engine_reference", "not run"),
    ]


def test_an_attribute_called_like_an_option_needs_a_sample():
    @onnx_op("checked::Options")
    def options(x: F32, *, rtol: float = 0.5, expected: int = 0) -> F32:
        return x * np.float32(rtol) + np.float32(expected)

    with pytest.raises(InputError, match=r"the option 'rtol' of check; .*check\(pyops.testing.Sample\(options, "):
        check(options, X, rtol=0.25)
    sample = Sample(options, X, rtol=0.25, expected=1)
    assert check(sample, checks=WITHOUT_TORCH, expected=X / 4 + 1, rtol=1e-3)["expected"].status == "passed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((halve, X), "pass an operator declared with @pyops.onnx_op, or a pyops.testing.Sample"),
        ((op_db.SAMPLES[0], X), r"a sample is a whole call: check\(sample\)"),
        ((op_db.add_round, [1.0]), r"pass an array, for example np.asarray\(x"),
    ],
)
def test_what_is_no_call_is_refused(arguments: Any, message: str):
    with pytest.raises(InputError, match=message):
        check(*arguments)


def test_what_can_check_nothing_is_refused(op):
    with pytest.raises(InputError, match="no check is requested; there are: inputs_unchanged, "):
        check(op, X, checks=[])
    with pytest.raises(InputError, match="generate is -1; expected the number of samples"):
        check(op, X, generate=-1)
    with pytest.raises(InputError, match="rtol is 'a'; expected a number of at least 0"):
        check(op, X, rtol="a")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="atol is nan; expected a number of at least 0"):
        check(op, X, atol=np.nan)


def test_an_op_that_is_not_declared_any_more_is_refused(op):
    with pytest.warns(RedeclarationWarning):

        @onnx_op("checked::Halve")
        def other(x: F32) -> F32:
            return x

    with pytest.raises(InputError, match=r"checked::Halve.* was replaced by the op at .*test_check\.py:\d+; pass"):
        check(op, X)
    assert check(other, X, checks="outputs").ok


def test_without_inputs_some_are_generated(op):
    report = check(op, checks=WITHOUT_TORCH)
    assert report.subject == "Halve(float32[2, 3]), generated inputs"
    for sample in op_db.SAMPLES:
        if sample.op.name in ("Required", "Total", "Clip", "Upper", "Halves"):
            assert check(sample.op, checks=["outputs", "engine_reference"]).ok


def test_where_none_can_be_generated_that_is_said():
    @onnx_op("checked::Board")
    def board(x: F32) -> F32:
        if x.shape != (7, 7):
            raise ValueError("only boards")
        return x

    message = r"takes none of the inputs that are generated .* ValueError: only boards for Board\(float32\[2, 3\]\)"
    with pytest.raises(InputError, match=message) as caught:
        check(board)
    assert isinstance(caught.value.__cause__, ValueError)
    assert check(board, np.ones((7, 7), np.float32), checks=WITHOUT_TORCH).ok


@pytest.mark.skipif(not entry_points(group="pyops.checks"), reason="only an installed pyops has entry points")
def test_what_is_not_installed_is_said_and_the_rest_is_checked():
    script = f"""
BLOCKED = ("onnxruntime", "onnxruntime_extensions", "torch", "onnxscript", "hypothesis", "cupy", "numba")
{BLOCK}
import numpy as np, pyops
from numpy.typing import NDArray

@pyops.onnx_op("checked::Same")
def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x

@same.register_shape_inference
def _(x):
    return x

report = pyops.testing.check(same, np.ones(3, np.float32))
for name in ("engine_native", "engine_extensions", "torch_eager", "engine_reference"):
    print(report[name].status, *report[name].reason.split()[:5][: 5 * (report[name].status != "passed")])
"""
    expected = """
not run sessions need ONNX Runtime, which
not run sessions need ONNX Runtime, which
not run exporters needs torch and onnxscript;
passed
"""
    run_plain_script(script, expected)


def test_importing_it_loads_none_of_the_heavy_packages():
    heavy = ("onnxruntime", "torch", "exporters", "hypothesis", "onnxruntime_extensions", "numba", "cupy")
    run_plain_script(f"import sys, pyops.testing\nprint([name for name in {heavy} if name in sys.modules])", "[]")
