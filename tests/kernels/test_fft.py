"""What torch's samples of the transforms do not show: errors, empty batches, other memory layouts, shapes."""

import numpy as np
import pytest

from pyops.kernels.fft import fft_c2c, fft_c2r, fft_r2c
from pyops.kernels.stft import istft
from pyops.shapes import Spec

rng = np.random.default_rng(0)
PAIRS = rng.standard_normal((3, 4, 5, 2))
VALUES = PAIRS[..., 0] + 1j * PAIRS[..., 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [[2], [0, 1], [-1, 0], [1, 2, 0]])
def test_the_transforms_are_each_others_inverses(dim, dtype):
    pairs = PAIRS.astype(dtype)
    there = fft_c2c(pairs, dim=dim)
    assert there.dtype == dtype
    np.testing.assert_allclose(fft_c2c(there, dim=dim, normalization=2, forward=False), pairs, atol=1e-5)
    half = fft_r2c(pairs[..., 0], dim=dim)
    sizes = np.array([pairs.shape[:-1][axis] for axis in dim])
    np.testing.assert_allclose(fft_c2r(half, sizes, dim=dim, normalization=2), pairs[..., 0], atol=1e-5)


def test_pairs_that_lie_apart_in_memory_are_the_same():
    apart = np.moveaxis(np.ascontiguousarray(np.moveaxis(PAIRS, -1, 0)), 0, -1)
    np.testing.assert_array_equal(fft_c2c(apart, dim=[1]), fft_c2c(PAIRS, dim=[1]))


def test_sizes_cut_and_fill():
    result = fft_c2c(PAIRS, np.array([6, -1]), dim=[0, 1])
    expected = np.fft.fft2(VALUES, (6, 4), (0, 1))
    np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], expected)


def test_an_empty_batch_and_no_dimension_are_fine():
    assert fft_c2c(np.zeros((0, 4, 2)), dim=[1]).shape == (0, 4, 2)
    assert fft_c2r(np.zeros((0, 3, 2)), dim=[1]).shape == (0, 4)
    np.testing.assert_array_equal(fft_c2c(PAIRS, dim=[]), PAIRS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fft_c2c(PAIRS[..., 0], dim=[0]), "pairs of reals along a last dimension of 2"),
        (lambda: fft_c2c(PAIRS, dim=[3]), r"dim is \[3\], and the tensor has 3 dimensions"),
        (lambda: fft_c2c(PAIRS, dim=[0, -3]), "each dimension can be transformed once"),
        (lambda: fft_c2c(PAIRS, dim=[0], normalization=3), "normalization is 3; it is 0, 1 or 2"),
        (lambda: fft_c2c(PAIRS, np.array([2, 2]), dim=[0]), "s has one size for each"),
        (lambda: fft_r2c(np.zeros((2, 0)), dim=[1]), "each must be at least 1"),
        (lambda: fft_r2c(PAIRS, dim=[]), "a onesided transform needs a dimension"),
        (lambda: istft(np.ones((9, 4, 2)), n_fft=15), "has 9 frequencies; with onesided=True it must have"),
        (lambda: istft(np.ones((9, 4, 2)), np.ones(3), n_fft=16), r"window has shape \(3,\)"),
        (lambda: istft(np.ones((9, 4, 2)), np.zeros(16), n_fft=16), "leave a part of the signal uncovered"),
    ],
)
def test_what_does_not_fit_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("op", "args", "attributes"),
    [
        (fft_c2c, (PAIRS,), {"dim": [0, 2]}),
        (fft_r2c, (PAIRS[..., 0],), {"dim": [2, 0]}),
        (fft_r2c, (PAIRS[..., 0],), {"dim": [0], "onesided": False}),
        (fft_c2r, (PAIRS,), {"dim": [0, -1]}),
        (istft, (rng.standard_normal((2, 9, 5, 2)),), {"n_fft": 16}),
        (istft, (rng.standard_normal((9, 5, 2)), np.ones(12)), {"n_fft": 16, "win_length": 12, "length": 18}),
        (istft, (rng.standard_normal((16, 5, 2)),), {"n_fft": 16, "return_complex": True}),
    ],
)
def test_shapes_are_known_before(op, args, attributes):
    (spec,) = op.infer_shapes(*(Spec(x.shape, x.dtype) for x in args), **attributes)
    assert spec.shape == op(*args, **attributes).shape
