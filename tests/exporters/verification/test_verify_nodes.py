"""The first node that differs, and the reference engine as a third opinion."""

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

import exporters
import pyops
from pyops import onnx_op


@onnx_op("verify_nodes::Twice")
def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x + x


@twice.register_shape_inference
def _(x):
    return x


torch_twice = exporters.custom_op(twice, "verify_nodes::twice")


def export(module, args, **arguments):
    return exporters.export(module, args, verbose=False, **arguments)


@onnx_op("verify_nodes::Drift")
def drift(x: NDArray[np.float32], *, by: float) -> NDArray[np.float32]:
    drifts.append(by)
    return x + np.float32(by * (len(drifts) - 1))  # the first call is torch's


@drift.register_shape_inference
def _(x, *, by):
    return x


drifts: list[float] = []
torch_drift = exporters.custom_op(drift, "verify_nodes::drift")


def test_the_first_node_that_differs(model):
    net = model(lambda x: torch.relu(torch_drift(torch_twice(x), by=0.5)) - 1)
    program = export(net, (torch.ones(2),))
    drifts.clear()
    report = exporters.verify(net, (torch.ones(2),), program, intermediates=True)
    assert not report.ok
    found = [(item.name, item.node.split()[0]) for item in report.intermediates]
    assert found[:3] == [("twice", "verify_nodes::Twice"), ("drift", "verify_nodes::Drift"), ("relu", "ai.onnx::Relu")]
    assert [item.ok for item in report.intermediates[:3]] == [True, False, False]
    first = report.first_difference
    assert first.name == "drift"
    assert "the first node that differs is verify_nodes::Drift 'node_drift': its output 'drift' is off by" in str(
        report
    )


def test_intermediates_that_agree(model):
    net = model(lambda x, *, y: {"a": torch_twice(x) * y, "b": [(x + y).sum(0)]})
    args, kwargs = (torch.randn(4, 3),), {"y": torch.randn(4, 3)}
    report = exporters.verify(net, args, kwargs=kwargs, intermediates=True)
    assert report.ok
    assert len(report.intermediates) >= 4
    assert report.first_difference is None


def test_intermediates_need_torchs_graph(model):
    net = model(lambda x: torch_twice(x))
    proto = export(net, (torch.ones(2),)).model_proto
    with pytest.raises(
        exporters.ExportError, match=r"needs the program that exporters.export returned.*got ModelProto"
    ):
        exporters.verify(net, (torch.ones(2),), proto, intermediates=True)


def test_the_reference_engine_agrees(model):
    net = model(lambda x: (torch_twice(x), x.sum()))
    report = exporters.verify(net, samples=[(torch.ones(2),)] * 2, reference=True)
    assert report.ok
    assert [item.reference for item in report.outputs] == ["both"] * 4
    assert str(report).splitlines()[1].endswith("ok   reference agrees with")


def test_whose_side_the_reference_engine_takes(model):
    net, x = model(lambda x: (torch_twice(x), x + 1)), torch.ones(2)
    program = export(net, (x,), output_names=["twice", "next"])
    changed = model(lambda x: (torch_twice(x) + 1, x + 1))
    report = exporters.verify(changed, (x,), program, reference=True)
    assert [(item.ok, item.reference) for item in report.outputs] == [(False, "ONNX Runtime"), (True, "both")]
    assert str(report).startswith(
        "torch and ONNX Runtime differ in 1 of 2 outputs; there the reference engine agrees with ONNX Runtime\n"
    )
    assert "<td>ONNX Runtime</td>" in report._repr_html_()
    more = exporters.verify(model(lambda x: (torch_twice(x), x + 1, x)), (x,), program, reference=True)
    assert [item.reference for item in more.outputs] == ["both", "both", "neither"]
    allowed = exporters.verify(changed, (x,), program, reference=True, tolerances={torch.float32: (0, 2)})
    assert [item.reference for item in allowed.outputs] == ["both", "both"]


def test_where_only_onnx_runtime_is_wrong(model, monkeypatch):
    net, x = model(lambda x: torch_twice(x)), torch.ones(2)
    run = pyops.InferenceSession.run
    monkeypatch.setattr(pyops.InferenceSession, "run", lambda *args: [y + 1 for y in run(*args)])
    report = exporters.verify(net, (x,), reference=True)
    assert [(item.ok, item.reference) for item in report.outputs] == [(False, "torch")]


def test_a_kernel_that_never_gives_the_same(model):
    net, x = model(lambda x: torch_drift(x, by=0.5)), torch.ones(2)
    drifts.clear()
    report = exporters.verify(net, (x,), export(net, (x,)), reference=True)
    assert report.outputs[0].reference == "neither"


def test_the_reference_engine_on_a_file_with_external_data(tmp_path):
    net, x = torch.nn.Linear(64, 64).eval(), torch.randn(2, 64)
    export(net, (x,)).save(tmp_path / "model.onnx", external_data=True)
    report = exporters.verify(net, (x,), tmp_path / "model.onnx", reference=True)
    assert [item.reference for item in report.outputs] == ["both"]


def test_the_reference_engine_needs_a_model_in_onnx_format(model, tmp_path):
    net, x, path = model(lambda x: x + 1), torch.ones(2), tmp_path / "model.ort"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    pyops.InferenceSession(export(net, (x,)).model_proto, options)
    assert exporters.verify(net, (x,), path).ok
    with pytest.raises(exporters.ExportError, match="reference=True needs a model in ONNX's format"):
        exporters.verify(net, (x,), path, reference=True)


def test_the_reference_engine_needs_to_know_every_operator(model, own_registrations):
    exporters.register_translation(
        "aten::gelu", lambda x, *, approximate="none": exporters.opset("com.microsoft").Gelu(x)
    )
    net = model(lambda x: torch.nn.functional.gelu(x))
    assert exporters.verify(net, (torch.ones(2),)).ok
    with pytest.raises(exporters.ExportError, match=r"cannot give an opinion on this model: .*Gelu.*leave out ref"):
        exporters.verify(net, (torch.ones(2),), reference=True)
