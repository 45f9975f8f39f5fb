"""Models that torch's exporter cannot export, trained on data that scikit-learn ships: exported, run without torch."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import exporters
from exporters import ExportError
from tests.helpers.scripts import run_plain_script

pytestmark = pytest.mark.exhaustive

TRAINING, TEST = slice(0, 1500), slice(1500, None)

WITHOUT_TORCH = """
import os, sys
sys.modules["torch"] = None
import numpy as np, pyops

folder = os.environ["FOLDER"]
given = np.load(f"{folder}/given.npz")

scores, = pyops.InferenceSession(f"{folder}/classifier.onnx").run(None, {"input": given["images"]})

step = pyops.InferenceSession(f"{folder}/kalman_filter.onnx")
state, covariance, estimates, evidence = given["state"], given["covariance"], [], 0
for row in given["rows"].swapaxes(0, 1):
    arguments = {"row": row, "variance": given["variance"], "state": state, "covariance": covariance}
    state, covariance, density = step.run(None, arguments)
    estimates.append(state)
    evidence = evidence + density

np.savez(f"{folder}/results.npz", scores=scores, estimates=np.stack(estimates, 1), evidence=evidence)
assert "exporters" not in sys.modules
"""


class Whitening(torch.nn.Module):
    """Decorrelates the features of a batch and scales them to unit variance, with as little change as that takes."""

    def forward(self, x):
        x = x - x.mean(0)
        covariance = x.mT @ x / x.shape[0] + torch.eye(x.shape[1], dtype=x.dtype) / 64
        values, vectors = torch.linalg.eigh(covariance)
        return x @ (vectors * values.rsqrt()) @ vectors.mT


class KalmanFilter(torch.nn.Module):
    """One step of a filter that reads a noisy image row by row, and knows the variance of each image's noise."""

    def __init__(self, size=8):
        super().__init__()
        self.transition = torch.nn.Parameter(0.9 * torch.eye(size))
        self.drift = torch.nn.Parameter(torch.zeros(size))
        self.process = torch.nn.Parameter(0.3 * torch.eye(size))

    def forward(self, row, variance, state, covariance):
        """The state, (batch, 8), its covariance, (batch, 8, 8), and the log density of the row, (batch,)."""
        identity = torch.eye(row.shape[1])
        state = state @ self.transition.mT + self.drift
        covariance = self.transition @ covariance @ self.transition.mT + self.process @ self.process.mT
        expected = covariance + variance[:, None, None] * identity
        innovation = row - state
        gain = torch.linalg.solve(expected, covariance, left=False)
        distance = (innovation * torch.linalg.solve(expected, innovation[..., None])[..., 0]).sum(-1)
        state = state + (gain @ innovation[..., None])[..., 0]
        return state, (identity - gain) @ covariance, -(torch.logdet(expected) + distance) / 2

    def read(self, rows, variance):
        """The estimated images, (batch, 8, 8), and their log density, (batch,)."""
        state, covariance = start(len(rows))
        estimates, evidence = [], 0
        for row in rows.unbind(1):
            state, covariance, density = self(row, variance, state, covariance)
            estimates.append(state)
            evidence = evidence + density
        return torch.stack(estimates, 1), evidence


def start(batch):
    return torch.zeros(batch, 8), torch.eye(8).expand(batch, 8, 8)


class Case(NamedTuple):
    model: torch.nn.Module
    example: tuple[torch.Tensor, ...]
    other: tuple[torch.Tensor, ...]
    """Of another batch size."""

    def export(self, **arguments: Any) -> exporters.Program:
        batch = torch.export.Dim("batch")
        shapes = tuple({0: batch} for _ in self.example)
        return exporters.export(self.model, self.example, dynamic_shapes=shapes, verbose=False, **arguments)


@pytest.fixture(scope="module")
def digits():
    """Return the images, (1797, 8, 8), of float64, and which digit each shows."""
    from sklearn.datasets import load_digits  # a second, which the quick tests need not wait for

    data = load_digits()
    return torch.from_numpy(data.images) / 16, torch.from_numpy(data.target)


@pytest.fixture(scope="module")
def noisy(digits):
    images, _ = digits
    variance = torch.empty(len(images)).uniform_(0.02, 0.2, generator=torch.manual_seed(0))
    return images.float() + torch.randn(images.shape) * variance.sqrt()[:, None, None], variance


@pytest.fixture(scope="module")
def cases(digits, noisy):
    images, labels = digits
    torch.manual_seed(0)
    linear = torch.nn.Linear
    layers = torch.nn.Flatten(), linear(64, 24), Whitening(), torch.nn.ReLU(), linear(24, 10)
    classifier = torch.nn.Sequential(*layers).double()
    train(classifier, 60, 0.01, lambda at: torch.nn.functional.cross_entropy(classifier(images[at]), labels[at]))
    kalman_filter = KalmanFilter()
    train(kalman_filter, 40, 0.05, lambda at: -kalman_filter.read(*(item[at] for item in noisy))[1].mean())
    rows, variance = (item[TEST] for item in noisy)
    return {
        "classifier": Case(classifier, (images[:50],), (images[TEST],)),
        "kalman_filter": Case(
            kalman_filter,
            (rows[:3, 0], variance[:3], *start(3)),
            (rows[:, 1], variance, *start(len(rows))),
        ),
    }


def train(model, steps, rate, loss):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(torch.randperm(TRAINING.stop)[:250]).backward()
        optimizer.step()
    model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def programs(cases):
    return {name: case.export() for name, case in cases.items()}


@pytest.mark.parametrize(("name", "missing"), [("classifier", "_linalg_eigh"), ("kalman_filter", "_linalg_solve_ex")])
def test_torchs_exporter_alone_stops(name, missing, cases):
    with pytest.raises(ExportError, match=f"no translation for aten::{missing}, which the model calls"):
        cases[name].export(kernels=False)


@pytest.mark.parametrize("name", ["classifier", "kalman_filter"])
def test_another_batch_size(name, cases, programs):
    case = cases[name]
    report = exporters.verify(case.model, program=programs[name], samples=[case.example, case.other])
    assert report.ok, report


def test_the_nodes_of_the_library(programs):
    nodes = {name: {node.op_type for node in program.model.graph if node.domain} for name, program in programs.items()}
    assert nodes == {"classifier": {"Eigh"}, "kalman_filter": {"SolveEx", "Slogdet"}}


def test_they_run_without_torch(cases, programs, digits, noisy, tmp_path, monkeypatch):
    for name, program in programs.items():
        program.save(tmp_path / f"{name}.onnx")
    images, rows, variance = (item[TEST] for item in (digits[0], *noisy))
    state, covariance = start(len(rows))
    given = {"images": images, "rows": rows, "variance": variance, "state": state, "covariance": covariance}
    np.savez(tmp_path / "given.npz", **{name: value.numpy() for name, value in given.items()})
    monkeypatch.setenv("FOLDER", str(tmp_path))
    run_plain_script(WITHOUT_TORCH, "")

    results = np.load(tmp_path / "results.npz")
    estimates, evidence = cases["kalman_filter"].model.read(rows, variance)
    np.testing.assert_allclose(results["scores"], cases["classifier"].model(images), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(results["estimates"], estimates, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results["evidence"], evidence, rtol=1e-4, atol=1e-3)

    assert (results["scores"].argmax(1) == digits[1][TEST].numpy()).mean() > 0.8
    noise, error = rows - images, results["estimates"] - images.numpy()
    assert np.square(error).mean() < noise.square().mean() / 2
