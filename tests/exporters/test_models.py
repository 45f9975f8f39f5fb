"""Models with a declared op in torch: training, compiling, submodules, shared and large weights."""

from typing import TypeVar

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

import exporters
import pyops
from pyops import onnx_op
from pyops.errors import ModelError

T = TypeVar("T", np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


@onnx_op("models::Softsign")
def softsign(x: NDArray[T], *, slope: float = 1.0) -> NDArray[T]:
    return x / (1 + np.abs(x) * x.dtype.type(slope))


@softsign.register_shape_inference
def _(x, *, slope=1.0):
    return x


torch_softsign = exporters.custom_op(softsign, "models::softsign")


def _setup_context(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.slope = keyword_only_inputs["slope"]


def _backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad / (1 + x.abs() * ctx.slope) ** 2


torch_softsign.register_autograd(_backward, setup_context=_setup_context)


class Softsign(torch.nn.Module):
    def forward(self, x):
        return torch_softsign(x, slope=0.5)


def network():
    return torch.nn.Sequential(
        torch.nn.Linear(3, 8),
        torch.nn.Sequential(torch.nn.BatchNorm1d(8), Softsign(), torch.nn.Dropout(0.5)),
        torch.nn.Linear(8, 1),
        Softsign(),
    )


def export(module, args, **arguments):
    return exporters.export(module, args, verbose=False, **arguments)


def custom_nodes(program):
    return [node for node in program.model.graph if node.domain == "models"]


@pytest.mark.parametrize("compiled", [None, "eager", "aot_eager"])
def test_train_then_export(compiled):
    net = network().train()
    step = net if compiled is None else torch.compile(net, backend=compiled)
    x = torch.randn(64, 3)
    wanted = torch.tanh(x.sum(1, keepdim=True))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (step(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3
    assert all(parameter.grad is not None for parameter in net.parameters())
    net.eval()
    program = export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert len(custom_nodes(program)) == 2
    assert exporters.verify(net, program=program, samples=[(x,), (torch.randn(5, 3),)]).ok


@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode:UserWarning")
@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_train_mode_is_exported_as_it_is():
    net = network().train()
    program = export(net, (torch.randn(4, 3),))
    assert net.training
    assert len(custom_nodes(program)) == 2
    modes = [node.op_type for node in program.model.graph if node.op_type == "Dropout"]
    assert modes == ["Dropout"]
    assert program(torch.randn(4, 3))[0].shape == (4, 1)


@pytest.mark.parametrize(
    ("dtype", "tolerances"), [(torch.float16, {torch.float16: (2e-3, 2e-3)}), (torch.float64, {})], ids=str
)
def test_a_whole_model_of_another_dtype(dtype, tolerances):
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), Softsign(), torch.nn.Linear(8, 2)).to(dtype).eval()
    report = exporters.verify(net, (torch.randn(4, 3).to(dtype),), tolerances=tolerances)
    assert report.ok, report
    assert report.outputs[0].dtype == {torch.float16: np.float16, torch.float64: np.float64}[dtype]


def test_a_bfloat16_model(model):
    x = torch.randn(4, 3).bfloat16()
    report = exporters.verify(model(lambda x: Softsign()(Softsign()(x).mT)), (x,))
    assert report.ok, report
    assert report.outputs[0].dtype == ml_dtypes.bfloat16


def test_a_bfloat16_layer_that_onnxruntime_lacks():
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), Softsign()).bfloat16().eval()
    program = export(net, (torch.randn(4, 3).bfloat16(),))
    with pytest.raises(ModelError, match=r"has no kernel of Gemm for the types in this model.*float32") as caught:
        pyops.InferenceSession(program)
    assert "NOT_IMPLEMENTED" in str(caught.value.__cause__)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.again = Softsign()
        self.same = self.again

    def forward(self, index):
        return self.head(self.same(self.again(self.embedding(index))))


def test_tied_weights_and_a_module_used_twice():
    net = Tied().eval()
    index = torch.tensor([[0, 4], [2, 1]])
    program = export(net, (index,))
    assert len(custom_nodes(program)) == 2
    weights = [value for value in program.model.graph.initializers.values() if value.shape.numpy() == (5, 4)]
    assert len(weights) == 1
    assert exporters.verify(net, (index,), program).ok


