"""`pyops.testing.check`: every check of an op in one call."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from pyops.errors import InputError, MissingDependencyError
from pyops.testing import CHECKS, CheckError, CheckReport, Sample, check
from tests import compiled_db, cupy_on_host, op_db, op_db_shapes
from tests.cuda_sessions import cupy, needs_the_provider
from tests.faulty_db import FAULTS, Fault
from tests.scripts import run_plain_script
from tests.test_imports import BLOCK

T = TypeVar("T", np.float32, np.float64)
F32 = NDArray[np.float32]
X = np.array([[0.25, 1.5, -2.75], [3, 0, 1]], np.float32)

__all__ = ["cupy"]
WITHOUT_TORCH = tuple(name for name in CHECKS if not name.startswith("torch_"))

# One sample of each op, and its last: of types that few others have, or with all there is.
SOME = dict.fromkeys(
    sample for which in (1, -1) for sample in {sample.op.name: sample for sample in op_db.SAMPLES[::which]}.values()
)


def halve(x: NDArray[T], *, by: float = 2.0) -> NDArray[T]:
    return x / x.dtype.type(by)


@pytest.fixture
def op() -> Op[..., Any]:
    """An op without a shape function."""
    return onnx_op("checked::Halve")(halve)


def assert_passes(sample: Sample, checks: Any = WITHOUT_TORCH) -> CheckReport:
    report = check(sample, checks=checks, raise_exception=False)
    assert report.ok, report
    return report


def test_the_page_says_what_each_check_holds():
    page = (Path(__file__).parents[1] / "docs" / "testing.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE) == [
        (name, one.holds.rstrip(".")) for name, one in CHECKS.items()
    ]


@pytest.mark.parametrize("sample", SOME)
def test_sample_ops_pass(sample: Sample):
    op_db_shapes.register_all()
    report = assert_passes(sample)
    assert {"shape_function", "engine_reference", "thread_safe"} <= {r.name for r in report if r.status == "passed"}


@pytest.mark.stress
@pytest.mark.parametrize("sample", op_db.SAMPLES)
def test_all_samples_pass(sample: Sample):
    op_db_shapes.register_all()
    assert_passes(sample)


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::pyops.errors.CompileWarning")
@pytest.mark.parametrize("sample", compiled_db.SAMPLES)
def test_all_compiled_samples_pass(sample: Sample):
    assert assert_passes(sample)["compiled"].status == "passed"


def test_there_are_twenty_faults_in_twenty_ops():
    assert len(FAULTS) >= 20
    assert len({fault.sample.op.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.sample.id)
def test_a_planted_fault_is_found_by_the_check_that_is_named_for_it(fault: Fault):
    report = check(fault.sample, checks=WITHOUT_TORCH, raise_exception=False)
    assert [result.name for result in report.failed] == [fault.check], report
    assert re.search(fault.reason, report[fault.check].reason, re.DOTALL), report


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
    assert [line.split()[:2] for line in lines[2:]] == [
        ["inputs_unchanged", "passed"],
        ["expected", "FAILED"],
        ["inputs_released", "passed"],
    ]
    assert "first at [0, 0]: 0.125 where 0.25 is expected" in lines[3]
    html = report._repr_html_()
    assert html.count("<tr>") == 4
    assert "Halve(float32[2, 3])" in html
    assert repr(report) == str(report)


def test_a_failed_check_is_raised_with_its_reason(op):
    with pytest.raises(CheckError, match="1 of 1 checks failed\n  expected: the kernel returns other") as caught:
        check(op, X, expected=X, checks="expected")
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value.report, CheckReport)


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

    with pytest.raises(InputError, match=r"like the option 'rtol' of check; .*check\(pyops.testing.Sample\(options, "):
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
    with pytest.raises(InputError, match="no check is asked for; there are: inputs_unchanged, "):
        check(op, X, checks=[])
    with pytest.raises(InputError, match="generate is -1; expected how many"):
        check(op, X, generate=-1)


def test_an_op_that_is_not_declared_any_more_is_refused(op):
    @onnx_op("checked::Halve")
    def other(x: F32) -> F32:
        return x

    with pytest.raises(
        InputError, match=r"checked::Halve.* is not what is declared now, at .*test_check\.py:\d+; pass"
    ):
        check(op, X)
    assert check(other, X, checks="outputs").ok


def test_without_inputs_some_are_made_up(op):
    report = check(op, checks=WITHOUT_TORCH)
    assert report.subject == "Halve(float32[2, 3]), inputs made up"
    for sample in op_db.SAMPLES:
        if sample.op.name in ("Required", "Total", "Clip", "Upper", "Halves"):
            assert check(sample.op, checks=["outputs", "engine_reference"]).ok


def test_where_none_can_be_made_up_that_is_said():
    @onnx_op("checked::Board")
    def board(x: F32) -> F32:
        if x.shape != (7, 7):
            raise ValueError("only boards")
        return x

    message = r"takes none of the inputs that are made up .* ValueError: only boards for Board\(float32\[2, 3\]\)"
    with pytest.raises(InputError, match=message) as caught:
        check(board)
    assert isinstance(caught.value.__cause__, ValueError)
    assert check(board, np.ones((7, 7), np.float32), checks=WITHOUT_TORCH).ok


@pytest.mark.parametrize("arrays", [(), (X,)])
def test_a_kernel_that_writes_into_its_inputs_refuses_none(arrays: tuple[Any, ...]):
    @onnx_op("checked::Writing")
    def writing(x: F32) -> F32:
        x += 1
        return x

    with pytest.raises(CheckError, match=r"inputs_unchanged: the kernel changes its input 'x'"):
        check(writing, *arrays)


def test_a_kernel_that_ends_the_process_does_not_end_the_checks():
    @onnx_op("checked::Ending")
    def ending(x: F32) -> F32:
        sys.exit(3)

    with pytest.raises(CheckError, match="outputs: SystemExit: 3"):
        check(ending, X)
    with pytest.raises(InputError, match="raises SystemExit: 3 for"):
        check(ending)


def test_what_a_kernel_refuses_is_noted():
    @onnx_op("checked::Largest")
    def largest(x: F32) -> F32:
        return x.max(-1) + x[0].max()

    report = check(largest, X, checks=["empty", "scalar"])
    assert "refuses inputs empty along the last axis: ValueError: zero-size array" in report["empty"].reason
    assert "refuses inputs without dimensions: " in report["scalar"].reason


def test_a_lock_makes_a_kernel_thread_safe():
    scratch, lock = np.zeros(6, np.float32), threading.Lock()

    @onnx_op("checked::Locked")
    def locked(x: F32) -> F32:
        with lock:
            scratch[:] = x.ravel()
            return scratch.reshape(x.shape) * 2

    report = check(locked, X, checks="thread_safe")
    assert report["thread_safe"].status == "passed"


def test_a_number_that_threads_share_is_found_where_it_depends_on_no_order():
    shared = {}

    @onnx_op("checked::Shared")
    def subtract_largest(x: F32) -> F32:
        shared["largest"] = x.max()
        return x - shared["largest"]

    with pytest.raises(CheckError, match="thread_safe: when another thread's call runs at"):
        check(subtract_largest, X[0], checks="thread_safe")


def test_the_first_input_is_not_to_be_kept_either():
    kept = []

    @onnx_op("checked::KeepsFirst")
    def keeps_first(x: F32) -> F32:
        if not kept:
            kept.append(x)
        return x - kept[0].mean()

    with pytest.raises(CheckError, match="inputs_released: the kernel keeps its input 'x'"):
        check(keeps_first, X, checks="inputs_*")


def test_memory_of_a_thread_is_its_own():
    local = threading.local()

    @onnx_op("checked::Local")
    def own(x: F32) -> F32:
        local.value = x.copy()
        local.value += 1
        return local.value * 1

    assert check(own, X, checks="thread_safe").ok


def test_generated_inputs_find_what_the_sample_does_not():
    @onnx_op("checked::Sum")
    def total(x: F32, *ys: F32) -> F32:
        if len(ys) == 2:
            return x.astype(np.float64)
        return sum((y.sum() for y in ys), x.sum())

    report = check(total, X, X, generate=50, checks="generated", raise_exception=False)
    assert re.search(
        r"for Sum\(float32\[\], float32\[\], float32\[\]\): OutputError: .*float64", report["generated"].reason
    ), report


def test_generated_inputs_say_how_many_there_were(op):
    assert re.fullmatch(r"\d+ samples, of which the kernel refuses \d+", check(op, X, generate=20)["generated"].reason)


def test_generated_inputs_need_hypothesis(op, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "hypothesis"] + ["hypothesis"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "pyops.testing.strategies", raising=False)
    assert check(op, X, checks="generated")["generated"].status == "not run"
    with pytest.raises(MissingDependencyError, match=r"need hypothesis.*onnx-pyops\[testing\]"):
        check(op, X, generate=5, checks="generated", raise_exception=False)


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
not run ONNX Runtime is not installed:
not run ONNX Runtime is not installed:
not run torch or onnxscript is not
passed
"""
    run_plain_script(script, expected)


