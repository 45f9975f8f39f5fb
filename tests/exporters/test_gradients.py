"""Models that compute gradients themselves, and tensors that no capture sees."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import exporters
from exporters import ExportError
from tests.exporters._capture.capture_models import Affine
from tests.helpers.tiers import exhaustive, first_quick

X = torch.tensor([[0.1, -0.2, 0.3], [0.9, 0.5, -2.6]])
IMAGE = torch.linspace(-2, 2, 2 * 2 * 7 * 8).reshape(2, 2, 7, 8).sin()


class Gradient(nn.Module):
    """The gradient of a module's sum by its input, as the forces of an interatomic potential are."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.module(x).sum(), x)[0]


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


def check(model: nn.Module, x: torch.Tensor, **arguments) -> None:
    """Compare a model at the example, at other values, and at another size if that is dynamic."""
    torch.manual_seed(0)
    program = exporters.export(model.eval(), (x.clone(),), verbose=False, **arguments)
    others = [-2 * x] + [torch.cat([x, 2 * x])] * ("dynamic_shapes" in arguments)
    for given in (x, *others):
        np.testing.assert_allclose(program(given)[0], model(given.clone()).detach(), rtol=1e-3, atol=1e-4)
    assert program.decisions == ()


ACTIVATIONS = [nn.SiLU, nn.Tanh, *map(exhaustive, [nn.Mish, nn.GELU, nn.ReLU, nn.Sigmoid, nn.Softplus, nn.ELU])]


@pytest.mark.parametrize("capture", ["export", "trace", exhaustive("auto")])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_that_need_saved_tensors(activation, capture):
    dynamic = {} if capture == "trace" else {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)}
    model = Gradient(nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 1)))
    check(model, X, capture=capture, **dynamic)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), IMAGE),
        exhaustive(nn.Sequential(nn.Conv2d(2, 4, 3, 3, dilation=2, padding=2, groups=2), nn.Tanh()), IMAGE),
        exhaustive(nn.Sequential(nn.Conv1d(7, 3, 3, 2, 1), nn.Tanh()), IMAGE[:, 0]),
        exhaustive(nn.Sequential(nn.LayerNorm(8), nn.Softmax(-1), nn.Linear(8, 2)), IMAGE),
        exhaustive(Attention(), IMAGE),
    ],
    ids=["convolution", "dilated", "one dimension", "normalization", "attention"],
)
def test_gradients_of_layers(module, x):
    check(Gradient(module), x, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def backward(x):
    x = x.detach().requires_grad_()
    x.sin().pow(2).sum().backward()
    return x.grad


def twice(x):
    x = x.requires_grad_()
    (gradient,) = torch.autograd.grad(x.tanh().sum(), x, create_graph=True)
    return torch.autograd.grad(gradient.pow(2).sum(), x)[0]


def through_a_factorization(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.linalg.cholesky(x @ x.T + torch.eye(2)).sum(), x)[0]


def of_a_variance(x):
    x = x.detach().requires_grad_()
    loss = torch.nn.functional.gaussian_nll_loss(torch.zeros_like(x), torch.ones_like(x), x.abs(), eps=0.5)
    return torch.autograd.grad(loss, x)[0]


FUNCTIONS = {
    "rows": torch.vmap(torch.func.jacrev(lambda x: x.tanh().cumsum(0))),
    "forward mode": torch.func.jacfwd(lambda x: x.sin().sum(0)),
    "hessian": torch.func.hessian(lambda x: (x.tanh() * x.cos()).sum()),
    "functional": (torch.func.grad(lambda x: x.tanh().sum())),
    "directional": (lambda x: torch.func.jvp(torch.tanh, (x,), (x,))[1]),
    "jacobian": (lambda x: torch.autograd.functional.jacobian(lambda y: y.tanh().sum(0), x)),
    "backward": (backward),
    "twice": (twice),
    "of a variance": of_a_variance,
    "factorization": (through_a_factorization),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch's forward mode
@pytest.mark.parametrize("capture", first_quick(["export", "trace"]))
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_that_differentiate(function, capture):
    check(Affine(lambda model, x: function(x)), X, capture=capture)


@pytest.mark.parametrize("capture", ["export", "trace"])
def test_the_steps_of_an_optimizer(capture):
    def function(model, x):
        found = model.linear(x).tanh().sum()
        (weight, bias) = torch.autograd.grad(found, list(model.linear.parameters()))
        fitted = torch.zeros_like(x).requires_grad_()
        optimizer = torch.optim.SGD([fitted], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (fitted - x).pow(2).sum().backward()
            optimizer.step()
        return weight, bias, fitted.detach()

    model = Affine(function)
    program = exporters.export(model, (X,), verbose=False, capture=capture)
    for found, expected in zip(program(-X), model(-X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_explanation_of_gradients():
    report = exporters.explain(Gradient(nn.Sequential(nn.Linear(3, 2), nn.Tanh())).eval(), (X,))
    assert report.problem == ""
    assert "aten::tanh" in str(report)


def test_a_gradient_without_a_translation_is_named_with_its_line():
    model = Gradient(nn.Sequential(nn.Linear(3, 4), nn.LSTM(4, 2)))
    with pytest.raises(ExportError, match=r"test_gradients.py:\d+: return torch.autograd.grad\(self.module\(x\)"):
        exporters.export(model.eval(), (X,), verbose=False)


@pytest.mark.parametrize("capture", ["export", "trace", "auto"])
def test_a_tensor_that_no_capture_sees_is_refused_with_the_line_that_uses_it(capture):
    def function(model, x):
        with ThreadPoolExecutor(1) as pool:
            computed = pool.submit(torch.sin, x).result()
        return x + computed

    with pytest.raises(ExportError, match=r"does not see .*, which this line uses: .*py:\d+: return x \+ computed\n"):
        exporters.export(Affine(function), (X,), verbose=False, capture=capture)