def test_external_data(tmp_path):
    net = network().eval()
    x = torch.randn(2, 3)
    program = export(net, (x,))
    program.save(tmp_path / "model.onnx", external_data=True)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["model.onnx", "model.onnx.data"]
    assert exporters.verify(net, (x,), tmp_path / "model.onnx").ok


@pytest.mark.stress
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_more_than_two_gigabytes(dynamo, tmp_path):
    class Large(torch.nn.Module):
        def __init__(self):
            super().__init__()
            # Rows of their own: equal weights would be stored once.
            self.tables = torch.nn.ParameterList(torch.full((1 << 16, 3000), float(i)) for i in range(3))

        def forward(self, index):
            return torch_softsign(sum(table[index] for table in self.tables))

    net, index = Large().eval(), torch.tensor([1, 65535])
    with torch.no_grad():
        program = export(net, (index,), dynamo=dynamo)
    path = tmp_path / "model.onnx"
    program.save(path)
    assert sum(item.stat().st_size for item in tmp_path.iterdir()) > 2**31
    assert path.stat().st_size < 2**20
    expected = net(index).detach().numpy()
    np.testing.assert_array_equal(pyops.InferenceSession(path).run(None, {"index": index.numpy()})[0], expected)
    assert torch.equal(program(index)[0], torch.from_numpy(expected))
    program.release()  # torch keeps the weights in a folder until then


@onnx_op("models::AsType")
def as_type(x: NDArray[np.generic], *, dtype: int) -> NDArray[np.float64]:
    assert dtype == onnx.TensorProto.DOUBLE
    return x.astype(np.float64)


def test_a_dtype_argument_is_the_onnx_element_type(model):
    @torch.library.custom_op("models::as_type", mutates_args=())
    def torch_as_type(x: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype)

    torch_as_type.register_fake(lambda x, *, dtype: x.to(dtype))
    exporters.register_translation("models::as_type", as_type)
    net = model(lambda x: torch_as_type(x, dtype=torch.float64) + 1)
    (node,) = custom_nodes(export(net, (torch.ones(2),)))
    assert node.attributes["dtype"].value == onnx.TensorProto.DOUBLE
    assert exporters.verify(net, (torch.ones(2),)).ok


def symbolic(*inputs, **arguments):
    x = inputs[0]
    return torch.onnx.ops.symbolic("models::Softsign", inputs, dtype=x.dtype, shape=x.shape, version=1, **arguments)


def test_symbolic_nodes_find_the_kernel(model):
    program = export(model(lambda x: symbolic(x, attrs={"slope": 2.0})), (torch.ones(2),))
    assert program(torch.tensor([1.0, -2.0]))[0].tolist() == pytest.approx([1 / 3, -2 / 5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: symbolic(x, x), r"node 'node__symbolic' \(models::Softsign\): got 2 inputs; .* takes 1"),
        (lambda x: symbolic(x, attrs={"slopes": 2.0}), r"unknown attribute 'slopes'.*declares: slope"),
        (lambda x: symbolic(x, attrs={"slope": 2}), r"attribute 'slope' is INT in the model; it is declared float"),
        (
            lambda x: torch.onnx.ops.symbolic("models::SoftSign", (x,), dtype=x.dtype, shape=x.shape, version=1),
            r"models::SoftSign is not declared; did you mean models::Softsign\?",
        ),
    ],
)
def test_symbolic_nodes_that_do_not_fit_are_refused_at_export(model, call, message):
    with pytest.raises(exporters.ExportError, match=message):
        export(model(call), (torch.ones(2),))


@pytest.mark.parametrize("attribute", [lambda x: x.shape[0] * 0.5, lambda x: x.shape[0]])
def test_symbolic_nodes_cannot_hold_a_size(model, attribute):
    net = model(lambda x: symbolic(x, attrs={"slope": attribute(x)}))
    with pytest.raises(exporters.ExportError, match="symbolic: attribute 'slope' is computed in the model"):
        export(net, (torch.ones(2, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},))