def test_importing_it_loads_none_of_the_heavy_packages():
    heavy = ("onnxruntime", "torch", "exporters", "hypothesis", "onnxruntime_extensions", "numba", "cupy")
    run_plain_script(f"import sys, pyops.testing\nprint([name for name in {heavy} if name in sys.modules])", "[]")


def test_an_op_of_types_that_onnx_runtime_lacks():
    @onnx_op("checked::Conjugate")
    def conjugate(x: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return x.conj()

    report = check(conjugate, X.astype(np.complex64) * 1j, checks=WITHOUT_TORCH)
    assert report["engine_native"].reason == "ONNX Runtime's custom operators cannot have complex64"
    assert report["engine_reference"].status == "passed"


def test_versions_and_operators_in_place_of_built_in_ones():
    @onnx_op("ai.onnx::Relu", override=True)
    def relu(x: F32) -> F32:
        return np.maximum(x, 0) + 100

    @onnx_op("checked::Versioned", version=3)
    def third(x: F32) -> F32:
        return x * 3

    @onnx_op("checked::Versioned", version=4)
    def fourth(x: F32) -> F32:
        return x * 4

    for op in (relu, third, fourth):
        report = check(op, X, checks="engine_*")
        assert report["engine_native"].status == report["engine_reference"].status == "passed"


def test_functions_declared_with_onnxruntime_extensions_are_ops_too():
    theirs = pytest.importorskip("onnxruntime_extensions")
    code = theirs.PyCustomOpDef.dt_float

    @theirs.onnx_op(op_type="checked.adopted::Half", inputs=[code], outputs=[code])
    def half(x):
        return x / np.float32(2)

    (adopted,) = [op for op in pyops.ops() if op.domain == "checked.adopted"]
    report = check(adopted, X, checks=WITHOUT_TORCH)
    assert {report[f"engine_{name}"].status for name in ("native", "extensions", "reference")} == {"passed"}


def test_a_cuda_kernel_is_held_against_the_cpu_kernel(op, monkeypatch: pytest.MonkeyPatch):
    assert check(op, X, checks="cuda")["cuda"].reason == "no CUDA kernel is registered"
    op.register_kernel("cuda")(lambda x, *, by=2.0: x * np.float32(1 / by))
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = check(op, X, checks="cuda")["cuda"]
    assert (result.status, result.reason[:27]) == ("not run", "the CUDA kernel needs CuPy ")
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)
    monkeypatch.setattr(cupy_on_host.state, "available", False)
    assert "CuPy finds none here" in check(op, X, checks="cuda")["cuda"].reason
    monkeypatch.setattr(cupy_on_host.state, "available", True)
    result = check(op, X, checks="cuda")["cuda"]
    assert result.status == "passed"
    assert "in no session: this onnxruntime has no CUDAExecutionProvider" in result.reason
    op.register_kernel("cuda")(lambda x, *, by=2.0: x + np.float32(0))
    report = check(op, X, checks="cuda", raise_exception=False)
    assert "the CUDA kernel gives other outputs: output 'output'" in report["cuda"].reason


