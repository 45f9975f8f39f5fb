"""Transforms in cases that torch's samples leave out: inverses, empty batches, other memory layouts."""

import numpy as np
import pytest

from pyops.kernels.fft import fft_c2c, fft_c2r, fft_r2c, istft

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


def test_a_signal_is_filled_up_to_its_length():
    spectrum = rng.standard_normal((9, 5, 2))
    whole = istft(spectrum, n_fft=16)
    longer = istft(spectrum, n_fft=16, length=whole.size + 20)
    np.testing.assert_array_equal(longer[: whole.size], whole)
    assert longer.shape == (whole.size + 20,)
    assert not longer[-10:].any()
