"""torch's own comparison of the values inside a model, on a program that `exporters.export` returned."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.onnx.verification import verify_onnx_program

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
    found = verify_onnx_program(program, (torch.ones(2),), compare_intermediates=True)
    differences = {item.name: item.max_abs_diff for item in found}
    assert (differences["twice"], differences["drift"]) == (0, 0.5)
