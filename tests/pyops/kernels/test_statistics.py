"""Extremes, running results, histograms and covariances: what torch's samples leave out."""

import re

import ml_dtypes
import numpy as np
import pytest

from pyops.errors import ShapeInferenceError
from pyops.kernels.histograms import bincount, histc, histogramdd_bin_edges, histogramdd_from_bin_tensors
from pyops.kernels.pairwise import corrcoef, cov
from pyops.kernels.reductions import amax, amin, cummax, cummin, cumprod, hash_tensor, logcumsumexp

NAN, INF = np.nan, np.inf
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_are_nan_where_an_element_is(dtype):
    x = np.array([[1, NAN], [-INF, 2]], dtype)
    for op in (amax, amin):
        assert np.isnan(op(x, dim=[1]).astype(np.float64)).tolist() == [True, False]
        assert np.isnan(op(x).astype(np.float64))


def test_extremes_of_nothing():
    assert amax(np.zeros((0, 3)), dim=[1]).shape == (0,)
    with pytest.raises(ValueError, match="zero-size array"):
        amax(np.zeros((0, 3)))
    with pytest.raises(ShapeInferenceError, match="give each dimension once"):
        amin(np.zeros((2, 3)), dim=[0, -2])


@pytest.mark.parametrize("dtype", FLOATS)
def test_running_extremes_keep_the_last_of_equals_and_every_nan(dtype):
    x = np.array([1, 1, 0, NAN, 2, NAN], dtype)
    assert cummax(x, dim=0).indices.tolist() == [0, 1, 1, 3, 3, 5]
    assert cummin(x, dim=0).indices.tolist() == [0, 1, 2, 3, 3, 5]
    assert np.isnan(cummax(x, dim=0).values.astype(np.float64)).tolist() == [False] * 3 + [True] * 3


def test_running_extremes_keep_the_sign_of_zero():
    assert np.signbit(cummax(np.array([-0.0, 0.0, -0.0]), dim=0).values).tolist() == [True, False, True]


def test_running_results_of_scalars_and_nothing():
    for op in (cummax, cummin):
        assert [item.tolist() for item in op(np.array(True), dim=-1)] == [True, 0]
        assert op(np.zeros((2, 0)), dim=1).indices.shape == (2, 0)
    assert cumprod(np.array(3.0), dim=0) == 3


@pytest.mark.parametrize("dtype", FLOATS)
def test_running_logarithms_of_sums_neither_overflow_nor_vanish(dtype):
    x = np.array([[-INF, -200, 0, 1, 100], [-INF, -INF, INF, -INF, NAN]], dtype)
    expected = [[-INF, -200, 0, np.log(1 + np.e), 100], [-INF, -INF, INF, INF, NAN]]
    np.testing.assert_allclose(logcumsumexp(x, dim=-1).astype(np.float64), expected, rtol=1e-2, atol=1e-9)
    assert logcumsumexp(x, dim=-1).dtype == dtype
    assert logcumsumexp(np.zeros((2, 0), dtype), dim=1).shape == (2, 0)
    assert logcumsumexp(np.array(3, dtype), dim=0) == 3


def test_products_wrap_around_and_are_exact_in_between():
    assert cumprod(np.array([100, 100], np.int8), dim=0).tolist() == [100, 16]
    assert cumprod(np.array([1e30, 1e30, 1e-30], np.float32), dim=0).tolist()[1:] == [INF, np.float32(1e30)]


def test_bins_have_their_lower_edge_and_the_last_one_both():
    x = np.array([0.0, 1.0, 1.5, 3.0, NAN, -1.0, 4.0])
    (edges,) = histogramdd_bin_edges(x[:, None], bins=[3], range=np.array([0.0, 3.0]))
    assert edges.tolist() == [0, 1, 2, 3]
    assert histogramdd_from_bin_tensors(x[:, None], None, edges).tolist() == [1, 2, 1]


