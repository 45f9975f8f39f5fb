"""Arguments as a broken or hostile model may have them: each is a clear error, and no read beyond an array."""

import re

import numpy as np
import pytest

from pyops.kernels import OPS

BIG = 2**62


def f(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def i(*values):
    return np.array(values, np.int64)


def pivots(*values):
    return np.array(values, np.int32)


PLANES = f(1, 1, 4, 4)
IMAGE = f(2, 3, 6, 5)
PAIRS = f(3, 4, 5, 2)
LOGARITHMS = f(4, 2, 3)  # of three classes at four times
CLASS = np.ones((2, 1), int)

REFUSED = [
    ("AsStridedScatter", (f(4), f(5)), {"size": [5], "stride": [BIG]}, f"to {4 * BIG} of an input of 4"),
    ("AsStridedScatter", (f(4), f(2)), {"size": [2], "stride": [-1]}, "from position -1 to 0"),
    ("AsStridedScatter", (f(4), f(1)), {"size": [1], "stride": [1], "storage_offset": 4}, "from position 4"),
    (
        "AsStridedScatter",
        (f(4), f(2, 2)),
        {"size": [2, 2], "stride": [1]},
        "stride, which is [1], must have as many numbers",
    ),
    ("NonzeroStatic", (f(4),), {"size": -2}, "size is -2; it must be at least 0"),
    ("OneHot", (i(0, 1),), {"num_classes": -3}, "num_classes, which is -3"),
    ("CtcLoss", (f(5, 2, 3), i(1, 2), i(5, 5), i(-1, 2)), {}, "target_lengths is [-1, 2]"),
    ("CtcLoss", (f(5, 2, 3), i(1, 2), i(5, 5), i(2**40, 2)), {}, "targets has 2 classes"),
    ("CtcLoss", (f(5, 4, 3), i(), i(5, 5, 5, 5), i(*[BIG] * 4)), {}, f"it must have {4 * BIG}, the sum"),
    ("AdaptiveMaxPool", (PLANES,), {"output_size": [-1, 2]}, "output_size is [-1, 2]"),
    ("FractionalMaxPool", (PLANES, f(1, 1, 2) / 2), {"kernel_size": [0, 0], "output_size": [2, 2]}, "2 windows of 0"),
    (
        "FractionalMaxPool",
        (PLANES, f(1, 1, 2) + np.float32(np.inf)),
        {"kernel_size": [2, 2], "output_size": [2, 2]},
        "from 0 to 1",
    ),
    (
        "FractionalMaxPool",
        (PLANES, f(1, 1, 2) * np.float32(np.nan)),
        {"kernel_size": [2, 2], "output_size": [2, 2]},
        "from 0 to 1",
    ),
    (
        "FractionalMaxPool",
        (f(1, 1, 7, 7), 2**26 + f(1, 1, 2)),
        {"kernel_size": [1, 1], "output_size": [7, 7]},
        "from 0 to 1",
    ),
    ("FractionalMaxPool", (PLANES, f(1, 1, 2)), {"kernel_size": [2, 2], "output_size": [2]}, "the same length"),
    ("Istft", (f(3, 5, 2),), {"n_fft": 4, "length": -5}, "length is -5"),
    ("SegmentReduce", (f(3), None, i(0, 2**63 - 1)), {"reduce": "sum"}, "is not within the 3 elements"),
    ("SegmentReduce", (np.array(3.0), i(1)), {"reduce": "sum"}, "the data are a scalar"),
    ("SegmentReduce", (f(3, 2), i(3), None, f(2)), {"reduce": "sum"}, "initial has shape [2]"),
    ("HistogramddBinEdges", (f(3, 2),), {"bins": [2, 2], "range": np.ones(2)}, "range has 2 numbers"),
    ("HistogramddBinEdges", (f(3, 2),), {"bins": [2]}, "the points have shape [3, 2]; it must be (..., 1)"),
    ("LuUnpack", (f(3, 3), pivots(1, 2, 3, 3)), {}, "do not fit (m,n),(min)"),
    ("LuUnpack", (f(3, 3), pivots(0, 1, 2)), {}, "go from 0 to 2"),
    ("LuSolve", (f(3, 3), pivots(1), f(3, 1)), {}, "do not fit (n,n),(n),(n,k)"),
    ("LdlSolve", (f(3, 3), pivots(1), f(3, 1)), {}, "do not fit (n,n),(n),(n,k)"),
    ("LdlSolve", (f(3, 3), pivots(-(2**31), 1, 1), f(3, 1)), {}, "pivots must be rows from 1"),
    ("Ormqr", (f(2, 3), f(3), f(2, 3)), {}, "more numbers than a has columns or rows"),
    ("Lstsq", (f(3, 2), f(3, 2), f(2)), {}, "rcond has shape [2]; it must be one number"),
    ("Kthvalue", (f(3), i(1, 2)), {}, "k has shape [2]; it must be one number"),
    ("Cdist", (f(3, 2), f(3, 2)), {"p": np.array([1.0, 2.0])}, "p has shape [2]; it must be one number"),
    ("LegendrePolynomialP", (np.float32([0.5]), np.float32([1e18])), {}, "a recurrence to degree 1e+18 is too long"),
    ("FftC2c", (PAIRS[..., 0],), {"dim": [0]}, "pairs of reals along a last dimension of 2"),
    ("FftC2c", (PAIRS,), {"dim": [3]}, "dim is 3 for 3 dimensions"),
    ("FftC2c", (PAIRS,), {"dim": [0, -3]}, "give each dimension once"),
    ("FftC2c", (PAIRS,), {"dim": [0], "normalization": 3}, "normalization is 3; it must be 0, 1 or 2"),
    ("FftC2c", (PAIRS, i(2, 2)), {"dim": [0]}, "argument 2 is longer"),
    ("FftR2c", (f(2, 0),), {"dim": [1]}, "Invalid number of FFT data points (0)"),
    ("FftR2c", (PAIRS,), {"dim": []}, "half of a transform needs a dimension"),
    ("FftC2r", (PAIRS,), {"dim": []}, "half of a transform needs a dimension"),
    ("Istft", (f(5, 2),), {"n_fft": 8}, "x has shape (5, 2)"),
    ("Istft", (f(9, 0, 2),), {"n_fft": 16}, "not empty"),
    ("Istft", (f(9, 4, 2),), {"n_fft": 16, "win_length": 17}, "win_length is 17"),
    ("Istft", (f(9, 4, 2),), {"n_fft": 16, "hop_length": 0}, "hop_length is 0"),
    ("Istft", (f(9, 4, 2),), {"n_fft": 15}, "has 9 frequencies; with onesided=True it must have"),
    ("Istft", (f(9, 4, 2), f(3)), {"n_fft": 16}, "window has shape (3,)"),
    ("Istft", (f(9, 4, 2), 0 * f(16)), {"n_fft": 16}, "leave a part of the signal uncovered"),
    ("Cdist", (IMAGE, IMAGE[..., :2]), {}, "do not fit (p,m),(r,m)"),
    ("Cdist", (IMAGE, IMAGE), {"p": np.array(-1.0)}, "p is -1.0; it must be at least 0"),
    ("Pdist", (IMAGE,), {}, "it must be a matrix"),
    ("AdaptiveMaxPool", (IMAGE[:, :, :0],), {"output_size": [1, 1]}, "must not be empty"),
    (
        "FractionalMaxPool",
        (IMAGE, 0 * f(2, 3, 2)),
        {"kernel_size": [3, 3], "output_size": [5, 1]},
        "5 windows of 3 do not fit a dimension of size 6",
    ),
    (
        "FractionalMaxPool",
        (IMAGE, 0 * f(1, 3, 2)),
        {"kernel_size": [2, 2], "output_size": [2, 2]},
        "for which it must be (2, 3, 2)",
    ),
    ("CtcLoss", (LOGARITHMS, CLASS, i(5, 5), i(1, 1)), {}, "at most 4, the time steps of log_probs"),
    ("CtcLoss", (LOGARITHMS, CLASS, i(1, 1), i(2, 2)), {}, "targets has shape"),
    ("CtcLoss", (LOGARITHMS, i(1, 1, 1), i(1, 1), i(1, 1)), {}, "targets has 3 classes"),
    ("CtcLoss", (LOGARITHMS, 3 * CLASS, i(1, 1), i(1, 1)), {}, "a target is not a class"),
    ("CtcLoss", (LOGARITHMS, CLASS, i(1, 1), i(1, 1)), {"blank": 3}, "class of log_probs: 0 to 2"),
    ("CtcLoss", (LOGARITHMS, CLASS, i(1), i(1, 1)), {}, "one length for each of 2 items"),
    ("CtcLoss", (LOGARITHMS[0, 0], CLASS, i(1, 1), i(1, 1)), {}, "log_probs has shape (3,)"),
    ("CtcLoss", (LOGARITHMS, CLASS, i(1, 1), i(1, 1)), {"reduction": 3}, "reduction is 3"),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_they_are_refused(op, inputs, attributes, message):
    with pytest.raises((ValueError, IndexError), match=re.escape(message)):
        OPS[op](*inputs, **attributes)


@pytest.mark.parametrize("shape", [(0,), (0, 4)])
def test_no_segments_of_nothing(shape):
    assert OPS["SegmentReduce"](f(*shape), i(), reduce="sum").shape == shape
    assert OPS["SegmentReduce"](f(3, 0), i(1, 2), reduce="max").shape == (2, 0)


def test_an_axis_of_segments_counts_from_the_end():
    x, lengths = f(2, 3), np.array([[1, 2], [3, 0]])
    expected = OPS["SegmentReduce"](x, lengths, reduce="sum", axis=1)
    np.testing.assert_array_equal(OPS["SegmentReduce"](x, lengths, reduce="sum", axis=-1), expected)


def test_no_losses():
    nothing = OPS["CtcLoss"](f(5, 0, 3), np.zeros((0, 2), int), i(), i())
    assert nothing.shape == ()
    assert np.isnan(nothing)
