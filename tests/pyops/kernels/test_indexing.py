"""Searching, selecting and scattering: what torch's samples leave out."""

import re

import ml_dtypes
import numpy as np
import pytest

from pyops.errors import ShapeInferenceError
from pyops.kernels.reductions import segment_reduce
from pyops.kernels.scattering import as_strided_scatter, diagonal_scatter, scatter_reduce
from pyops.kernels.searching import nonzero_static, one_hot, searchsorted, unique_consecutive
from pyops.shapes import SymbolicDim, TensorSpec

NAN = np.nan
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def index(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9])
def test_a_search_is_that_of_numpy_where_numbers_are_sorted(size):
    rng = np.random.default_rng(size)
    rows, values = np.sort(rng.integers(0, 5, (3, size)), axis=1), rng.integers(-1, 6, (3, 4))
    for right in (False, True):
        side = "right" if right else "left"
        expected = [np.searchsorted(row, each, side) for row, each in zip(rows, values, strict=True)]
        assert np.array_equal(searchsorted(rows, values, right=right), expected)
        assert np.array_equal(searchsorted(rows[0], values, right=right), np.searchsorted(rows[0], values, side))


def test_nan_is_greater_than_everything():
    assert searchsorted(np.array([1.0, 2.0, NAN]), np.array([NAN, 2.0, 4.0])).tolist() == [3, 1, 3]


def test_a_sorter_stands_for_sorting():
    x = np.array([[3.0, 1.0, 2.0], [9.0, 8.0, 7.0]])
    values = np.array([[1.5, 3.0], [7.5, 10.0]])
    assert searchsorted(x, values, x.argsort(axis=1)).tolist() == [[1, 2], [1, 3]]
    with pytest.raises(IndexError, match="out of bounds"):
        searchsorted(x[0], values[0], index(0, 1, 5))
    with pytest.raises(ValueError, match=re.escape("sorter has shape [2]; it must be [3]")):
        searchsorted(x[0], values[0], index(0, 1))


def test_searches_that_make_no_sense():
    with pytest.raises(ShapeInferenceError, match="all dimensions but the last must be equal"):
        searchsorted(np.ones((2, 3)), np.ones((3, 3)))
    with pytest.raises(ShapeInferenceError, match="is a scalar"):
        searchsorted(np.array(1.0), np.ones(2))


def test_places_are_cut_off_or_filled():
    x = np.array([[0.0, NAN], [1.0, 0.0]])
    assert nonzero_static(x, size=1).tolist() == [[0, 1]]
    assert nonzero_static(x, size=3, fill_value=9).tolist() == [[0, 1], [1, 0], [9, 9]]
    assert nonzero_static(np.array(1), size=2).shape == (2, 0)


def test_classes():
    assert one_hot(index(0, 2)).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert one_hot(index(), num_classes=4).shape == (0, 4)
    for classes, count, problem in (
        (index(), -1, "the input is empty, so num_classes must be at least 0"),
        (index(-1), 3, "from -1 to -1; they must be at least 0"),
        (index(0, 2), 2, "from 0 to 2; they must be at least 0 and below num_classes, which is 2"),
    ):
        with pytest.raises(ValueError, match=problem):
            one_hot(classes, num_classes=count)


def test_no_nan_equals_another():
    found = unique_consecutive(np.array([1.0, 1.0, NAN, NAN]), return_inverse=True, return_counts=True)
    assert [item.tolist() for item in found[1:]] == [[0, 0, 1, 2], [2, 1, 1]]
    assert [item.shape for item in unique_consecutive(np.ones(3))] == [(1,), (0,), (0,)]
    assert unique_consecutive(np.ones((0, 2)), dim=0).output.shape == (0, 2)
    with pytest.raises(ValueError, match="axis 0 is out of bounds"):
        unique_consecutive(np.array(1.0), dim=0)


def test_diagonals():
    x = np.zeros((2, 3))
    assert diagonal_scatter(x, np.array([1.0, 2.0]), offset=1).tolist() == [[0, 1, 0], [0, 0, 2]]
    assert diagonal_scatter(x, np.ones(0), offset=7).tolist() == x.tolist()
    with pytest.raises(ValueError, match=re.escape("src has shape [2]; the diagonal has [1]")):
        diagonal_scatter(x, np.ones(2), offset=-1)
    with pytest.raises(ValueError, match="cannot be the same"):
        diagonal_scatter(x, np.ones(2), dim1=1, dim2=-1)


def test_strides():
    x = np.arange(4.0)
    assert as_strided_scatter(x, np.array([9.0, 8.0]), size=[2], stride=[2], storage_offset=1).tolist() == [0, 9, 2, 8]
    with pytest.raises(IndexError, match="to 5 of an input of 4 elements"):
        as_strided_scatter(x, np.ones(2), size=[2], stride=[2], storage_offset=3)
    with pytest.raises(ValueError, match="write to one position twice"):
        as_strided_scatter(x, np.ones((2, 2)), size=[2, 2], stride=[0, 1])
    with pytest.raises(ValueError, match=re.escape("src has shape [3]; it must be size, which is [2]")):
        as_strided_scatter(x, np.ones(3), size=[2], stride=[1])


