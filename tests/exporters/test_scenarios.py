"""What the PyTorch tutorials on the ONNX exporter do with custom operators, in both exporters."""

from typing import TypeVar

import numpy as np
import onnx
import onnxruntime
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import opset18

import exporters
import pyops
from pyops import onnx_op

pytestmark = pytest.mark.usefixtures("own_registrations")

T = TypeVar("T", np.float32, np.float64)

custom_aten = onnxscript.values.Opset(domain="custom.aten", version=1)
custom_ort = onnxscript.values.Opset(domain="com.microsoft", version=1)
custom_opset = onnxscript.values.Opset(domain="test.customop", version=1)


@onnxscript.script(custom_aten)
def custom_aten_add(input_x, input_y, alpha: float = 1.0):
    alpha = opset18.CastLike(alpha, input_y)
    input_y = opset18.Mul(input_y, alpha)
    return opset18.Add(input_x, input_y)


@onnxscript.script(custom_ort)
def custom_aten_gelu(input_x, approximate: str = "none"):
    return custom_ort.Gelu(input_x)


@onnxscript.script(custom_opset)
def custom_addandround(input_x):
    add_x = custom_opset.CustomOpOne(input_x, input_x)
    round_x = custom_opset.CustomOpTwo(add_x)
    return opset18.Cast(round_x, to=1)


@onnx_op("test.customop::CustomOpOne")
def custom_op_one(x: NDArray[T], y: NDArray[T]) -> NDArray[T]:
    return x + y


@onnx_op("test.customop::CustomOpTwo")
def custom_op_two(x: NDArray[T]) -> NDArray[np.int32]:
    return np.round(x).astype(np.int32)


class ImageClassifierModel(torch.nn.Module):
    """The network of the tutorial, for images of (batch, 1, 32, 32)."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 6, 5)
        self.conv2 = torch.nn.Conv2d(6, 16, 5)
        self.fc1 = torch.nn.Linear(16 * 5 * 5, 120)
        self.fc2 = torch.nn.Linear(120, 84)
        self.fc3 = torch.nn.Linear(84, 10)

    def forward(self, x: torch.Tensor):
        x = torch.nn.functional.max_pool2d(torch.relu(self.conv1(x)), (2, 2))
        x = torch.nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def runs_alike(net, args, program, path, **session_arguments):
    """Save, run and compare as the tutorials do."""
    program.save(path)
    session = pyops.InferenceSession(path, **session_arguments)
    feed = exporters.to_onnx_inputs(session, *args)
    assert list(feed) == [item.name for item in session.get_inputs()]
    expected = exporters.to_onnx_outputs(net(*args))
    for computed, result in zip(session.run(None, feed), expected, strict=True):
        np.testing.assert_allclose(computed, result, rtol=1e-4, atol=1e-6)


def test_an_aten_operator_as_a_function(export, model, tmp_path):
    assert exporters.registered_by("aten::add.Tensor") == "torch"
    exporters.register_translation("aten::add.Tensor", custom_aten_add)
    assert exporters.registered_by("aten::add.Tensor") == "exporters"
    net, args = model(lambda x, y: torch.ops.aten.add(x, y)), (torch.randn(3, 4), torch.randn(3, 4))
    program = export(net, args, keep_functions=True)
    proto = program.model_proto
    assert [(node.domain, node.op_type) for node in proto.graph.node] == [("custom.aten", "custom_aten_add")]
    (function,) = proto.functions
    assert (function.domain, function.name) == ("custom.aten", "custom_aten_add")
    assert [(node.domain, node.op_type) for node in function.node] == [
        ("", "Constant"), ("", "CastLike"), ("", "Mul"), ("", "Add")
    ]  # fmt: skip
    onnx.checker.check_model(proto)
    runs_alike(net, args, program, tmp_path / "add.onnx")
    # It needs nothing of ours to run.
    plain = onnxruntime.InferenceSession(proto.SerializeToString())
    np.testing.assert_array_equal(plain.run(None, exporters.to_onnx_inputs(plain, *args))[0], (args[0] + args[1]))


def test_an_operator_that_onnx_runtime_has(export, model, tmp_path):
    assert exporters.registered_by("aten::gelu") == "torch"
    exporters.register_translation("aten::gelu.default", custom_aten_gelu)
    net, args = model(lambda x: torch.ops.aten.gelu(x)), (torch.randn(3, 3),)
    program = export(net, args, keep_functions=True)
    proto = program.model_proto
    assert [(node.domain, node.op_type) for node in proto.graph.node] == [("com.microsoft", "custom_aten_gelu")]
    assert [(node.domain, node.op_type) for node in proto.functions[0].node] == [("com.microsoft", "Gelu")]
    runs_alike(net, args, program, tmp_path / "kept.onnx")

    inlined = export(net, args)
    assert [(node.domain, node.op_type) for node in inlined.model_proto.graph.node] == [("com.microsoft", "Gelu")]
    assert not inlined.model_proto.functions
    runs_alike(net, args, inlined, tmp_path / "inlined.onnx")


def test_an_operator_that_nobody_has(export, model, tmp_path):
    @torch.library.custom_op("mylibrary::addandround_op", mutates_args=())
    def addandround_op(tensor_x: torch.Tensor) -> torch.Tensor:
        return torch.round(tensor_x + tensor_x)

    @addandround_op.register_fake
    def _(tensor_x):
        return torch.empty_like(tensor_x)

    assert exporters.registered_by("mylibrary::addandround_op") is None
    exporters.register_translation("mylibrary::addandround_op", custom_addandround)
    assert exporters.registered_by("mylibrary::addandround_op") == "exporters"
    net, args = model(lambda x: addandround_op(x)), (torch.randn(3),)
    program = export(net, args, keep_functions=True)
    proto = program.model_proto
    assert [(node.domain, node.op_type) for node in proto.graph.node] == [("test.customop", "custom_addandround")]
    assert [(node.domain, node.op_type) for node in proto.functions[0].node] == [
        ("test.customop", "CustomOpOne"), ("test.customop", "CustomOpTwo"), ("", "Cast")
    ]  # fmt: skip
    runs_alike(net, args, program, tmp_path / "kept.onnx")
    runs_alike(net, args, export(net, args), tmp_path / "inlined.onnx")


def test_the_image_classifier(export, tmp_path):
    net, args = ImageClassifierModel().eval(), (torch.randn(1, 1, 32, 32),)
    program = export(net, args)
    runs_alike(net, args, program, tmp_path / "classifier.onnx", providers=["CPUExecutionProvider"])
    loaded = onnx.load(tmp_path / "classifier.onnx")
    onnx.checker.check_model(loaded)
    assert "Conv" in onnx.printer.to_text(loaded)
    assert exporters.verify(net, args, program).ok
