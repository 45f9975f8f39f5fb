"""Shapes are inferred before a run, and are those of the results."""

import numpy as np
import pytest

from pyops.kernels.fft import fft_c2c, fft_c2r, fft_r2c, istft
from pyops.kernels.losses import ctc_loss
from pyops.kernels.pairwise import cdist, pdist
from pyops.kernels.pooling import adaptive_max_pool, fractional_max_pool
from pyops.shapes import TensorSpec

rng = np.random.default_rng(0)
PAIRS = rng.standard_normal((3, 4, 5, 2))
IMAGE = rng.standard_normal((2, 3, 6, 5))
LOGARITHMS, ONE = np.log(np.full((4, 2, 3), 1 / 3)), np.array([1, 1])


@pytest.mark.parametrize(
    ("op", "args", "attributes"),
    [
        (fft_c2c, (PAIRS,), {"dim": [0, 2]}),
        (fft_r2c, (PAIRS[..., 0],), {"dim": [2, 0]}),
        (fft_c2r, (PAIRS,), {"dim": [0, -1]}),
        (istft, (rng.standard_normal((2, 9, 5, 2)),), {"n_fft": 16}),
        (istft, (rng.standard_normal((9, 5, 2)), np.ones(12)), {"n_fft": 16, "win_length": 12, "length": 18}),
        (cdist, (IMAGE, rng.standard_normal((3, 4, 5))), {}),
        (pdist, (IMAGE[0, 0],), {}),
        (adaptive_max_pool, (IMAGE,), {"output_size": [7, 2]}),
        (adaptive_max_pool, (IMAGE[0],), {"output_size": [2, 9]}),
        (fractional_max_pool, (IMAGE, rng.random((2, 3, 2))), {"kernel_size": [2, 3], "output_size": [4, 2]}),
        (ctc_loss, (LOGARITHMS, np.ones((2, 1), int), ONE, ONE), {"reduction": 0}),
        (ctc_loss, (LOGARITHMS, np.ones((2, 1), int), ONE, ONE), {"reduction": 1}),
    ],
)
def test_shapes_are_known_before(op, args, attributes):
    specs = op.infer_shapes(*(TensorSpec(x.shape, x.dtype) for x in args), **attributes)
    results = op(*args, **attributes)
    results = results if isinstance(results, tuple) else (results,)
    assert [(spec.shape, spec.dtype) for spec in specs] == [(x.shape, x.dtype) for x in results]