@needs_the_provider
@pytest.mark.usefixtures("cupy")
def test_a_cuda_kernel_is_held_against_the_cpu_kernel_in_a_session_too():
    @onnx_op("checked::Resized")
    def resized(x: F32, shape: NDArray[np.int64]) -> F32:
        return x.reshape(shape.tolist())

    resized.register_kernel("cuda", host_inputs=("shape",))(lambda x, shape: x.reshape(*shape.tolist()))
    result = check(resized, X, np.array([-1, 1]), checks="cuda")["cuda"]
    assert (result.status, result.reason) == ("passed", "called, and in a CUDA session")


def test_a_cuda_kernel_alone_has_nothing_to_be_held_against(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)

    @onnx_op("checked::Alone", device_types=("cuda",))
    def alone(x: F32) -> F32:
        return x + np.float32(1)

    assert "no CPU kernel" in check(alone, X, checks="cuda")["cuda"].reason


def test_may_inplace_is_held_to():
    @onnx_op("checked::Backwards", may_inplace={"output": "x"})
    def backwards(x: F32, *, out: F32 | None = None) -> F32:
        if out is None:
            return x[::-1].copy()
        for index in range(len(x)):
            out[index] = x[len(x) - 1 - index]
        return out

    @backwards.register_shape_inference
    def _(x):
        return x

    report = check(backwards, X, checks=WITHOUT_TORCH, raise_exception=False)
    assert [result.name for result in report.failed] == ["out_buffers"]
    assert "in the memory of 'x', which may_inplace allows" in report["out_buffers"].reason


def test_a_compiled_kernel_is_held_against_the_plain_function():
    pytest.importorskip("numba")

    @onnx_op("checked::Wraps", compile=True)
    def wraps(x: NDArray[np.int32]) -> NDArray[np.int32]:
        return x + np.int32(1)

    @onnx_op("checked::Differs")
    def differs(x: NDArray[np.int32]) -> NDArray[np.int32]:
        return x + np.int32(1)

    @differs.register_kernel("cpu", compile=True)
    def _(x):
        return x + np.int32(2)

    x = np.arange(3, dtype=np.int32)
    checks = ["compiled", "engine_native"]
    assert check(wraps, x, checks=checks).ok
    report = check(differs, x, checks=checks, raise_exception=False)
    assert [result.name for result in report.failed] == ["compiled"]
