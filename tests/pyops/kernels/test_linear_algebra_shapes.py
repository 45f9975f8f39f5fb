"""The shapes of linear algebra: known before a run, left open, or rejected."""

import re

import numpy as np
import pytest

from pyops.errors import ShapeInferenceError, UnknownSizeError
from pyops.kernels import OPS
from pyops.kernels.linear_systems import solve_ex
from pyops.shapes import SymbolicDim, TensorSpec

B, M, N, K = map(SymbolicDim, "bmnk")


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "expected"),
    [
        ("InvEx", [(B, N, N)], {}, "float64[b, n, n] int32[b]"),
        ("SolveEx", [(B, 2, 2), (2, 1)], {}, "float64[b, 2, 1] int32[b]"),
        ("SolveEx", [(B, N, N), (B, N)], {}, "float64[b, n] int32[b]"),
        ("SolveEx", [(N, N), (N,)], {}, "float64[n] int32[]"),
        ("SolveEx", [(N, N), (B, K, N)], {"left": False}, "float64[b, k, n] int32[]"),
        ("Slogdet", [(B, N, N)], {}, "float64[b] float64[b]"),
        ("LuFactorEx", [(B, M, N)], {}, "float64[b, m, n] int32[b, ?] int32[b]"),
        ("LuFactorEx", [(B, 3, 2)], {}, "float64[b, 3, 2] int32[b, 2] int32[b]"),
        ("CholeskyEx", [(N, N)], {}, "float64[n, n] int32[]"),
        ("CholeskySolve", [(B, N, K), (N, N)], {}, "float64[b, n, k]"),
        ("SolveTriangular", [(N, N), (B, N, K)], {"upper": True}, "float64[b, n, k]"),
        ("Qr", [(B, M, N)], {}, "float64[b, m, ?] float64[b, ?, n]"),
        ("Qr", [(B, M, N)], {"mode": "complete"}, "float64[b, m, m] float64[b, m, n]"),
        ("Geqrf", [(B, 4, 2)], {}, "float64[b, 4, 2] float64[b, 2]"),
        ("Svd", [(B, M, 2)], {"full_matrices": True}, "float64[b, m, m] float64[b, ?] float64[b, 2, 2]"),
        ("Svd", [(2, 3)], {"compute_uv": False}, "float64[0] float64[2] float64[0]"),
        ("Eigh", [(B, N, N)], {"compute_v": False}, "float64[b, n] float64[0]"),
        ("Eig", [(B, N, N)], {}, "float64[b, n, 2] float64[b, n, n, 2]"),
        ("Pinv", [(B, M, N)], {}, "float64[b, n, m]"),
        ("Lstsq", [(B, M, N), (B, M, K)], {}, "float64[b, n, k] float64[0] int64[b] float64[0]"),
        ("Lstsq", [(B, 4, 2), (B, 4)], {"driver": "gels"}, "float64[b, 2] float64[b, 1] int64[0] float64[0]"),
        ("Lstsq", [(4, 2), (4, K)], {"driver": "gelsd"}, "float64[2, k] float64[k] int64[] float64[2]"),
    ],
)
def test_shapes(op, shapes, attributes, expected):
    specs = OPS[op].infer_shapes(*(TensorSpec(shape, np.float64) for shape in shapes), **attributes)
    assert " ".join(map(str, specs)) == expected


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        ("InvEx", [(2, 3)], "InvEx: inputs of the shapes [2, 3] do not fit (n,n)"),
        ("LuFactorEx", [(3,)], "LuFactorEx: inputs of the shapes [3] do not fit (m,n)"),
        ("SolveEx", [(3, 3), (2, 4)], "SolveEx: inputs of the shapes [3, 3], [2, 4] do not fit (n,n),(n,k)"),
        ("CholeskySolve", [(2, 1), (3, 3)], "inputs of the shapes [2, 1], [3, 3] do not fit (n,k),(n,n)"),
        ("HouseholderProduct", [(3, 2), (3,)], "HouseholderProduct: tau has shape [3] and a [3, 2]"),
        (
            "HouseholderProduct",
            [(2, 3), (2,)],
            "HouseholderProduct: a has shape [2, 3]; it needs at least as many rows",
        ),
        ("Ormqr", [(3, 2), (2,), (4, 3)], "Ormqr: inputs of the shapes [3, 2], [2], [4, 3] do not fit (m,i),(k),(m,n)"),
        ("Lstsq", [(4, 2), (3,)], "Lstsq: the shapes [4, 2] and [3] do not fit"),
    ],
)
def test_shapes_that_do_not_fit(op, shapes, message):
    attributes = {"upper": True} if op == "SolveTriangular" else {}
    with pytest.raises(ShapeInferenceError, match=re.escape(message)):
        OPS[op](*(np.zeros(shape) for shape in shapes), **attributes)


def test_factors_that_are_not_wanted():
    given = TensorSpec((B, M, N), np.float64), TensorSpec((B, K), np.int32)
    assert " ".join(map(str, OPS["LuUnpack"].infer_shapes(*given, unpack_data=False))) == (
        "float64[b, m, m] float64[0] float64[0]"
    )


def test_batches_broadcast():
    a, b = np.ones((2, 3, 3)), np.ones((5, 3, 1))
    with pytest.raises(ValueError, match="broadcast"):
        OPS["SolveTriangular"](a, b, upper=True)
    with pytest.raises(ShapeInferenceError, match="do not broadcast: 2 against 5"):
        OPS["SolveTriangular"].infer_shapes(*(TensorSpec(x.shape, x.dtype) for x in (a, b)), upper=True)


def test_vectors_are_told_from_matrices_by_their_sizes():
    a = TensorSpec((B, 3, 3), np.float64)
    with pytest.raises(ShapeInferenceError, match=r"whether .* holds vectors depends on sizes that are not known yet"):
        OPS["SolveEx"].infer_shapes(a, TensorSpec((3, 3), np.float64))
    with pytest.raises(ShapeInferenceError, match="left=False requires matrices"):
        solve_ex(np.eye(3), np.ones(3), left=False)


def test_what_depends_on_sizes_that_are_not_known_is_left_open():
    n, double = SymbolicDim("n"), np.dtype(np.float64)
    with pytest.raises(UnknownSizeError, match="vectors"):
        OPS["SolveEx"].infer_shapes(TensorSpec((n, 3, 3), double), TensorSpec((2, 3), double))
    with pytest.raises(UnknownSizeError, match="residuals"):
        OPS["Lstsq"].infer_shapes(TensorSpec((2, n, 3), double), TensorSpec((2, n, 1), double), driver="gels")
    for op in ("Cov", "Corrcoef"):
        with pytest.raises(UnknownSizeError, match="scalar"):
            OPS[op].infer_shapes(TensorSpec((n, 3), double))
