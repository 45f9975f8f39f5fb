"""ONNX Runtime's contrib operators in place of torch's translations."""

import pytest
import torch
from torch.nn import functional

import exporters
from tests.helpers.tiers import exhaustive, first_quick

pytestmark = pytest.mark.usefixtures("own_registrations")


@pytest.fixture(autouse=True)
def _contrib_ops(own_registrations):
    exporters.register_contrib_ops()


def domains(program):
    """Domain by op type, Constant left out."""
    return {node.op_type: node.domain for node in program.model_proto.graph.node if node.op_type != "Constant"}


@pytest.mark.parametrize(
    ("function", "op_type"),
    [
        exhaustive(torch.inverse, "Inverse"),
        (torch.linalg.inv, "Inverse"),
        (functional.gelu, "Gelu"),
        (lambda x: functional.gelu(x, approximate="tanh"), "FastGelu"),
        exhaustive(torch.triu, "Trilu"),
        (lambda x: torch.triu(x, 1), "Trilu"),
        (lambda x: torch.tril(x, -1), "Trilu"),
    ],
)
def test_operators(export, model, function, op_type):
    net, x = model(lambda x: function(x)), torch.randn(2, 3, 3)
    program = export(net, (x,))
    assert domains(program) == {op_type: "com.microsoft"}
    assert program.model.opset_imports["com.microsoft"] == 1
    assert exporters.verify(net, (x,), program).ok


GRID = (torch.linspace(-1, 1, 40).reshape(1, 2, 4, 5).sin(), torch.linspace(-1.2, 1.2, 60).reshape(1, 5, 6, 2))


def test_grid_sampler(export, model):
    net = model(lambda x, grid: functional.grid_sample(x, grid, align_corners=True))
    program = export(net, GRID)
    assert domains(program) == {"GridSample": "com.microsoft"}
    assert exporters.verify(net, GRID, program).ok


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", first_quick(["reflection", "zeros", "border"]))
@pytest.mark.parametrize("align_corners", first_quick([True, False]))
def test_modes_of_the_grid_sampler(model, mode, padding_mode, align_corners):
    how = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    net = model(lambda x, grid: functional.grid_sample(x, grid, **how))
    program = exporters.export(net, GRID, dynamo=False)
    assert domains(program) == {"GridSample": "com.microsoft"}
    assert exporters.verify(net, GRID, program).ok


def test_types_without_a_kernel_are_left_to_torch(export, model):
    net, x = model(lambda x: (x.triu(), x.double().inverse())), torch.eye(3, dtype=torch.int32) * 2
    program = export(net, (x,))
    assert domains(program) == {"Trilu": "", "Cast": "", "Inverse": "com.microsoft"}
    assert exporters.verify(net, (x,), program).ok


def test_a_type_that_torch_has_no_way_with_either(model):
    with pytest.raises(exporters.ExportError, match=r"nothing translates aten::linalg_inv .*takes this call"):
        exporters.export(model(torch.linalg.inv), (torch.eye(2, dtype=torch.complex64),), dynamo=False)


def test_float64_is_left_to_torch_where_the_kernel_is_less_precise(export, model):
    net, x = model(lambda x: functional.gelu(x, approximate="tanh")), torch.linspace(-4, 4, 9, dtype=torch.float64)
    assert exporters.verify(net, (x,), export(net, (x,))).ok


def test_volumes_are_left_to_torch(model):
    net = model(lambda x, grid: functional.grid_sample(x, grid, align_corners=True))
    args = (torch.randn(1, 1, 2, 3, 4), torch.rand(1, 2, 2, 2, 3))
    program = exporters.export(net, args, verbose=False)
    assert domains(program)["GridSample"] == ""
    assert exporters.verify(net, args, program).ok


def test_onnx_runtimes_own_torch_operators(export, model):
    @torch.library.custom_op("onnxruntime::UnfoldTensor", mutates_args=())
    def unfold_tensor(x: torch.Tensor, dim: int, size: int, step: int) -> torch.Tensor:
        return x.unfold(dim, size, step).clone()

    @unfold_tensor.register_fake
    def _(x, dim, size, step):
        return x.unfold(dim, size, step).clone()

    net, x = model(lambda x: unfold_tensor(x, 1, 2, 3)), torch.randn(2, 8)
    program = export(net, (x,))
    assert domains(program) == {"UnfoldTensor": "com.microsoft"}
    assert exporters.verify(net, (x,), program).ok

    @torch.library.custom_op("onnxruntime::DynamicTimeWarping", mutates_args=())
    def dynamic_time_warping(x: torch.Tensor) -> torch.Tensor:
        # The cheapest way from corner to corner of a matrix of equal costs is its diagonal.
        return torch.arange(len(x), dtype=torch.int32).repeat(2, 1)

    @dynamic_time_warping.register_fake
    def _(x):
        return torch.empty(2, len(x), dtype=torch.int32)

    net, x = model(lambda x: dynamic_time_warping(x)), torch.ones(4, 4)
    program = export(net, (x,))
    assert domains(program) == {"DynamicTimeWarping": "com.microsoft"}
    assert exporters.verify(net, (x,), program).ok