@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions_are_nan_where_an_element_is(dtype):
    x, source = np.array([1, 2, 3], dtype), np.array([NAN, 5], dtype)
    for reduce in ("amax", "amin", "prod", "mean"):
        result = scatter_reduce(x, index(0, 1), source, dim=0, reduce=reduce)
        assert (result.dtype, np.isnan(result.astype(np.float64)).tolist()) == (dtype, [True, False, False])


def test_means_of_integers_are_rounded_down():
    x, source = np.array([-1, 2]), np.array([-5, -6])
    assert scatter_reduce(x, index(0, 0), source, dim=0, reduce="mean", include_self=False).tolist() == [-6, 2]
    assert scatter_reduce(x, index(0, 0), source, dim=0, reduce="mean").tolist() == [-4, 2]


def test_places_that_there_are_not():
    for wrong in (3, -1):
        with pytest.raises(IndexError, match=f"index has {wrong}; it must be from 0 to 2"):
            scatter_reduce(np.ones(3), index(wrong), np.ones(1), dim=0, reduce="amax")
    with pytest.raises(ValueError, match="index must not be larger than either"):
        scatter_reduce(np.ones((2, 2)), np.zeros((1, 3), np.int64), np.ones((1, 3)), dim=0, reduce="sum")


def test_segments():
    data = np.array([1.0, NAN, 3.0])
    assert segment_reduce(data, index(0, 1), reduce="mean", unsafe=True).tolist()[1:] == [1]
    assert segment_reduce(data, None, index(2, 3, 3), reduce="max").tolist() == [3, -np.inf]
    assert segment_reduce(data, index(0, 3), None, np.array(5.0), reduce="sum").tolist()[0] == 5
    assert segment_reduce(data, index(1, 1, 1), reduce="prod").tolist()[::2] == [1, 3]
    rows = segment_reduce(np.ones((2, 3, 2)), np.array([[1, 2], [3, 0]]), reduce="sum", axis=1)
    assert rows[..., 0].tolist() == [[1, 2], [3, 0]]


@pytest.mark.parametrize(
    ("lengths", "offsets", "problem"),
    [
        (None, None, "give either lengths or offsets"),
        (index(3), index(0, 3), "give either lengths or offsets"),
        (index(1, 1), None, "the lengths of a row do not sum to 3"),
        (index(-1, 4), None, "a segment is not within the 3 elements"),
        (None, index(0, 4), "a segment is not within the 3 elements"),
        (np.ones((1, 3), np.int64), None, "axis the last one"),
    ],
)
def test_segments_that_are_none(lengths, offsets, problem):
    with pytest.raises(ValueError, match=problem):
        segment_reduce(np.ones(3), lengths, offsets, reduce="sum")


def test_shapes_of_named_dimensions():
    n, m = SymbolicDim("n"), SymbolicDim("m")
    x, places = TensorSpec((n, m), np.float32), TensorSpec((m,), np.int64)
    assert [str(item) for item in unique_consecutive.infer_shapes(x, return_inverse=True, dim=0)] == [
        "float32[?, m]",
        "int64[n]",
        "int64[0]",
    ]
    assert str(segment_reduce.infer_shapes(x, None, places, reduce="sum")[0]) == "float32[m-1, m]"
    assert str(searchsorted.infer_shapes(x, TensorSpec((n, 3), np.float32))[0]) == "int64[n, 3]"
    assert str(scatter_reduce.infer_shapes(x, places, x, dim=1, reduce="prod")[0]) == "float32[n, m]"
    assert str(one_hot.infer_shapes(places)[0]) == "int64[m, ?]"


def test_nothing_is_scattered():
    x = np.arange(4.0)
    assert scatter_reduce(x, index(), np.ones(0), dim=0, reduce="sum").tolist() == x.tolist()
    assert as_strided_scatter(x, np.ones(0), size=[0], stride=[1]).tolist() == x.tolist()


@pytest.mark.parametrize(("reduce", "expected"), [("amax", [-3, 0]), ("amin", [-7, 0])])
def test_extremes_of_integers_without_the_inputs_own(reduce, expected):
    x, source = np.zeros(2, np.int8), np.array([-3, -7], np.int8)
    assert scatter_reduce(x, index(0, 0), source, dim=0, reduce=reduce, include_self=False).tolist() == expected


@pytest.mark.parametrize(("reduce", "expected"), [("amax", [True, False]), ("amin", [False, True])])
def test_extremes_of_bool_without_the_inputs_own(reduce, expected):
    x, source = np.array([not expected[0], expected[1]]), np.array([True, False])
    assert scatter_reduce(x, index(0, 0), source, dim=0, reduce=reduce, include_self=False).tolist() == expected
