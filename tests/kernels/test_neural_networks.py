"""What torch's samples of distances, poolings and samplers do not show: NaN, ties, precision, many values."""

import ml_dtypes
import numpy as np
import pytest

from pyops.kernels.layers import grid_sample
from pyops.kernels.pairwise import cdist, pdist
from pyops.kernels.pooling import adaptive_avg_pool, adaptive_max_pool, avg_pool

rng = np.random.default_rng(0)
IMAGE = rng.standard_normal((2, 3, 6, 5))
VOLUME = rng.standard_normal((2, 3, 4, 6, 5))


def test_the_largest_of_equal_values_is_the_first_and_of_several_nan_the_last():
    x = np.array([[[2.0, 2, 1, np.nan, 3, np.nan]]])
    values, indices = adaptive_max_pool(x, output_size=[2])
    np.testing.assert_array_equal(values, [[[2, np.nan]]])
    np.testing.assert_array_equal(indices, [[[0, 5]]])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_half_precision_is_summed_with_more_digits(dtype):
    x = np.full((1, 64, 64), 1.0, dtype)
    assert adaptive_avg_pool(x, output_size=[1, 1]).item() == 1
    assert avg_pool(x, kernel_size=[64, 64]).item() == 1


def test_integers_are_divided_towards_zero():
    x = np.array([[-3, -2, 5, 6]])
    np.testing.assert_array_equal(avg_pool(x, kernel_size=[2]), [[-2, 5]])
    np.testing.assert_array_equal(avg_pool(x, kernel_size=[2], divisor_override=-2), [[2, -5]])


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, np.inf])
def test_a_distance_is_nan_where_a_difference_is(p):
    x = np.array([[np.nan, 1.0], [2.0, 3.0], [4.0, 0.0]])
    missing = [[True, True, True], [True, False, False], [True, False, False]]
    np.testing.assert_array_equal(np.isnan(cdist(x, x, p=np.array(p))), missing)
    np.testing.assert_array_equal(np.isnan(pdist(x, p=np.array(p))), [True, True, False])


def test_many_distances_are_those_of_few():
    x, y = rng.standard_normal((700, 40)), rng.standard_normal((90, 40))
    expected = np.abs(x[:, None] - y).sum(-1)
    np.testing.assert_allclose(cdist(x, y, p=np.array(1.0)), expected)
    np.testing.assert_allclose(cdist(x, y), np.linalg.norm(x[:, None] - y, axis=-1))
    np.testing.assert_allclose(pdist(x, p=np.array(1.0))[:3], np.abs(x[0] - x[1:4]).sum(-1))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, np.inf])
def test_points_without_coordinates_are_one(p):
    assert cdist(np.ones((2, 0)), np.ones((3, 0)), p=np.array(p)).tolist() == [[0, 0, 0]] * 2


def test_pooled_to_nothing():
    assert adaptive_avg_pool(IMAGE, output_size=[0, 2]).shape == (2, 3, 0, 2)


@pytest.mark.parametrize("align_corners", [True, False])
def test_the_reflections_of_a_single_pixel_are_it(align_corners):
    grid = np.array([-3.0, 2.0, 5.0]).reshape(1, 1, 1, 1, 3)
    assert grid_sample(np.full((1, 1, 1, 1, 1), 7.0), grid, padding_mode=2, align_corners=align_corners).item() == 7


def test_the_centres_of_a_volume_are_its_values():
    places = np.meshgrid(*(np.linspace(-1, 1, size) for size in (4, 6, 5)), indexing="ij")
    grid = np.broadcast_to(np.stack(places[::-1], -1), (2, 4, 6, 5, 3))
    for mode in range(2):
        sampled = grid_sample(VOLUME, grid, interpolation_mode=mode, align_corners=True)
        np.testing.assert_allclose(sampled, VOLUME, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("padding", range(3))
@pytest.mark.parametrize("mode", range(2))
def test_no_place_is_too_far(mode, padding, value):
    grid = np.full((2, 1, 1, 1, 3), value)
    sampled = grid_sample(VOLUME, grid, interpolation_mode=mode, padding_mode=padding)
    assert sampled.shape == (2, 3, 1, 1, 1)
