"""``exporters.export(..., replace=)``: ops in place of the nodes that an export makes."""

import warnings

import pytest
import torch
from torch import nn

import exporters
import pyops
from pyops.kernels.transformers import rms_norm, swiglu


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16))
        self.gate, self.up = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False)

    def forward(self, x):
        normed = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
        return nn.functional.silu(self.gate(normed)) * self.up(normed)


@pytest.mark.parametrize("bodies", [False, True])
def test_ops_replace_the_nodes_of_an_export(bodies):
    torch.manual_seed(0)
    model, x = Layer().eval(), torch.randn(2, 3, 16)
    shapes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    program = exporters.export(model, (x,), dynamic_shapes=shapes, replace=[rms_norm, swiglu], bodies=bodies)
    assert program.replaced.counts == {"pyops::RmsNorm": 1, "pyops::SwiGlu": 1}
    assert [node.op_type for node in program.model_proto.graph.node].count("SwiGlu") == 1
    assert len(program.model_proto.functions) == 2 * bodies
    other = torch.randn(4, 5, 16)
    torch.testing.assert_close(program(other)[0], model(other))
    assert exporters.verify(model, (other,), program).ok


def test_torch_s_own_export_has_the_same_places():
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):  # of torch itself
        program = torch.onnx.export(Layer().eval(), (torch.randn(2, 3, 16),), dynamo=True, verbose=False)
    replaced = pyops.replace(program, [rms_norm, swiglu])
    assert set(replaced.counts.values()) == {1}
    assert "aten.mul" in str(replaced.model.graph.node[0].metadata_props)
