"""The layers of transformers in the kernel library, against torch's own functions and their decompositions."""

import numpy as np
import pytest
import torch

from pyops.kernels import transformers
from pyops.testing import assert_close, check
from tests.helpers.tiers import first_quick

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4, 8)).astype(np.float32)
ROTATED = [(X, *RNG.normal(size=(2, *shape)).astype(np.float32)) for shape in [(4, 8), (4, 4), (2, 1, 4, 4), (8,)]]
SAMPLES = [
    (transformers.rms_norm, (X, X[0, 0, 0])),
    (transformers.swiglu, (X[0, 0], X[0, 1] + 1)),
    (transformers.geglu, (X[0, 0], X[1, 0])),
    *((transformers.rotary_embedding, inputs) for inputs in ROTATED),
]


@pytest.mark.parametrize("number", first_quick(range(len(SAMPLES))))
def test_what_they_are_and_how_they_are_computed_agree(number):
    op, inputs = SAMPLES[number]
    wanted = ["decomposition", "body", "compiled", "dtypes", "engine_native", "torch_gradients"]
    report = check(op, *inputs, checks=wanted)
    assert [result.status for result in report] == ["passed"] * len(wanted), report


def test_they_compute_what_torch_does():
    x, w = torch.from_numpy(X), torch.from_numpy(X[0, 0, 0])
    norm = torch.nn.functional.rms_norm(x, (8,), w, 0.25)
    assert_close(transformers.rms_norm(X, X[0, 0, 0], eps=0.25), norm.numpy())
    assert_close(transformers.swiglu(X, X), (torch.nn.functional.silu(x) * x).numpy())
    assert_close(transformers.geglu(X, X), (torch.nn.functional.gelu(x, approximate="tanh") * x).numpy())


@pytest.mark.parametrize("copies", [1, 2])
def test_a_rotation_is_a_product_of_complex_numbers(copies):
    angles = RNG.normal(size=(4, 4)).astype(np.float32)
    cos, sin = (np.tile(part, copies) for part in (np.cos(angles), np.sin(angles)))
    turned = (X[..., :4] + 1j * X[..., 4:]) * np.exp(1j * angles)
    expected = np.concatenate([turned.real, turned.imag], -1).astype(np.float32)
    assert_close(transformers.rotary_embedding(X, cos, sin), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sizes_that_do_not_fit_are_refused(dtype):
    x = X.astype(dtype)
    with pytest.raises(ValueError, match="weight"):
        transformers.rms_norm(x, x[0, 0, 0, :7])
    for gated in (transformers.swiglu, transformers.geglu):
        with pytest.raises(ValueError, match="gate"):
            gated(x, x[..., :1])
    for wrong in ((x[..., :7], x, x), (x, x[..., :3], x[..., :3]), (x, x, x[..., :4])):
        with pytest.raises(ValueError, match="rows"):
            transformers.rotary_embedding(*wrong)
