"""What an op is, in torch: a wrong kernel is found by it, without an expected value."""

from typing import TypeVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
import pyops
from pyops.testing import check

Float = TypeVar("Float", np.float16, np.float32, np.float64)
Single = TypeVar("Single", np.float32, np.float64)


def root_mean_square(x, w, *, eps=1e-6):
    return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def wide(kernel):
    """Compute in float64, as a right kernel for float16 may."""
    return lambda x, w, eps: kernel(x.astype(np.float64), w, eps).astype(x.dtype)


def mean(x, axis=-1):
    return np.mean(np.square(x), axis, keepdims=True)


NORMS = {
    "right": wide(lambda x, w, eps: w * x / np.sqrt(mean(x) + eps)),
    "axis": wide(lambda x, w, eps: w * x / np.sqrt(mean(x, 0) + eps)),
    "all axes": wide(lambda x, w, eps: w * x / np.sqrt(np.mean(x * x) + eps)),
    "fixed epsilon": wide(lambda x, w, eps: w * x / np.sqrt(mean(x) + 1e-6)),
    "other epsilon": wide(lambda x, w, eps: w * x / np.sqrt(mean(x) + 2 * eps)),
    "no epsilon": wide(lambda x, w, eps: w * x / np.sqrt(mean(x))),
    "epsilon outside": wide(lambda x, w, eps: w * x / (np.sqrt(mean(x)) + eps)),
    "epsilon as a bound": wide(lambda x, w, eps: w * x / np.sqrt(np.maximum(mean(x), eps))),
    "sum": wide(lambda x, w, eps: w * x / np.sqrt(np.sum(x * x, -1, keepdims=True) + eps)),
    "no root": wide(lambda x, w, eps: w * x / (mean(x) + eps)),
    "no weight": wide(lambda x, w, eps: x / np.sqrt(mean(x) + eps)),
    "one plus weight": wide(lambda x, w, eps: (1 + w) * x / np.sqrt(mean(x) + eps)),
    "mean taken off": wide(lambda x, w, eps: w * (x - x.mean(-1, keepdims=True)) / np.sqrt(mean(x) + eps)),
    "missing cast": lambda x, w, eps: (w.astype(np.float16) * x / np.sqrt(mean(x) + eps)).astype(x.dtype),
    "wrong cast": lambda x, w, eps: (w * x.astype(np.float16) / np.sqrt(mean(1.0 * x) + eps)).astype(x.dtype),
    "integers": wide(lambda x, w, eps: w * np.trunc(x) / np.sqrt(mean(x) + eps)),
    "the first two rows": wide(lambda x, w, eps: np.concatenate([w * x[:2] / np.sqrt(mean(x[:2]) + eps), x[2:]])),
}


@pytest.mark.parametrize("mistake", NORMS)
def test_a_mistake_in_a_norm_is_found_without_an_expected_value(mistake):
    @pyops.onnx_op("found::Norm")
    def norm(x: NDArray[Float], w: NDArray[Float], *, eps: float = 1e-6) -> NDArray[Float]:
        return NORMS[mistake](x, w, eps)

    norm.register_decomposition(root_mean_square)
    x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(2, 6)
    report = check(norm, x, np.linspace(1, 2, 6, dtype=np.float32), checks="decomposition", raise_exception=False)
    assert report["decomposition"].status == ("passed" if mistake == "right" else "failed"), report


def halves(x):
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def rotated(x, cos, sin):
    first, second = halves(x)
    return x * cos + np.concatenate([-second, first], -1) * sin


OTHERS = {
    "right": rotated,
    "sign": lambda x, cos, sin: x * cos - np.concatenate([-halves(x)[1], halves(x)[0]], -1) * sin,
    "order": lambda x, cos, sin: x * cos + np.concatenate([*halves(x)], -1) * sin,
    "angles exchanged": lambda x, cos, sin: rotated(x, sin, cos),
    "interleaved": lambda x, cos, sin: x * cos + np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape) * sin,
    "tail of an odd size": lambda x, cos, sin: np.where(
        (np.arange(x.shape[-1]) == x.shape[-1] - 1) & (x.shape[-1] % 2 == 1), x, rotated(x, cos, sin)
    ),
    "long rows only": lambda x, cos, sin: rotated(x, cos, sin) * x.dtype.type(1 if x.shape[-1] < 8 else 2),
}


@pytest.mark.parametrize("mistake", OTHERS)
def test_a_mistake_in_a_rotation_is_found_without_an_expected_value(mistake):
    @pyops.onnx_op("found::Rotary")
    def rotary(x: NDArray[Single], cos: NDArray[Single], sin: NDArray[Single]) -> NDArray[Single]:
        return OTHERS[mistake](x, cos, sin)

    @rotary.register_decomposition
    def _(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    arrays = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    report = check(rotary, *arrays, checks="decomposition", raise_exception=False)
    assert report["decomposition"].status == ("passed" if mistake == "right" else "failed"), report


def weighted():
    @pyops.onnx_op("derived::Weighted")
    def weighted(
        x: NDArray[Single], w: NDArray[Single] | None = None, *others: NDArray[Single], power: int = 2
    ) -> tuple[NDArray[Single], NDArray[Single], NDArray[np.int64]]:
        total = sum(others, x**power * (1 if w is None else w))
        return total, x.sum(-1), x.argmax(-1)

    @weighted.register_decomposition
    def _(x, w=None, *others, power):
        total = x**power if w is None else x**power * w
        return sum(others, total), x.sum(-1), x.argmax(-1)

    return weighted


X = np.linspace(-2, 3, 6).reshape(2, 3)


@pytest.mark.parametrize("inputs", [(X,), (X, X[0]), (X, None, X + 1, X - 1)], ids=["one", "two", "variadic"])
def test_the_fake_and_the_gradient_of_torch_follow_from_the_decomposition(inputs):
    report = check(weighted(), *inputs, power=3, checks="torch_*")
    assert {result.name: result.status for result in report} == dict.fromkeys(
        ["torch_eager", "torch_export", "torch_gradients", "torch_opcheck"], "passed"
    ), report


def test_a_registered_gradient_replaces_that_of_the_decomposition():
    torch_op = exporters.custom_op(weighted(), "derived::weighted")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(torch_op(x, None, [], power=3)[0].sum(), x)
    assert gradient.tolist() == [3, 12]
    torch_op.register_autograd(lambda ctx, *grads: (grads[0] * 7, None, []))
    (gradient,) = torch.autograd.grad(torch_op(x, None, [], power=3)[0].sum(), x)
    assert gradient.tolist() == [7, 7]
