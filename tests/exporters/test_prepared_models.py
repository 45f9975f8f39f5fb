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


def test_a_branch_of_a_scripted_module_is_listed_with_its_line():
    model = nn.Sequential(nn.ReLU(), torch.jit.script(Branching())).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        program = exporters.export(model, (X,), verbose=False, capture="trace")
    line = Branching.forward.__code__.co_firstlineno
    assert [(item.value, item.file, item.line) for item in program.decisions] == [("True", __file__, line)]


@pytest.mark.parametrize(
    "model", [torch.jit.script, lambda module: torch.jit.trace(module, X)], ids=["script", "trace"]
)
def test_a_model_that_is_scripted_as_a_whole_is_refused(model):
    with pytest.raises(
        ExportError, match=r"the model is a ScriptModule as a whole.*; pass the module that was scripted"
    ):
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
