"""Demo on real data: declare an operator, train with it, export the model, run it and compare.

``python -m pyops demo`` runs it. The data are the 1,797 handwritten digits that scikit-learn
ships, with salt-and-pepper noise added. The operator is a median pooling that removes the noise; neither
``torch.onnx`` nor ONNX Runtime has it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pyops
from pyops import onnx_op
from pyops._support.progress import progress, track

from ._custom_op import custom_op
from ._export import export, verify

EPOCHS = 25
BATCH = 64
NOISE = 0.1


@onnx_op("demo::MedianPool")
def median_pool(x: NDArray[np.float32], *, size: int = 3, threshold: float = 0.0) -> NDArray[np.float32]:
    """Replace each pixel that differs by more than `threshold` from the median around it with that median.

    Images are (batch, channel, height, width).
    """
    margin = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)), mode="edge")
    windows = sliding_window_view(padded, (size, size), axis=(2, 3))
    median = np.median(windows, axis=(-2, -1))
    return np.where(np.abs(x - median) > threshold, median, x).astype(np.float32)


@median_pool.register_shape_inference
def _(x: pyops.shapes.TensorSpec, *, size: int = 3, threshold: float = 0.0) -> pyops.shapes.TensorSpec:
    return x


torch_median_pool = custom_op(median_pool, "demo::median_pool")


class ImageClassifier(torch.nn.Module):
    """The convolutional classifier of PyTorch's ONNX tutorial, sized for 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = torch.nn.Linear(32 * 2 * 2, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the ten digits, (batch, 10), for images of (batch, 1, 8, 8)."""
        x = torch_median_pool(x, size=3, threshold=0.7)
        x = torch.nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(torch.flatten(x, 1)))
        scores: torch.Tensor = self.fc2(x)
        return scores


def run(out: Path | None = None) -> None:
    """Run the demo and print what it finds.

    Parameters
    ----------
    out : Path, optional
        Existing folder to keep the model in.
    """
    console = Console()
    console.print("[bold]pyops demo[/]: handwritten digits, denoised by an operator that is one Python function\n")
    x_train, x_test, y_train, y_test = noisy_digits()
    with progress("training"):
        model = train(x_train, y_train)
    with tempfile.TemporaryDirectory() as scratch:
        path = (out or Path(scratch)) / "digits.onnx"
        program = export(model, (torch.from_numpy(x_test[:4]),), path, dynamic_shapes=({0: "batch"},))
        onnx.checker.check_model(path)
        report = verify(model, (torch.from_numpy(x_test),), program)
        console.print(str(report), end="\n\n")
        scores = pyops.InferenceSession(path).run(None, {"x": x_test})[0]
        right = np.mean(scores.argmax(1) == y_test)
        console.print(f"{right:.1%} of {len(x_test)} test images are classified correctly")
        if out is not None:
            console.print(f"the model is saved as {path}")
    if not report.ok:
        raise SystemExit("torch and ONNX Runtime disagree")


def noisy_digits() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return train images, test images, train labels and test labels.

    Images are (n, 1, 8, 8) in [0, 1], with a tenth of the pixels set to black or white.
    """
    digits = load_digits()
    images = digits.images[:, None].astype(np.float32) / 16
    random = np.random.default_rng(0)
    struck = random.random(images.shape) < NOISE
    images[struck] = random.integers(0, 2, images.shape)[struck]
    return tuple(train_test_split(images, digits.target.astype(np.int64), test_size=0.25, random_state=0))


def train(images: NDArray[np.float32], labels: NDArray[np.int64]) -> ImageClassifier:
    """Return a classifier trained on the images, in evaluation mode."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # such small images are slower on several threads
    model = ImageClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in track(range(EPOCHS), "training"):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
    return model.eval()
