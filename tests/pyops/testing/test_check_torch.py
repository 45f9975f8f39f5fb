"""The checks of `pyops.testing.check` that need torch."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
from pyops import Op, onnx_op
from pyops.shapes import TensorSpec
from pyops.testing import CHECKS, Sample, check
from tests.helpers import op_db, op_db_shapes
from tests.helpers.scripts import run_plain_script

T = TypeVar("T", np.float32, np.float64)
F32 = NDArray[np.float32]
X = np.array([[0.25, 1.5, -2.75], [3, 0.5, 1]], np.float32)
OF_TORCH = tuple(name for name in CHECKS if name.startswith("torch_"))

# One of each kind of signature: one input, broadcasting, several outputs, optional and variadic inputs and outputs,
# sizes that only the result tells, every attribute.
SAMPLES = {
    sample.id: sample
    for sample in op_db.SAMPLES
    if sample.id
    in (
        "AddRound-float16-decimals",
        "Subtract-broadcast-float64",
        "Extremes-axis",
        "Clip-middle-absent",
        "Total-two-float32",
        "Halves-float32",
        "Unique-int64",
        "Same-bfloat16",
        "Same-float8_e5m2",
    )
}


def square(x: NDArray[T], by: NDArray[T], *, power: float = 2.0) -> NDArray[T]:
    return (x * by) ** x.dtype.type(power)


@pytest.fixture
def op() -> Op[..., Any]:
    op = onnx_op("checked.torch::Power")(square)
    op.register_shape_inference(lambda x, by, *, power=2.0: x)
    return op


def results(report: Any) -> dict[str, str]:
    return {result.name: result.status for result in report}


def test_all_the_samples_are_there():
    assert len(SAMPLES) == 9


@pytest.mark.parametrize("sample", SAMPLES.values())
def test_sample_ops_pass_in_torch(sample: Sample):
    op_db_shapes.register_all()
    report = check(sample, checks=OF_TORCH, raise_exception=False)
    assert report.ok, report
    assert {"torch_eager", "torch_export"} <= {r.name for r in report if r.status == "passed"}


@pytest.mark.stress
@pytest.mark.parametrize("sample", op_db.SAMPLES)
def test_all_samples_pass_in_torch(sample: Sample):
    op_db_shapes.register_all()
    report = check(sample, checks=OF_TORCH, raise_exception=False)
    assert report.ok, report


def test_the_torch_operator_that_is_registered_is_checked_with_its_gradients(op):
    power = exporters.custom_op(op, "checked_torch::power")
    checks = ["torch_eager", "torch_gradients"]
    report = check(op, X, X, checks=checks)
    assert report["torch_eager"].reason == "as checked_torch::power"
    assert report["torch_gradients"].status == "not run"
    assert "no backward formula" in report["torch_gradients"].reason

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        x, by = ctx.saved_tensors
        return grad * 2 * x * by * by, grad * 2 * x * x * by

    power.register_autograd(backward, setup_context=setup_context)
    assert check(op, X, X, checks=checks)["torch_gradients"].status == "passed"

    def forgetful(ctx, grad):
        x, by = ctx.saved_tensors
        return grad * 2 * x * by * by, grad * x * x * by

    power.register_autograd(forgetful, setup_context=setup_context)
    report = check(op, X, X, checks=checks, raise_exception=False)
    assert [result.name for result in report.failed] == ["torch_gradients"]
    assert "Jacobian mismatch" in report["torch_gradients"].reason


def test_gradients_of_float32_are_good_to_a_percent():
    @onnx_op("checked.torch::Cube")
    def cube(x: F32) -> F32:
        return x**3

    cube.register_shape_inference(lambda x: x)
    torch_cube = exporters.custom_op(cube, "checked_torch::cube")
    torch_cube.register_autograd(
        lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    assert check(cube, X, checks="torch_gradients")["torch_gradients"].reason == "in float32, to within 0.01"
    torch_cube.register_autograd(
        lambda ctx, grad: grad * 3.3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    assert not check(cube, X, checks="torch_gradients", raise_exception=False).ok


def test_inputs_for_which_a_formula_returns_none_have_no_gradients():
    @onnx_op("checked.torch::Lookup")
    def lookup(table: NDArray[T], position: NDArray[T], *further: NDArray[T]) -> NDArray[T]:
        return sum(further, table * np.round(position))

    lookup.register_shape_inference(lambda table, position, *further: table)
    torch_lookup = exporters.custom_op(lookup, "checked_torch::lookup")

    def formula(factor, of_position, of_further):
        def backward(ctx, grad):
            return grad * factor * ctx.saved_tensors[0].round(), of_position, [of_further(grad)] * 2

        torch_lookup.register_autograd(
            backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1])
        )
        table, position = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])
        return check(lookup, table, position, table, table, checks="torch_gradients", raise_exception=False)

    def checked(*arguments):
        return formula(*arguments)["torch_gradients"]

    result = checked(1, None, lambda grad: grad)
    assert (result.status, result.reason) == ("passed", "the formula has none for position")
    result = checked(1, None, lambda grad: None)
    assert (result.status, result.reason) == ("passed", "the formula has none for position, further")
    assert "Jacobian mismatch" in checked(2, None, lambda grad: None).reason
    assert "Jacobian mismatch" in checked(1, None, lambda grad: 2 * grad).reason


def test_a_formula_that_returns_none_for_all_inputs_is_compared(op):
    power = exporters.custom_op(op, "checked_torch::none_for_all")
    power.register_autograd(lambda ctx, grad: (None, None))
    report = check(op, X, X, checks="torch_gradients", raise_exception=False)
    assert "Jacobian mismatch" in report["torch_gradients"].reason


def test_what_has_no_gradients_says_so():
    op_db_shapes.register_all()
    reasons = {
        sample.op.name: check(sample, checks="torch_gradients")["torch_gradients"].reason
        for sample in op_db.SAMPLES
        if sample.id in ("Same-int8", "Floor-float32", "Upper-unicode", "Table-float32")
    }
    assert reasons == {
        "Same": "no input has gradients",
        "Floor": "no output has gradients",
        "Upper": "torch has no tensors of string",
        "Table": "torch has no tensor attributes, such as table",
    }


def test_what_torch_has_no_use_for_says_so():
    @onnx_op("checked.torch::Ones")
    def ones(*, size: int) -> F32:
        return np.ones(size, np.float32)

    ones.register_shape_inference(lambda *, size: TensorSpec((size,), np.dtype(np.float32)))

    @onnx_op("checked.torch::Halve")
    def halve(x: NDArray[np.float16]) -> NDArray[np.float16]:
        return x / np.float16(2)

    halve.register_shape_inference(lambda x: x)
    report = check(halve, X.astype(np.float16), checks="torch_gradients")
    assert "neither float64 nor float32" in report["torch_gradients"].reason
    assert "no tensor among its inputs" in check(ones, size=2, checks=OF_TORCH)["torch_export"].reason

    @onnx_op("checked.torch::Labelled")
    def labelled(x: F32, labels: NDArray[np.str_] | None = None) -> F32:
        return x + x

    labelled.register_shape_inference(lambda x, labels=None: x)
    report = check(labelled, X, checks="torch_eager")
    assert "input 'labels' is string, and torch has no such tensors" in report["torch_eager"].reason


def test_a_shape_function_that_cannot_have_torch_s_sizes_is_found():
    @onnx_op("checked.torch::Square")
    def square(x: F32) -> F32:
        return x + x

    known: dict[Any, Any] = {}
    square.register_shape_inference(lambda x: known.setdefault(x.shape, x))
    report = check(square, X, checks="torch_opcheck", raise_exception=False)
    assert "opcheck's test_aot_dispatch_dynamic: unhashable type" in report["torch_opcheck"].reason


def test_a_backward_formula_that_raises_is_a_failure(op):
    def fail(context, gradient):
        raise RuntimeError("no such gradient")

    exporters.custom_op(op, "checked_torch::failing").register_autograd(fail)
    report = check(op, X, X, checks="torch_gradients", raise_exception=False)
    assert "RuntimeError: no such gradient" in report["torch_gradients"].reason


def test_without_a_shape_function_nothing_is_run_in_torch():
    @onnx_op("checked.torch::Open")
    def open_(x: F32) -> F32:
        return x

    report = check(open_, X, checks=OF_TORCH)
    assert {result.status for result in report} == {"not run"}
    assert "without which torch cannot trace it" in report["torch_export"].reason


def test_a_translation_that_somebody_else_registered_is_held_to(op):
    exporters.custom_op(op, "checked_torch::translated")
    exporters.register_translation(
        "checked_torch::translated", lambda x, by, power=2.0: exporters.opset("", 20).Add(x, by)
    )
    report = check(op, X, X, checks="torch_export", raise_exception=False)
    assert [result.name for result in report.failed] == ["torch_export"]
    assert "torch and ONNX Runtime differ in 1 of 1 outputs" in report["torch_export"].reason


@pytest.mark.exhaustive
def test_a_module_of_the_user_s_that_is_called_exporters_is_a_failure(tmp_path):
    (tmp_path / "exporters.py").write_text("def export_everything(): ...")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import numpy as np, pyops
from numpy.typing import NDArray

@pyops.onnx_op("checked::Same")
def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x.copy()

same.register_shape_inference(lambda x: x)
report = pyops.testing.check(same, np.ones(3, np.float32), raise_exception=False)
print(*{{result.name: result.status for result in report if result.name.startswith("torch")}}.items())
print(report["torch_eager"].reason)
"""
    reason = "ModuleNotFoundError: No module named 'exporters._checks'; 'exporters' is not a package"
    expected = " ".join(str((name, "failed")) for name in OF_TORCH)
    run_plain_script(script, f"{expected}\n{reason}")


def test_opcheck_leaves_out_what_it_cannot_tell(op):
    report = check(op, np.where(X == 3, np.float32("nan"), X), X, checks="torch_opcheck")
    assert report["torch_opcheck"].status == "passed"
    report = check(op, -X, X, power=0.5, checks="torch_opcheck")
    assert "an output has NaN" in report["torch_opcheck"].reason
    assert torch.ops.pyops_testing.checked_2e_torch_3a_Power_3a_1 is not None


def test_ops_whose_names_differ_in_a_separator_are_checked_one_after_the_other():
    for number, name in enumerate(
        ("checked.torch::A_B", "checked_torch::A_B", "checked_torch_A::B", "größe.torch::A_B")
    ):

        @onnx_op(name)
        def add(x: NDArray[np.float32], *, number: int = number) -> NDArray[np.float32]:
            return x + np.float32(number)

        add.register_shape_inference(lambda x, *, number: x)
        report = check(add, np.ones(2, np.float32), checks="torch*")
        assert report["torch_eager"].status == report["torch_opcheck"].status == "passed"
