"""`exporters.verify`: the comparison of torch with ONNX Runtime, and its report."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
from exporters._report import VerificationReport, compare
from exporters._torch.tensors import as_array
from pyops import onnx_op
from pyops.errors import InputError

T = TypeVar("T", np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


@onnx_op("verify::Twice")
def twice(x: NDArray[T]) -> NDArray[T]:
    return x + x


@twice.register_shape_inference
def _(x):
    return x


torch_twice = exporters.custom_op(twice, "verify::twice")


def export(module, args, **arguments):
    return exporters.export(module, args, verbose=False, **arguments)


def test_agreement(model):
    net, x = model(lambda x: {"a": torch_twice(x), "b": (x.sum(), None)}), torch.randn(4, 3)
    report = exporters.verify(net, (x,), export(net, (x,), output_names=["a", "b"]))
    assert report.ok
    assert [(item.name, item.dtype, item.shape, item.ok) for item in report.outputs] == [
        ("a", np.float32, (4, 3), True),
        ("b", np.float32, (), True),
    ]
    assert (report.outputs[0].rtol, report.outputs[0].atol) == (1.3e-6, 1e-5)


@pytest.mark.parametrize("how", ["program", "proto", "bytes", "path", "str"])
def test_every_form_of_a_program(model, how, tmp_path):
    net, x = model(lambda x: torch_twice(x)), torch.randn(2)
    program = export(net, (x,))
    program.save(tmp_path / "model.onnx")
    given = {
        "program": program,
        "proto": program.model_proto,
        "bytes": program.model_proto.SerializeToString(),
        "path": tmp_path / "model.onnx",
        "str": str(tmp_path / "model.onnx"),
    }[how]
    assert exporters.verify(net, (x,), given).ok


def test_without_a_program(model):
    assert exporters.verify(model(lambda x: torch_twice(x)), (torch.randn(2),)).ok


def test_a_captured_program_brings_its_arguments(model):
    captured = torch.export.export(model(lambda x, y: torch_twice(x) + y), (torch.randn(2), torch.randn(2)))
    assert exporters.verify(captured).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool], ids=str)
def test_dtypes(model, dtype):
    net = model(lambda x: torch_twice(x) if x.is_floating_point() else x.logical_not())
    report = exporters.verify(net, (torch.tensor([[1.5, 0.0, -3.0]]).to(dtype),))
    assert report.ok, report


def test_nan_and_infinity_agree(model):
    report = exporters.verify(
        model(lambda x: torch_twice(x)), (torch.tensor([float("nan"), float("inf"), -float("inf")]),)
    )
    assert report.ok
    assert (report.outputs[0].absolute, report.outputs[0].relative) == (0, 0)


def test_disagreement(model):
    net, x = model(lambda x: (torch_twice(x), x + 1)), torch.tensor([[1.0, -2.0]])
    program = export(net, (x,), output_names=["twice", "next"])
    other = model(lambda x: (torch_twice(x) + torch.tensor([0.0, 0.5]), x + 1))
    report = exporters.verify(other, (x,), program)
    assert not report.ok
    assert [item.ok for item in report.outputs] == [False, True]
    assert report.outputs[0].absolute == 0.5
    assert report.outputs[0].relative == pytest.approx(0.5 / 3.5)
    assert str(report).splitlines() == [
        "torch and ONNX Runtime differ in 1 of 2 outputs",
        "output  dtype    shape   max abs  max rel  allowed              ok",
        "twice   float32  [1, 2]  0.5      0.143    1e-05 + 1.3e-06 rel  NO",
        "next    float32  [1, 2]  0        0        1e-05 + 1.3e-06 rel  yes",
        "verify(..., locate=True) names the first wrong node",
    ]
    assert repr(report) == "<VerificationReport: torch and ONNX Runtime differ in 1 of 2 outputs>"
    agreed = exporters.verify(net, (x,), program)
    assert repr(agreed) == "<VerificationReport: torch and ONNX Runtime agree, 2 outputs>"
    page = report._repr_html_()
    assert "<td>twice</td>" in page
    assert "differ in 1 of 2 outputs" in page


def test_another_dtype_or_shape_says_so(model):
    x = torch.ones(2)
    program = export(model(lambda x: torch_twice(x)), (x,))
    for other, problem in [
        (lambda x: torch_twice(x).double(), "ONNX Runtime gives float32[2]"),
        (lambda x: torch_twice(x)[None], "ONNX Runtime gives float32[2]"),
    ]:
        report = exporters.verify(model(other), (x,), program)
        assert not report.ok
        assert report.outputs[0].problem == problem
        assert problem in str(report)


def test_another_number_of_outputs_says_so(model):
    x = torch.ones(2)
    one, two = model(lambda x: torch_twice(x)), model(lambda x: (torch_twice(x), x + 1))
    more = exporters.verify(two, (x,), export(one, (x,)))
    fewer = exporters.verify(one, (x,), export(two, (x,)))
    assert [item.problem for item in more.outputs] == ["", "only torch has this output"]
    assert [item.problem for item in fewer.outputs] == ["", "only ONNX Runtime has this output"]
    assert not more.ok
    assert not fewer.ok


def test_samples(model):
    net = model(lambda x: torch_twice(x))
    program = export(net, (torch.ones(4, 2),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    samples = [(torch.randn(n, 2),) for n in (4, 9, 1)]
    report = exporters.verify(net, program=program, samples=samples)
    assert report.ok
    assert [(item.sample, item.shape) for item in report.outputs] == [(0, (4, 2)), (1, (9, 2)), (2, (1, 2))]
    assert str(report).splitlines()[1].startswith("sample  output")
    other = model(lambda x: torch_twice(x) + (x.shape[0] == 9))
    assert [item.ok for item in exporters.verify(other, program=program, samples=samples).outputs] == [
        True,
        False,
        True,
    ]


def test_nested_arguments(model):
    net = model(lambda pair, flag, *, d, e=None: pair[0] * 2 - pair[1] + d["x"] + (0 if e is None else e))
    args = ([torch.randn(2), torch.randn(2)], None)
    kwargs = {"d": {"y": torch.randn(1), "x": torch.randn(2)}, "e": torch.randn(2)}
    program = export(net, args, kwargs=kwargs)
    assert exporters.verify(net, args, program, kwargs=kwargs).ok


def test_keywords_in_another_order(model):
    net = model(lambda x, *, low, high: torch_twice(x) * low - high)
    x, low, high = torch.randn(2), torch.randn(2), torch.randn(2)
    program = export(net, (x,), kwargs={"low": low, "high": high})
    assert exporters.verify(net, (x,), program, kwargs={"high": high, "low": low}).ok


def test_numbers_among_the_arguments(model):
    net, args = model(lambda x, n: torch_twice(x) * n), (torch.randn(2), 3)
    assert exporters.verify(net, args).ok


def test_complex_outputs(model):
    net = model(lambda x: torch.view_as_complex(torch_twice(x)))
    report = exporters.verify(net, (torch.randn(3, 2),))
    assert report.ok
    assert report.outputs[0].shape == (3, 2)


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Dropout(0.5)
        self.active = torch.nn.Dropout(0.5)
        self.norm = torch.nn.BatchNorm1d(2)
        self.frozen.eval()

    def forward(self, x):
        x.mul_(2)
        return self.norm(self.active(self.frozen(x)))


def test_the_model_and_its_arguments_are_left_as_they_were():
    net, x = Mixed(), torch.ones(3, 2)
    report = exporters.verify(net, (x,))
    assert report.ok
    assert [module.training for module in (net, net.frozen, net.active, net.norm)] == [True, False, True, True]
    assert net.norm.num_batches_tracked == 0
    assert torch.equal(x, torch.ones(3, 2))


def test_each_sample_meets_the_state_that_was_exported():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count += 1
            return x + self.count, self.count

    net, x = Counts().eval(), torch.ones(2)
    report = exporters.verify(net, samples=[(x,), (2 * x,)])
    assert report.ok, report
    assert net.count.tolist() == [0, 0]


def test_a_kernels_exception_is_itself(model):
    @onnx_op("verify::Broken")
    def broken(x: NDArray[np.float32]) -> NDArray[np.float32]:
        raise LookupError("as itself")

    broken.register_shape_inference(lambda x: x)
    torch_broken = exporters.custom_op(broken, "verify::broken")
    with pytest.raises(LookupError, match="as itself"):
        exporters.verify(model(lambda x: torch_broken(x)), (torch.ones(1),))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"got no arguments for the model; pass verify\(model, \(x,\)\)"),
        ({"args": (torch.ones(1),), "samples": [(torch.ones(1),)]}, "got args and samples"),
        ({"samples": []}, "got no samples"),
        ({"args": [torch.ones(1)]}, r"as a tuple, not list; write \(x,\)"),
        ({"args": (torch.ones(1), torch.ones(1))}, r"have 2 tensors, but the model has 1 inputs \(x\)"),
    ],
)
def test_arguments_that_do_not_fit(model, arguments, message):
    program = export(model(lambda x: torch_twice(x)), (torch.ones(1),))
    with pytest.raises(exporters.ExportError, match=message):
        exporters.verify(model(lambda *xs: torch_twice(xs[0])), program=program, **arguments)


def test_arguments_that_the_model_does_not_take():
    with pytest.raises(exporters.ExportError, match=r"forward\(input.* does not take the example arguments"):
        exporters.verify(torch.nn.ReLU(), (), kwargs={})


@pytest.mark.parametrize(
    ("expected", "actual", "absolute", "ok"),
    [
        (np.array([2**62, -(2**63)]), np.array([2**62 + 1, -(2**63)]), 1, False),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 2**64, False),
        (np.array([0], np.uint8), np.array([255], np.uint8), 255, False),
        (np.array([True]), np.array([False]), 1, False),
        (np.array([1.0], np.float16), np.array([1.001], np.float16), 0.0009765625, True),
        (np.array([1.0], np.float32), np.array([1.5], np.float32), 0.5, False),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.01], ml_dtypes.bfloat16), 0.0078125, True),
        (np.array([1.0], ml_dtypes.float8_e5m2), np.array([1.25], ml_dtypes.float8_e5m2), 0.25, False),
        (np.array([np.nan]), np.array([1.0]), np.nan, False),
        (np.array([np.inf]), np.array([1e300]), np.inf, False),
        (np.array([1.0]), np.array([np.inf]), np.inf, False),
        (np.array([np.inf]), np.array([-np.inf]), np.inf, False),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0, True),
    ],
)
def test_differences(expected, actual, absolute, ok):
    (output,) = compare(0, ["y"], [expected], [actual])
    assert output.absolute == pytest.approx(absolute, nan_ok=True)
    assert output.ok is ok


def test_names_are_escaped_in_html():
    outputs = tuple(compare(0, ["<y>"], [np.ones(1)], [np.zeros(1)]))
    page = VerificationReport(outputs)._repr_html_()
    assert "&lt;y&gt;" in page
    assert "<y>" not in page


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32], ids=str)
def test_tolerances_are_torchs(dtype):
    for scale in (0.0, 1.0, 100.0):
        expected = torch.tensor([scale]).to(dtype)
        for step in (0.0, 1e-8, 5e-6, 5e-5, 1e-3, 1e-2, 0.1, 1.0):
            actual = (expected.double() + step).to(dtype)
            try:
                torch.testing.assert_close(actual, expected)
                close = True
            except AssertionError:
                close = False
            (output,) = compare(0, ["y"], [as_array(expected)], [as_array(actual)])
            assert output.ok is close, (scale, step)


def test_tolerances_by_dtype(model):
    net, x = model(lambda x: torch_twice(x)), torch.ones(2)
    other = model(lambda x: torch_twice(x) + 0.01)
    program = export(net, (x,))
    assert not exporters.verify(other, (x,), program).ok
    for dtype in (torch.float32, np.float32, np.dtype("f4"), "float32"):
        report = exporters.verify(other, (x,), program, tolerances={dtype: (0.0, 0.02)})
        assert report.ok
        assert (report.outputs[0].rtol, report.outputs[0].atol) == (0, 0.02)
    assert "0.02 + 0 rel" in str(report)
    assert not exporters.verify(other, (x,), program, tolerances={torch.float16: (0.0, 0.02)}).ok


@pytest.mark.parametrize(
    ("tolerances", "words"),
    [
        (1e-3, "tolerances is 0.001; expected .* such as tolerances="),
        ((1e-3, 1e-3), "tolerances is .*; expected .* by dtype"),
        ({"float": (0, 0)}, "'float', which is none of the dtypes float16, float32"),
        ({torch.quint8: (0, 0)}, "torch.quint8, which is none of the dtypes"),
        ({torch.float32: 1e-3}, r"tolerances\[torch.float32\] is 0.001; expected \(rtol, atol\)"),
        ({np.float32: (0, -1)}, "the atol of tolerances.* is -1; expected a number of at least 0"),
    ],
)
def test_wrong_tolerances_are_named(model, tolerances, words):
    with pytest.raises(InputError, match=words):
        exporters.verify(model(torch_twice), (torch.ones(2),), tolerances=tolerances)


def test_samples_are_read_one_by_one_and_summed_up(model):
    net = model(lambda x: torch_twice(x))
    program = export(net, (torch.ones(2),))
    other = model(lambda x: torch_twice(x) + (x[0] == 17))
    report = exporters.verify(other, program=program, samples=((torch.full((2,), float(i)),) for i in range(30)))
    assert (report.samples, len(report.outputs), report.ok) == (30, 30, False)
    assert str(report).splitlines() == [
        "torch and ONNX Runtime differ in 1 of 30 outputs (30 samples)",
        "sample  output  dtype    shape  max abs  max rel  allowed              ok",
        "17      twice   float32  [2]    1        0.0286   1e-05 + 1.3e-06 rel  NO",
        "verify(..., locate=True) names the first wrong node",
    ]


def test_it_waits_while_another_thread_exports(model):
    exporting, compared = threading.Event(), threading.Event()

    def twice(x):
        if torch.compiler.is_exporting():
            exporting.set()
            assert not compared.wait(0.3)
        else:
            compared.set()
        return x + x

    net, args = model(twice), (torch.ones(2),)
    program = exporters.export(net, args, verbose=False, verify=False)  # which runs the model as well
    exporting.clear()
    with ThreadPoolExecutor(1) as other:
        second = other.submit(exporters.export, net, args, verbose=False, verify=False)
        assert exporting.wait(30)
        assert exporters.verify(net, args, program).ok
        assert exporters.verify(net, args, second.result()).ok


def test_the_fix_for_a_type_without_a_kernel_is_an_argument_of_verify():
    class Exp(torch.nn.Module):
        def forward(self, x):
            return torch.exp(x)

    args = (torch.ones(2, dtype=torch.bfloat16),)
    with pytest.raises(Exception, match=r"let pyops compute it \(fill_missing=True\)"):
        exporters.verify(Exp(), args)