def test_ranges_that_are_none():
    assert histogramdd_bin_edges(np.zeros((0, 1)), bins=[2])[0].tolist() == [0, 0.5, 1]
    assert histogramdd_bin_edges(np.array([[3.0], [3.0]]), bins=[1])[0].tolist() == [2.5, 3.5]
    assert histc(np.array([3.0, 3.0], np.float16), bins=2).tolist() == [0, 2]
    with pytest.raises(ValueError, match="the range from nan to nan is reversed or not finite"):
        histogramdd_bin_edges(np.array([[1.0], [NAN]]), bins=[3])
    with pytest.raises(ValueError, match=r"the range from 3\.0 to 2\.0 is reversed or not finite"):
        histogramdd_bin_edges(np.array([[1.0]]), bins=[3], range=np.array([3.0, 2.0]))
    with pytest.raises(ValueError, match="HistogramddBinEdges: bins is 0; it must be at least 1"):
        histogramdd_bin_edges(np.array([[1.0]]), bins=[0])


def test_densities_sum_to_one_over_all_bins():
    points, weight = np.random.default_rng(0).random((50, 2)), np.arange(50.0)
    edges = histogramdd_bin_edges(points, bins=[3, 4])
    density = histogramdd_from_bin_tensors(points, weight, *edges, density=True)
    volumes = np.outer(*map(np.diff, edges))
    assert (density * volumes).sum() == pytest.approx(1)
    assert np.allclose(density, np.histogramdd(points, [3, 4], density=True, weights=weight)[0])
    assert np.isnan(histogramdd_from_bin_tensors(np.array([[7.0]]), None, np.array([0.0, 1.0]), density=True)).all()


def test_weights_of_another_shape():
    with pytest.raises(ValueError, match=re.escape("weight has shape [2]; it must be [3]")):
        histogramdd_from_bin_tensors(np.ones((3, 1)), np.ones(2), np.arange(2.0))
    with pytest.raises(ValueError, match="don't have the same length"):
        bincount(np.zeros(3, np.int64), np.ones(2))
    with pytest.raises(ValueError, match="no negative elements"):
        bincount(np.array([-1]), np.ones(1))


def test_hashes_are_of_the_widest_type():
    assert hash_tensor(np.array([3, 5, -1], np.int8)) == np.uint64(2**64 - 7)
    assert hash_tensor(np.array([[1.5], [1.5]], np.float16), dim=[0]).tolist() == [0]
    assert hash_tensor(np.array(1.5, np.float32), keepdim=True) == np.array(1.5).view(np.uint64)
    with pytest.raises(ValueError, match="mode is 1; only 0"):
        hash_tensor(np.ones(2), mode=1)


def test_covariance_is_that_of_numpy():
    x, counts, weights = np.random.default_rng(0).random((3, 5)), np.array([1, 2, 0, 1, 3]), np.arange(1.0, 6)
    assert np.allclose(cov(x, counts, weights), np.cov(x, fweights=counts, aweights=weights))
    assert np.allclose(cov(x, correction=0), np.cov(x, ddof=0))
    assert np.allclose(corrcoef(x), np.corrcoef(x))
    assert np.allclose(cov(x.astype(np.float16)).astype(float), np.cov(x), atol=1e-2)


@pytest.mark.filterwarnings("ignore:Degrees of freedom")
def test_covariance_of_few():
    assert np.isinf(cov(np.array([[1.0, 2.0], [3.0, 5.0]]), correction=5)).all()
    assert np.isnan(cov(np.array(3.0)))
    assert cov(np.zeros((0, 3))).shape == (0, 0)
    assert np.isnan(corrcoef(np.array([[1.0, 1.0], [3.0, 5.0]]))).tolist() == [[True, True], [True, False]]
    with pytest.raises(ZeroDivisionError, match="Weights sum to zero"):
        cov(np.ones(3), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="aweights cannot be negative"):
        cov(np.ones(2), None, np.array([1.0, -1.0]))
    with pytest.raises(RuntimeError, match="incompatible numbers of samples and aweights"):
        cov(np.ones(3), None, np.ones(2))
    with pytest.raises(ValueError, match="more than 2 dimensions"):
        corrcoef(np.ones((1, 2, 3)))
