"""Exported models refuse the sizes for which the model's code would do something else, in every runtime."""

import warnings

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import onnxscript.optimizer
import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import exporters
from exporters import CaptureWarning
from tests.helpers.tiers import exhaustive


class Model(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.code = forward

    def forward(self, x):
        return self.code(x)


def parity(x):
    return x * 2 if x.shape[0] % 2 == 0 else -x


def more_than_three(x):
    return x + 1 if x.shape[0] > 3 else x - 1


def half_of_the_size(x):
    return x + x[: int(x.shape[0] / 2) + 1].sum(0)


def side_of_a_square(x):
    return x + int(x.numel() ** 0.5)


def as_a_float(x):
    return x + float(x.shape[0] // 2)


def last_of_split(x):
    return x + x.split(2)[-1].sum(0)


def last_of_tensor_split(x):
    return x + x.tensor_split(2)[-1].sum(0)


def chunks(x):
    return x.sum(0) + len(x.chunk(3))


def rows(x):
    for row in x:
        x = x + row.sum()
    return x


def in_a_list(x):
    return x + 1 if x.shape[0] in (2, 4) else x


def scanned(x):
    return associative_scan(torch.add, x, dim=0, combine_mode="generic") if len(x) else x


def one_of_two_conditions(x):
    return x * 2 if torch.sym_not((x.shape[0] > 2) & (x.shape[0] % 2 == 0)) else x - 1


def shape_alone(x):
    return torch.ones(2) * (1 if x.shape[0] > 3 else 2)


def two_conditions(x):
    x = x * 3 if x.shape[0] % 2 == 0 else x
    return x + 1 if x.shape[0] >= 4 else x


def padded(x):
    return torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 4)).sum(0)


CASES = [
    parity,
    more_than_three,
    half_of_the_size,
    side_of_a_square,
    as_a_float,
    last_of_split,
    last_of_tensor_split,
    chunks,
    rows,
    in_a_list,
    scanned,
    one_of_two_conditions,
    shape_alone,
    two_conditions,
    padded,
]
# What the code asks of the size.
CONDITIONS = {
    parity: lambda size: size % 2,
    more_than_three: lambda size: size > 3,
    as_a_float: lambda size: size // 2,
    one_of_two_conditions: lambda size: size > 2 and size % 2 == 0,
    two_conditions: lambda size: (size % 2, size >= 4),
    shape_alone: lambda size: size > 3,
}
SIZES = range(9)


def export(case, size=4, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        return exporters.export(
            Model(case).eval(), (torch.randn(size, 3),), dynamic_shapes=({0: torch.export.Dim.AUTO},), **arguments
        )


def outcomes(model, case):
    """Return for each size whether plain ONNX Runtime refuses it; what it computes is what torch computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    refused = {}
    for size in SIZES:
        x = torch.randn(size, 3)
        try:
            found = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        except Exception as error:
            refused[size] = str(error)
        else:
            np.testing.assert_allclose(found, case(x), 1e-4, 1e-5)
    return refused


@pytest.mark.parametrize("size", [1, exhaustive(2), exhaustive(4), 5])
@pytest.mark.parametrize("case", CASES)
def test_a_size_is_right_or_refused(case, size):
    refused = outcomes(export(case, size).model_proto, case)
    assert size not in refused


@pytest.mark.parametrize("case", CONDITIONS)
def test_nothing_more_is_refused(case):
    asked = CONDITIONS[case]
    expected = {size for size in SIZES if asked(size) != asked(4)}
    assert set(outcomes(export(case).model_proto, case)) == expected


def test_the_error_names_the_condition_and_the_line():
    error = outcomes(export(parity).model_proto, parity)[3]
    assert "x.shape[0] % 2 == 0" in error or "Mod(x.shape[0], 2) == 0" in error
    assert "test_size_checks.py:" in error
    assert "if x.shape[0] % 2 == 0" in error


@pytest.mark.parametrize("case", CONDITIONS)
def test_no_optimization_removes_a_check(case, tmp_path):
    program = export(case)
    expected = set(outcomes(program.model_proto, case))
    assert expected
    path = tmp_path / "optimized.onnx"
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)
        assert set(outcomes(onnx.load(path), case)) == expected
    assert set(outcomes(onnxscript.optimizer.optimize(program.model_proto), case)) == expected
    assert set(outcomes(onnx.inliner.inline_local_functions(program.model_proto), case)) == expected
    inferred = onnx.shape_inference.infer_shapes(program.model_proto, strict_mode=True, data_prop=True)
    assert set(outcomes(onnxscript.optimizer.optimize(inferred), case)) == expected
    program.optimize()
    assert set(outcomes(program.model_proto, case)) == expected


def test_a_checked_condition_is_listed_as_guarded():
    (decided,) = export(parity).decisions
    assert decided.guarded
    assert (decided.kind, decided.code) == ("size", "return x * 2 if x.shape[0] % 2 == 0 else -x")


@pytest.mark.filterwarnings("ignore::exporters.CaptureWarning")
def test_conditions_on_sizes_that_turn_out_to_be_equal_are_kept():
    class Two(torch.nn.Module):
        def forward(self, x, y):
            return x.tensor_split(2)[1], x + y

    sizes, example = {0: torch.export.Dim.AUTO}, (torch.ones(4), torch.ones(4))
    program = exporters.export(Two().eval(), example, dynamic_shapes=(sizes, sizes), verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x, "y": x})[0], x[3:])
    with pytest.raises(Exception, match=r"expected Mod\(x.shape\[0\]"):
        session.run(None, {"x": x[:5], "y": x[:5]})


@pytest.mark.filterwarnings("ignore::exporters.CaptureWarning")
def test_what_is_asked_of_two_equal_sizes_is_checked_once():
    class Sum(torch.nn.Module):
        def forward(self, x, y):
            first, second = (item.cos() if item.shape[0] % 5 != 0 else item for item in (x, y))
            return first + second

    sizes, example = {0: torch.export.Dim.AUTO}, (torch.rand(4), torch.rand(4))
    program = exporters.export(Sum().eval(), example, dynamic_shapes=(sizes, sizes), verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x, "y": x})[0], 2 * np.cos(x), rtol=1e-5)
    with pytest.raises(Exception, match=r"expected Mod\(x.shape\[0\]"):
        session.run(None, {"x": x[:5], "y": x[:5]})
