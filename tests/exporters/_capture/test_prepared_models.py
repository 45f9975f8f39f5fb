"""Models with scripted parts, and models that another export was given before."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import exporters
from exporters import CaptureWarning, ExportError
from tests.helpers.tiers import exhaustive

X = torch.tensor([[0.1, -0.2, 0.3], [0.9, 0.5, -2.6]])

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.(script|trace|trace_method)` is deprecated:DeprecationWarning"
)


class Scaling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * 2 + 1


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if bool(x.sum() > 0) else x


class Caching(nn.Module):
    """A module that stores a table for as many rows as it has seen, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rates", torch.tensor([0.5, 0.1, 0.2]), persistent=False)
        self.register_buffer("table", None, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None or self.table.shape[0] < x.shape[0]:
            self.register_buffer("table", torch.arange(x.shape[0])[:, None] * self.rates, persistent=False)
        return x * self.table[: x.shape[0]].cos()


@pytest.mark.parametrize("capture", ["export", "trace", exhaustive("auto")])
def test_a_scripted_module_is_a_part_of_the_model(capture):
    model = nn.Sequential(nn.ReLU(), torch.jit.script(Scaling())).eval()
    dynamic = {"dynamic_shapes": ({0: "batch"},)} if capture == "export" else {}
    program = exporters.export(model, (X,), verbose=False, capture=capture, **dynamic)
    given = torch.cat([X, -X]) if dynamic else -X
    np.testing.assert_allclose(program(given)[0], model(given).detach(), rtol=1e-5)


@pytest.mark.parametrize("capture", ["trace", "auto"])
def test_a_branch_of_a_scripted_module_is_listed_with_its_line(capture):
    model = nn.Sequential(nn.ReLU(), torch.jit.script(Branching())).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        program = exporters.export(model, (X,), verbose=False, capture=capture)
    line = Branching.forward.__code__.co_firstlineno
    assert [(item.value, item.file, item.line) for item in program.decisions] == [("True", __file__, line)]


@pytest.mark.parametrize(
    "model", [torch.jit.script, lambda module: torch.jit.trace(module, X)], ids=["script", "trace"]
)
def test_a_model_that_is_scripted_as_a_whole_is_refused(model):
    with pytest.raises(ExportError, match=r"^a whole ScriptModule cannot be captured; pass the module it was made of"):
        exporters.export(model(Scaling()).eval(), (X,), verbose=False)


@pytest.mark.filterwarnings("ignore")  # torch's own, about the buffers
@pytest.mark.parametrize("arguments", [{}, {"dynamic_shapes": ({0: "n"},)}, {"capture": "trace"}], ids=str)
def test_a_model_that_torch_has_exported_before(arguments):
    model = Caching().eval()
    fresh = copy.deepcopy(model)
    torch.onnx.export(model, (X,), dynamo=True, verbose=False)
    assert "FakeTensor" in str(type(model.table))
    program = exporters.export(model, (X,), verbose=False, **arguments)
    np.testing.assert_allclose(program(-X)[0], fresh(-X), rtol=1e-5)


@pytest.mark.filterwarnings("ignore")  # torch's own, about its quantization
@pytest.mark.parametrize("capture", ["export", "trace", "auto"])
@pytest.mark.parametrize("part", [nn.Linear(3, 3), exhaustive(nn.LSTM(3, 3))])
def test_a_quantized_module_is_refused_before_the_capture(part, capture):
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(part), dtype=torch.qint8)
    with pytest.raises(ExportError, match=r"^quantized modules cannot be captured; export the float model"):
        exporters.export(model, (X,), verbose=False, capture=capture)


class Packing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=2)[0]


@pytest.mark.filterwarnings("ignore")  # of the TorchScript exporter
def test_packed_sequences_with_other_lengths_by_the_torchscript_exporter():
    model, args = Packing().eval(), (torch.stack([X, -X]), torch.tensor([2, 1]))
    program = exporters.export(model, args, verbose=False, dynamo=False)
    others = torch.stack([2 * X, X]), torch.tensor([1, 2])
    np.testing.assert_allclose(program(*others)[0], model(*others).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("capture", ["export", "trace"])
def test_a_loop_without_a_translation_is_named_with_its_line(model, capture):
    from torch._higher_order_ops.map import map as mapped

    with pytest.raises(ExportError, match=r"no translation for map_impl: .*test_prepared_models.py:\d+: ") as caught:
        exporters.export(model(lambda x: mapped(torch.sin, x)), (X,), verbose=False, capture=capture)
    assert "depends on data" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_a_model_with_a_loop_runs_after_a_trace(model):
    from torch._higher_order_ops.scan import scan

    module = model(lambda x: scan(lambda total, row: (total + row, total * row), torch.zeros(3), x)[1])
    program = exporters.export(module, (X,), verbose=False, capture="trace")
    np.testing.assert_allclose(program(-X)[0], module(-X), rtol=1e-6)
