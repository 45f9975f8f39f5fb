"""Where an op has no kernel for a device or a type, its body computes it, and a warning says so."""

import sys

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from numpy.typing import NDArray

import exporters
import pyops

X = np.linspace(-1, 1, 3, dtype=np.float32)
MODEL = """
<ir_version: 10, opset_import: ["": 20, "missing": 1]> main ({0}[n] x) => ({0}[n] y) {{ y = missing.Negative(x) }}
<domain: "missing", opset_import: ["": 20]> Negative (x) => (y) {{ y = Neg(x) }}"""


def declared(*device_types):
    @pyops.onnx_op("missing::Negative", device_types=device_types)
    def negative(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + 7  # so that a result shows what computed it

    negative.register_decomposition(lambda x: -x)
    return negative


@pytest.fixture(autouse=True)
def no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)


def test_a_session_runs_the_body_where_there_is_no_gpu():
    declared("cuda")
    model = onnx.parser.parse_model(MODEL.format("float"))
    with pytest.warns(UserWarning, match="Negative, which has only a CUDA kernel, needs CuPy.*function of the model"):
        session = pyops.InferenceSession(model)
    assert session.run(None, {"x": X})[0].tolist() == (-X).tolist()


def test_a_session_runs_the_body_for_types_that_the_op_does_not_take():
    declared("cpu")
    assert pyops.InferenceSession(onnx.parser.parse_model(MODEL.format("float"))).run(None, {"x": X})[0][0] == 6
    model = onnx.parser.parse_model(MODEL.format("double"))
    with pytest.warns(UserWarning, match=r"instead of the kernels of missing::Negative: .*tensor\(double\)"):
        session = pyops.InferenceSession(model)
    assert session.run(None, {"x": X.astype(np.float64)})[0].tolist() == (-X).tolist()


def test_torch_calls_the_decomposition_on_a_device_without_a_kernel():
    torch_op = exporters.custom_op(declared("cuda"), "missing::negative")
    with pytest.warns(UserWarning, match=r"the decomposition at .*test_missing_kernels.py:\d+ computes tensors on cpu"):
        result = torch_op(torch.from_numpy(X))
    assert result.tolist() == (-X).tolist()


class Model(torch.nn.Module):
    def __init__(self, torch_op) -> None:
        super().__init__()
        self.torch_op = torch_op

    def forward(self, x):
        return self.torch_op(x)


@pytest.mark.parametrize(("device_types", "count"), [(("cuda",), 1), (("cpu",), 0)])
def test_an_export_that_may_fall_back_adds_bodies_of_ops_without_a_cpu_kernel(device_types, count):
    model = Model(exporters.custom_op(declared(*device_types), "missing::negative")).eval()
    program = exporters.export(model, (torch.from_numpy(X),), fallback=True, verify=False)
    assert len(program.model_proto.functions) == count
