"""The first node that differs."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
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
