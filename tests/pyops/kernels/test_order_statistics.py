"""Medians, k-th values and modes: what torch's samples leave out."""

import ml_dtypes
import numpy as np
import pytest

from pyops.kernels.order_statistics import kthvalue, median, mode, nanmedian

NAN = np.nan
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_keeps_its_own(dtype):
    x = np.array([[3, 1, 2, 4], [7, 7, 0, 7]], dtype)
    values, indices = median(x, dim=1)
    assert (values.dtype, indices.dtype) == (dtype, np.int64)
    assert values.tolist() == [2, 7]
    assert (mode(x).values.tolist(), mode(x).indices.tolist()) == ([1, 7], [1, 3])
    assert kthvalue(x, np.array(4)).values.tolist() == [4, 7]
    assert (median(x).values, median(x).values.dtype) == (3, dtype)


@pytest.mark.parametrize("dtype", DTYPES[:4])
def test_nan_is_last_or_left_out(dtype):
    x = np.array([[1, NAN, 0], [NAN, NAN, NAN], [3, 2, 1]], dtype)
    assert np.array_equal(median(x, dim=1).values.astype(np.float32), [NAN, NAN, 2], equal_nan=True)
    assert median(x, dim=1).indices.tolist() == [1, 0, 1]
    assert nanmedian(x, dim=1).indices.tolist() == [2, 0, 1]
    assert np.isnan(median(x).values.astype(np.float32))
    assert nanmedian(x).values == 1
    assert np.isnan(kthvalue(x, np.array(3)).values.astype(np.float32)).tolist() == [True, True, False]


def test_no_nan_is_as_frequent_as_another():
    assert mode(np.array([NAN, NAN, 2.0, 1.0, 1.0])).indices == 4
    assert mode(np.array([NAN, NAN, 2.0])).values == 2


def test_of_equal_elements_that_which_a_stable_sort_chooses():
    assert median(np.array([2, 1, 2, 2, 2]), dim=0).indices == 2
    assert kthvalue(np.array([5, 5, 5]), np.array(2)).indices == 1
    assert mode(np.array([4, 4, 3, 3])).indices == 3


@pytest.mark.parametrize("op", [median, nanmedian, mode, lambda x, **kwargs: kthvalue(x, np.array(1), **kwargs)])
def test_scalars_batches_and_nothing(op):
    assert [item.shape for item in op(np.array(3.0), dim=-1, keepdim=True)] == [(), ()]
    assert [item.tolist() for item in op(np.array(3.0), dim=0)] == [3.0, 0]
    x = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    assert np.array_equal(op(x, dim=1).values, op(np.ascontiguousarray(x), dim=1).values)
    assert op(x, dim=0, keepdim=True).values.shape == (1, 2, 3)
    assert op(np.zeros((0, 3)), dim=1).values.shape == (0,)
    with pytest.raises(ValueError, match=r"dimension 0 of \[0, 3\] has no elements to select from"):
        op(np.zeros((0, 3)), dim=0)
    with pytest.raises(ValueError, match="dim is 2 for 2 dimensions; it must be from -2 to 1"):
        op(np.zeros((1, 3)), dim=2)


def test_median_of_nothing():
    assert np.isnan(median(np.zeros(0)).values)
    assert nanmedian(np.zeros((0, 2), np.int8)).values == -128


def test_a_rank_that_there_is_not():
    with pytest.raises(ValueError, match="Kthvalue: k is 4; it must be from 1 to 3, the size of dimension -1"):
        kthvalue(np.zeros(3), np.array(4))
