"""Nested arguments and results of torch models as the flat inputs and outputs of ONNX models."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import torch

import exporters
import pyops


@pytest.fixture
def nested(model):
    def forward(x, pair, *, state=None, scale=2, bias):
        result = x * scale + pair[1]["a"] + bias
        return {"sum": result, "none": None, "both": (x, [result.sum()])}

    return model(forward)


def arguments():
    x = torch.randn(2, 3)
    return (x, (None, {"a": torch.randn(3)})), {"state": None, "scale": 3, "bias": torch.ones(1)}


def test_nested_arguments_and_results(export, nested, tmp_path):
    args, kwargs = arguments()
    program = export(nested, args, kwargs=kwargs)
    expected = exporters.to_onnx_outputs(nested(*args, **kwargs))
    assert [array.shape for array in expected] == [(2, 3), (2, 3), ()]
    program.save(tmp_path / "model.onnx")
    session = pyops.InferenceSession(tmp_path / "model.onnx")
    for model in (program, session, program.model_proto, tmp_path / "model.onnx"):
        feed = exporters.to_onnx_inputs(model, *args, **kwargs)
        for computed, result in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_allclose(computed, result, rtol=1e-6)
    for computed, result in zip(program(*args, **kwargs), expected, strict=True):
        np.testing.assert_allclose(computed, result, rtol=1e-6)


def test_a_model_in_ort_format_is_read_by_its_session(export, model, tmp_path):
    net, path = model(lambda x: x + 1), tmp_path / "model.ort"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    pyops.InferenceSession(export(net, (torch.ones(2),)).model_proto, options)
    with pytest.raises(exporters.ExportError, match="inputs of a model in ORT format; pass a session"):
        exporters.to_onnx_inputs(path, torch.ones(2))
    assert [*exporters.to_onnx_inputs(pyops.InferenceSession(path), torch.ones(2))] == ["x"]


def test_keywords_go_by_name(export, model):
    net = model(lambda x, *, first, second: x + first - 2 * second)
    x, first, second = torch.ones(1), torch.full((1,), 2.0), torch.full((1,), 5.0)
    program = export(net, (x,), kwargs={"first": first, "second": second})
    assert [item.name for item in program.model.graph.inputs] == ["x", "first", "second"]
    feed = exporters.to_onnx_inputs(program, x, second=second, first=first)
    assert {name: value.item() for name, value in feed.items()} == {"x": 1, "first": 2, "second": 5}
    assert program(x, second=second, first=first)[0].item() == -7


def test_nested_keywords_go_to_the_inputs_that_are_named_after_them(export, model):
    net = model(lambda x, *, past, past_keys: x + past["v"] - 2 * past_keys["v"][0])
    x, past, keys = torch.ones(1), {"v": torch.full((1,), 2.0)}, {"v": (torch.full((1,), 5.0),)}
    program = export(net, (x,), kwargs={"past": past, "past_keys": keys})
    for kwargs in ({"past": past, "past_keys": keys}, {"past_keys": keys, "past": past}):
        assert [value.item() for value in exporters.to_onnx_inputs(program, x, **kwargs).values()] == [1, 2, 5]
        assert program(x, **kwargs)[0].item() == -7


def test_other_arguments_than_the_models(export, nested):
    args, kwargs = arguments()
    program = export(nested, args, kwargs=kwargs)
    with pytest.raises(exporters.ExportError, match=r"have 2 tensors, but the model has [34] inputs \(x.*, bias\)"):
        exporters.to_onnx_inputs(program, args[0], bias=kwargs["bias"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor([1 + 2j]), np.array([[1, 2]], np.float32)),
        (torch.tensor([1.5], dtype=torch.bfloat16), np.array([1.5], ml_dtypes.bfloat16)),
        (torch.ones(2, requires_grad=True), np.ones(2, np.float32)),
        (torch.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T),
        (2.5, np.float32(2.5)),
        (3, np.int64(3)),
        (True, np.bool_(True)),
    ],
)
def test_results(value, expected):
    (array,) = exporters.to_onnx_outputs([None, value])
    np.testing.assert_array_equal(array, expected)
    assert (array.dtype, array.flags.c_contiguous) == (expected.dtype, True)
