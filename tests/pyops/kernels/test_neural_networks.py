"""What torch's samples of distances and poolings do not show: NaN, ties, precision, many values."""

import numpy as np
import pytest

from pyops.kernels.pairwise import cdist, pdist
from pyops.kernels.pooling import adaptive_max_pool

rng = np.random.default_rng(0)
IMAGE = rng.standard_normal((2, 3, 6, 5))


def test_the_largest_of_equal_values_is_the_first_and_of_several_nan_the_last():
    x = np.array([[[2.0, 2, 1, np.nan, 3, np.nan]]])
    values, indices = adaptive_max_pool(x, output_size=[2])
    np.testing.assert_array_equal(values, [[[2, np.nan]]])
    np.testing.assert_array_equal(indices, [[[0, 5]]])


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
    assert [x.shape for x in adaptive_max_pool(IMAGE, output_size=[0, 2])] == [(2, 3, 0, 2)] * 2
