"""An export compares what it captured with the model, in torch, and undoes what the comparison changes."""

from __future__ import annotations

import ctypes
import random
import warnings

import pytest
import torch

import exporters
from exporters import ExportError
from exporters._capture import comparison
from tests.exporters._capture.capture_models import Affine, draws_many, if_on_chance

X = torch.tensor([[0.1, 0.2, 0.3], [0.9, 0.5, 0.6]])


def export(model, *args, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return exporters.export(model, args, **{"verbose": False, **arguments})


def other_while_exporting(model, x):
    return x + 1 if torch.compiler.is_exporting() else x - 1


def beside_torch(model, x):
    """Copy values in a way that no capture can see."""
    doubled, result = x * 2, torch.zeros_like(x)
    ctypes.memmove(result.data_ptr(), doubled.data_ptr(), 4 * x.numel())
    return x + result


def another_shape_while_exporting(model, x):
    return x[:1] if torch.compiler.is_exporting() else x


WRONG = {
    "values": (other_while_exporting, "export", r"output 0 off by 2, in .*capture_models.py:\d+: def forward"),
    "shape": (another_shape_while_exporting, "export", r"output 0 the captured program gives float32\[1, 3\], in"),
    "trace": (beside_torch, "trace", "output 0 off by 1.8"),
    "auto": (beside_torch, "auto", "output 0 off by 1.8"),
}


@pytest.mark.parametrize(("function", "capture", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_capture_is_an_error(function, capture, message):
    model = Affine(function)
    for verify in (None, True):
        with pytest.raises(ExportError, match="does not compute what the model does for the example") as caught:
            export(model, X, capture=capture, verify=verify)
        assert caught.match(message)
        assert caught.match("verify=False exports it nevertheless")
    program = export(model, X, capture=capture, verify=False)
    assert program.unverified == "verify=False"
    assert not exporters.verify(model, (X,), program).ok
    explained = exporters.explain(model, (X,), capture=capture)
    assert "does not compute what the model does" in explained.problem


def test_auto_goes_on_to_a_capture_that_is_right():
    model = Affine(other_while_exporting)
    program = export(model, X, capture="auto")
    assert torch.equal(program(X)[0], model(X))
    assert program.unverified == ""


def test_keyword_arguments_and_numbers_are_compared(model):
    net = model(lambda x, *, y, by=3: {"sum": x * by + y["a"], "size": x.shape[0], "none": None, "integers": x.int()})
    program = exporters.export(net, (X,), kwargs={"y": {"a": 2 * X}, "by": 4}, verbose=False)
    assert program.unverified == ""


def test_nothing_else_is_verify():
    with pytest.raises(ExportError, match="verify is 'capture'; expected None, True or False"):
        export(Affine(other_while_exporting), X, verify="capture")


def changing(model, x):
    return x + random.random()


SKIPPED = {
    "draws": (draws_many, X, "export", "the model draws random numbers"),
    "chance": (if_on_chance, X, "trace", "the model draws random numbers"),
    "other values": (changing, X, "export", "the model computes other values in each run"),
    "device": (lambda model, x: x + 1, X.to("meta"), "export", "the model does not run on the example arguments: Not"),
}


@pytest.mark.parametrize(("function", "x", "capture", "reason"), SKIPPED.values(), ids=SKIPPED)
def test_what_cannot_be_compared_says_so(function, x, capture, reason):
    program = export(Affine(function), x, capture=capture)
    assert program.unverified.startswith(reason)
    assert repr(program).endswith(f"not compared with the model: {program.unverified}")


def test_large_models_are_not_compared(monkeypatch):
    assert comparison.MOST_PARAMETERS >= 100_000_000
    model = Affine(other_while_exporting)
    monkeypatch.setattr(comparison, "MOST_PARAMETERS", 12)
    with pytest.raises(ExportError):
        export(model, X)
    monkeypatch.setattr(comparison, "MOST_PARAMETERS", 11)
    assert export(model, X).unverified == "the model has more than 11 parameters"


def test_what_was_compared_does_not_say_so():
    program = export(torch.nn.Linear(3, 2).eval(), X)
    assert program.unverified == ""
    assert "compared" not in repr(program)
    assert export(torch.nn.Linear(3, 2).eval(), X, dynamo=False).unverified == "dynamo=False"


class Stateful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(()))
        self.calls, self.cache = 0, {}

    def forward(self, x):
        self.calls += 1
        self.cache["last"] = x
        self.count += 1
        with torch.no_grad():
            self.weight.mul_(2)
        x.mul_(self.calls)
        return self.norm(x) * self.weight + self.count


@pytest.mark.parametrize("capture", ["export", "auto", "trace"])
def test_the_comparison_changes_nothing(capture):
    model = Stateful()
    model.weight.grad = torch.ones(3)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    random_state, x = torch.get_rng_state(), X.clone()
    program = export(model, x, capture=capture)
    assert program.unverified == ""
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert (model.calls, model.cache, model.training) == (0, {}, True)
    assert torch.equal(model.weight.grad, torch.ones(3))
    assert model.weight.requires_grad
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.is_grad_enabled()


def test_the_comparison_compiles_nothing():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    model = torch.nn.Linear(3, 2).eval()
    program = export(torch.compile(model, backend=backend), X)
    assert (program.unverified, compiled) == ("", [])


def test_without_it_the_model_does_not_run():
    runs = []

    def function(model, x):
        if not torch.compiler.is_exporting():
            runs.append(1)
        return x + 1

    model = Affine(function)
    export(model, X, verify=False)
    assert runs == []
    exporters.verify(model, (X,))
    assert runs == [1]
    export(model, X)
    assert runs == [1, 1]


def half(dtype):
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)) for _ in range(4)]
    return torch.nn.Sequential(*layers).to(dtype).eval(), torch.randn(3, 64).to(dtype)


@pytest.mark.filterwarnings("ignore:ONNX Runtime has no kernel for some nodes")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_rounding_of_a_type_is_no_difference(dtype):
    net, x = half(dtype)
    program = export(net, x, verify=True, fill_missing=True)
    report = exporters.verify(net, (x,), program, fill_missing=True)
    assert report.ok
    assert report.outputs[0].atol < 0.2


def test_what_the_user_allows_is_all_that_is_allowed():
    net, x = half(torch.float16)
    program = export(net, x)
    assert exporters.verify(net, (x,), program).ok
    assert not exporters.verify(net, (x,), program, tolerances={torch.float16: (1e-3, 1e-5)}).ok


def test_more_than_the_rounding_is_a_difference():
    net, x = half(torch.float16)
    program = export(net, x)
    wrong = torch.nn.Sequential(net, Affine(lambda model, y: y + 0.25))
    report = exporters.verify(wrong, (x,), program)
    assert not report.ok
