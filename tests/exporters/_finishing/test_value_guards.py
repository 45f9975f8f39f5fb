"""Guards refuse a run in plain ONNX Runtime exactly where what the model's Python code asked for differs."""

from __future__ import annotations

import math
import warnings

import numpy as np
import onnxruntime
import pytest
import torch

import exporters
from exporters import CaptureWarning
from tests.helpers.tiers import exhaustive

X = torch.arange(3.0)
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
NUMBERS = {
    **{dtype: [0.0, -0.0, 1.0, 1.5, -2.0, 1e-3, math.nan, math.inf, -math.inf] for dtype in FLOATS},
    **{dtype: [0, 1, 2, 3, torch.iinfo(dtype).min, torch.iinfo(dtype).max] for dtype in INTEGERS},
    torch.bool: [False, True],
}


class Model(torch.nn.Module):
    def __init__(self, code):
        super().__init__()
        self.code = code

    def forward(self, x, y):
        return self.code(x, y)


def branch(x, y):
    return x + 1 if y[0] else x - 1


def number(x, y):
    return x + 1 if math.isnan(asked := y[0].item()) else x * asked


def values(x, y):
    return x + float(y.numpy().size) if y.dtype != torch.bfloat16 else x + sum(y.tolist())


def guarded(code, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        program = exporters.export(
            Model(code).eval(), (X, y), input_names=["x", "y"], capture="trace", guards=True, verbose=False
        )
    assert [item.guarded for item in program.decisions] == [True]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)

    def run(y):
        array = y.view(torch.uint16).numpy() if y.dtype == torch.bfloat16 else y.numpy()
        element_type = 16 if y.dtype == torch.bfloat16 else None
        value = (
            onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, element_type)
            if element_type
            else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        )
        given = {"x": onnxruntime.OrtValue.ortvalue_from_numpy(X.numpy()), "y": value}
        try:
            return session.run_with_ort_values(None, {item.name: given[item.name] for item in session.get_inputs()})
        except Exception as error:
            if "as in the export, test_value_guards.py:" not in str(error):
                raise
            return None

    return run


def equal(expected, other):
    return expected == other or (expected != expected and other != other)


QUICK = [torch.float32, torch.int64]


@pytest.mark.parametrize("dtype", [item if item in QUICK else exhaustive(item) for item in NUMBERS], ids=str)
@pytest.mark.parametrize("code", [branch, number, values])
def test_a_run_is_refused_where_what_was_asked_for_differs(code, dtype):
    tensors = [torch.tensor([item, 1], dtype=dtype) for item in NUMBERS[dtype]]
    for example in tensors[:: 1 if code is branch else 3]:
        run = guarded(code, example)
        for other in tensors:
            one, two = example[0].item(), other[0].item()
            is_same = bool(one) == bool(two) if code is branch else equal(one, two)
            assert (run(other) is not None) == is_same, (example, other)


def test_what_rounding_makes_of_a_float_is_no_other_value():
    run = guarded(number, torch.tensor([1.5, 0]))
    assert run(torch.tensor([1.5 + 1e-6, 0])) is not None
    assert run(torch.tensor([1.5 + 1e-4, 0])) is None


def test_a_size_that_depends_on_values_is_guarded():
    run = guarded(lambda x, y: x[y > 0] * 2, torch.tensor([1.0, -1, 1]))
    np.testing.assert_array_equal(run(torch.tensor([-1.0, 1, 1]))[0].numpy(), [2, 4])
    assert run(torch.tensor([1.0, 1, 1])) is None


def test_no_values_are_guarded():
    run = guarded(values, torch.ones(0))
    np.testing.assert_array_equal(run(torch.ones(0))[0].numpy(), X)
