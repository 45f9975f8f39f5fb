"""What torch's samples of linear algebra do not reach: singular matrices, numbers that are not finite, larger sizes."""

import re

import ml_dtypes
import numpy as np
import pytest

from pyops.errors import ShapeInferenceError, UnknownSizeError
from pyops.kernels import OPS
from pyops.kernels.cholesky_factorization import cholesky_ex, cholesky_inverse, cholesky_solve
from pyops.kernels.ldl_factorization import ldl_factor_ex, ldl_solve
from pyops.kernels.least_squares import lstsq, pinv
from pyops.kernels.linear_systems import inv_ex, slogdet, solve_ex
from pyops.kernels.lu_factorization import lu, lu_factor_ex, lu_solve, lu_unpack
from pyops.kernels.matrix_functions import matrix_exp
from pyops.kernels.orthogonal_factorization import geqrf, householder_product, ormqr, qr
from pyops.kernels.spectral import eig, eigh, eigvals, svd
from pyops.kernels.triangular_systems import solve_triangular, triangular_solve
from pyops.shapes import Spec, SymbolicDim

REGULAR = np.array([[4.0, 1, 2], [1, 5, 3], [2, 3, 6]])
SINGULAR = np.array([[1.0, 2, 4], [2, 4, 8], [1, 1, 1]])
BATCH = np.stack([REGULAR, SINGULAR, 2 * REGULAR])
INDEFINITE = np.array([[4.0, 1, 2], [1, -3, 5], [2, 5, 9]])
NAN = np.full((3, 3), np.nan)
EYE = np.eye(3)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def symmetric(n: int) -> np.ndarray:
    a = random(n, n)
    return a + a.T


# Failures


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        (inv_ex, (SINGULAR,), "InvEx: the diagonal element 3 is zero.* singular; use torch.linalg.pinv"),
        (inv_ex, (BATCH,), r"InvEx: \(batch element 1\) the diagonal element 3 is zero"),
        (solve_ex, (SINGULAR, EYE), "SolveEx: the solver failed because the input matrix is singular.*lstsq"),
        (cholesky_ex, (INDEFINITE,), r"CholeskyEx: .*\(the leading minor of order 2 is not positive-definite\)"),
        (cholesky_ex, (NAN,), "CholeskyEx: .* order 1"),
        (lu_factor_ex, (SINGULAR,), r"LuFactorEx: U\[3,3\] is zero"),
        (ldl_factor_ex, (np.zeros((2, 2)),), r"LdlFactorEx: D\[1,1\] is zero"),
    ],
)
def test_a_failure_is_an_error_where_it_is_to_be_checked(op, inputs, message):
    with pytest.raises(np.linalg.LinAlgError, match=message):
        op(*inputs, check_errors=True)
    assert op(*inputs).info.any()


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        (cholesky_inverse, (np.diag([1.0, 0, 1]),), "CholeskyInverse: the diagonal element 2 is zero"),
        (svd, (NAN,), "Svd: .*non-finite values"),
        (pinv, (NAN,), "Pinv: .*non-finite values"),
        (lstsq, (NAN, EYE), "Lstsq: .*non-finite values"),
        (eigh, (NAN,), "Eigh: .*non-finite values"),
        (eig, (NAN,), "Eig: .*non-finite values; look for what made them"),
        (eigvals, (np.full((2, 2), np.inf),), "Eigvals: .*non-finite values"),
    ],
)
def test_a_failure_is_an_error(op, inputs, message):
    with pytest.raises(np.linalg.LinAlgError, match=message):
        op(*inputs)


@pytest.mark.parametrize("op", [lu_solve, lu_unpack, ldl_solve])
@pytest.mark.parametrize("pivots", [[1, 2, 4], [0, 2, 3]])
def test_pivots_are_rows(op, pivots):
    inputs = (EYE, np.array(pivots, np.int32), EYE)
    with pytest.raises(ValueError, match="pivots are rows counted from 1"):
        op(*inputs[: len(op.signature.inputs)])


def test_a_singular_matrix_does_not_spoil_the_others_of_its_batch():
    inverse, info = inv_ex(BATCH)
    np.testing.assert_array_equal(info, np.array([0, 3, 0], np.int32))
    np.testing.assert_allclose(inverse[::2] @ BATCH[::2], [EYE, EYE], atol=1e-14)
    assert not np.isfinite(inverse[1]).any()
    result, info = solve_ex(BATCH, REGULAR[None])
    np.testing.assert_array_equal(info, np.array([0, 3, 0], np.int32))
    np.testing.assert_allclose(result[::2], [EYE, EYE / 2], atol=1e-14)


@pytest.mark.parametrize("upper", [False, True])
def test_a_matrix_that_is_not_definite_does_not_spoil_the_others_of_its_batch(upper):
    factor, info = cholesky_ex(np.stack([REGULAR, INDEFINITE, NAN]), upper=upper)
    factor = factor.mT if upper else factor
    np.testing.assert_array_equal(info, np.array([0, 2, 1], np.int32))
    np.testing.assert_allclose(factor[0], np.linalg.cholesky(REGULAR))
    np.testing.assert_array_equal(factor[1], [[2, 0, 0], [0.5, -3.25, 0], [1, 5, 9]])


def test_what_is_not_finite_stays_with_its_matrix():
    inverse, info = inv_ex(np.stack([EYE, NAN]))
    np.testing.assert_array_equal(inverse, [EYE, NAN])
    assert not info.any()
    np.testing.assert_array_equal(eigh(np.tril(EYE) + np.triu(NAN, 1), UPLO="L").eigenvalues, np.ones(3))
    sign, logabsdet = slogdet(np.stack([EYE, NAN, SINGULAR]))
    np.testing.assert_array_equal(sign, [1, 0, 0])
    np.testing.assert_array_equal(logabsdet, [0, np.nan, -np.inf])


def test_a_zero_on_the_diagonal_is_a_division_by_zero():
    a, b = np.diag([1.0, 0, 2]), np.array([[1.0], [1], [1]])
    np.testing.assert_array_equal(solve_triangular(a, b, upper=False), [[1], [np.inf], [np.nan]])
    np.testing.assert_array_equal(cholesky_solve(b, np.diag([1.0, 2, 0]))[2], [np.inf])
    assert not np.isfinite(lu_solve(*lu_factor_ex(SINGULAR)[:2], b)).any()
    assert not np.isfinite(ldl_solve(*ldl_factor_ex(np.zeros((3, 3)))[:2], b)).any()


# Larger matrices, which are halved


@pytest.mark.parametrize("shape", [(40, 40), (2, 50, 20), (2, 20, 50), (17, 16), (1, 1)])
@pytest.mark.parametrize("pivot", [True, False])
def test_the_factors_of_lu(shape, pivot):
    a = random(*shape) + 30 * np.eye(*shape[-2:])
    p, lower, upper = lu(a, pivot=pivot)
    product = lower @ upper
    np.testing.assert_allclose(p @ product if pivot else product, a, atol=1e-11)
    assert p.size or not pivot
    packed, pivots, info = lu_factor_ex(a, pivot=pivot)
    assert not info.any()
    for one, other in zip(lu_unpack(packed, pivots)[1:], (lower, upper), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_largest_element_of_a_column_is_the_pivot():
    a = random(50, 50)
    assert np.abs(lu(a).L).max() == 1
    a[7, 0] = a[3, 0] = 1 + np.abs(a[:, 0]).max()
    assert lu_factor_ex(a).pivots[0] == 4  # of equal ones the first


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_systems_of_factored_matrices(left, adjoint):
    a, b = random(2, 1, 40, 40), random(3, 40, 40)
    x = lu_solve(*lu_factor_ex(a)[:2], b, left=left, adjoint=adjoint)
    matrix = a.mT if adjoint else a
    np.testing.assert_allclose(matrix @ x if left else x @ matrix, np.broadcast_to(b, x.shape), atol=1e-10)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("unitriangular", [True, False])
def test_triangular_systems(upper, left, unitriangular):
    a, b = random(40, 40) + 20 * np.eye(40), random(2, 40, 40)
    a = a / 20
    triangle = np.triu(a) if upper else np.tril(a)
    if unitriangular:
        triangle[np.diag_indices(40)] = 1
    x = solve_triangular(a, b, upper=upper, left=left, unitriangular=unitriangular)
    np.testing.assert_allclose(triangle @ x if left else x @ triangle, b, atol=1e-9)
    y, coefficient = triangular_solve(b, a, upper=not upper, transpose=True, unitriangular=unitriangular)
    opposite = np.triu(a) if not upper else np.tril(a)
    if unitriangular:
        opposite[np.diag_indices(40)] = 1
    np.testing.assert_allclose(opposite.T @ y, b, atol=1e-9)
    np.testing.assert_array_equal(coefficient, np.broadcast_to(a, (2, 40, 40)))


@pytest.mark.parametrize("upper", [True, False])
def test_systems_of_a_cholesky_factor(upper):
    a = random(2, 40, 40)
    a = a @ a.mT + 10 * np.eye(40)
    factor = cholesky_ex(a, upper=upper).L
    b = random(40, 3)
    np.testing.assert_allclose(a @ cholesky_solve(b, factor, upper=upper), [b, b], atol=1e-10)
    np.testing.assert_allclose(cholesky_inverse(factor, upper=upper) @ a, [np.eye(40)] * 2, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 40])
def test_systems_of_an_ldl_factor(n):
    a = np.stack([symmetric(n), np.eye(n)[::-1], np.diag(np.arange(1.0, n + 1))])
    factors, pivots, info = ldl_factor_ex(a)
    assert not info.any()
    assert (pivots[1] < 0).any() == (n > 1)  # the exchange matrix needs blocks of two
    np.testing.assert_array_equal(np.triu(factors, 1), np.zeros_like(a))
    b = random(n, 2)
    np.testing.assert_allclose(a @ ldl_solve(factors, pivots, b), [b] * 3, atol=1e-9)


# Orthogonal factors


@pytest.mark.parametrize("shape", [(2, 7, 4), (2, 4, 7), (5, 5)])
def test_qr_from_its_reflectors(shape):
    a = random(*shape)
    k = min(shape[-2:])
    packed, tau = geqrf(a)
    q, r = qr(a)
    np.testing.assert_allclose(np.triu(packed)[..., :k, :], r, atol=1e-14)
    np.testing.assert_allclose(householder_product(packed[..., :k], tau), q, atol=1e-14)
    np.testing.assert_allclose(qr(a, mode="r").R, r, atol=1e-14)
    assert qr(a, mode="r").Q.shape == (0,)
    complete = qr(a, mode="complete").Q
    c = random(*shape[:-1], shape[-2])
    arguments = packed[..., :k], tau, c
    np.testing.assert_allclose(ormqr(*arguments), complete @ c, atol=1e-13)
    np.testing.assert_allclose(ormqr(*arguments, transpose=True), complete.mT @ c, atol=1e-13)
    np.testing.assert_allclose(ormqr(*arguments, left=False), c @ complete, atol=1e-13)
    np.testing.assert_allclose(ormqr(*arguments, left=False, transpose=True), c @ complete.mT, atol=1e-13)


# Ranks and tolerances


@pytest.mark.parametrize("driver", ["gelsy", "gels", "gelsd", "gelss"])
def test_least_squares_without_full_rank(driver):
    a, b = np.ones((4, 2)), np.arange(4.0)
    solution, residuals, rank, singular_values = lstsq(a, b, driver=driver)
    np.testing.assert_allclose(solution, [0.75, 0.75])
    assert residuals.shape == ((1,) if driver == "gels" else (0,))
    assert rank.tolist() == ([] if driver == "gels" else 1)
    assert singular_values.shape == ((2,) if driver in ("gelsd", "gelss") else (0,))


def test_least_squares_count_what_is_not_small():
    a, b = np.diag([1.0, 1e-3]), np.ones(2)
    assert lstsq(a, b).rank == 2
    solution, _, rank, _ = lstsq(a, b, np.array(1e-2))
    assert rank == 1
    np.testing.assert_allclose(solution, [1, 0])
    np.testing.assert_allclose(lstsq(a, b, np.array(1e-2, np.float32)).solution, [1, 0])


@pytest.mark.parametrize("hermitian", [True, False])
def test_pseudo_inverses_count_what_is_not_small(hermitian):
    a = np.stack([np.diag([1.0, -1e-3, 0])] * 2)
    expected = np.stack([np.diag([1.0, -1e3, 0]), np.diag([1.0, 0, 0])])
    np.testing.assert_allclose(pinv(a, np.array([0, 1e-2]), hermitian=hermitian), expected, atol=1e-10)
    np.testing.assert_allclose(pinv(a, None, np.array([0, 1e-2]), hermitian=hermitian), expected, atol=1e-10)
    np.testing.assert_allclose(pinv(a, np.array(1e-2), np.array(0.0), hermitian=hermitian)[0], expected[1], atol=1e-10)
    np.testing.assert_allclose(pinv(a, hermitian=hermitian), expected[[0, 0]], atol=1e-10)


# The exponential


def test_the_exponential_of_a_rotation():
    angles = np.array([0.1, 1, 10, 1000])
    turn = np.array([[0.0, -1], [1, 0]])
    expected = np.moveaxis(np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]), -1, 0)
    np.testing.assert_allclose(matrix_exp(angles[:, None, None] * turn), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_the_exponential_is_rounded_once(dtype):
    a = np.array([[1.0, 2], [0, 1]]).astype(dtype)
    expected = (np.e * np.array([[1, 2], [0, 1]])).astype(dtype)
    np.testing.assert_allclose(matrix_exp(a).astype(np.float64), expected.astype(np.float64), rtol=1e-15)


def test_an_exponential_that_overflows():
    result = matrix_exp(np.stack([100 * np.eye(2), np.eye(2), [[np.nan, 0], [0, 1]]]).astype(np.float32))
    np.testing.assert_array_equal(result[0], [[np.inf, 0], [0, np.inf]])
    np.testing.assert_allclose(result[1], np.e * np.eye(2), rtol=1e-6)
    assert np.isnan(result[2]).all()


# Shapes

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
        ("Lu", [(B, 3, 2)], {}, "float64[b, 3, 3] float64[b, 3, 2] float64[b, 2, 2]"),
        ("Lu", [(N, N)], {"pivot": False}, "float64[0] float64[n, n] float64[n, n]"),
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
        ("Lstsq", [(4, 2), (4, K)], {"driver": "gelsd"}, "float64[2, k] float64[?] int64[] float64[2]"),
    ],
)
def test_shapes(op, shapes, attributes, expected):
    specs = OPS[op].infer_shapes(*(Spec(shape, np.float64) for shape in shapes), **attributes)
    assert " ".join(map(str, specs)) == expected


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        ("InvEx", [(2, 3)], "InvEx: an input has shape [2, 3]; its matrices must be square"),
        ("Qr", [(3,)], "Qr: an input has shape [3]; it takes matrices"),
        ("SolveEx", [(3, 3), (2, 4)], "SolveEx: the shapes [3, 3] and [2, 4] do not fit A X = B"),
        ("CholeskySolve", [(2, 1), (3, 3)], "CholeskySolve: the shapes [3, 3] and [2, 1] do not fit A X = B"),
        ("SolveTriangular", [(2, 3, 3), (5, 3, 1)], "the batch dimensions of shapes [2, 3, 3] and [5, 3, 1] do not"),
        ("HouseholderProduct", [(3, 2), (3,)], "HouseholderProduct: tau has shape [3] and a [3, 2]"),
        ("HouseholderProduct", [(2, 3), (2,)], "HouseholderProduct: a has shape [2, 3]; it needs as many rows"),
        ("Ormqr", [(3, 2), (2,), (4, 3)], "Ormqr: the shapes [3, 2] of a and [4, 3] of other do not fit Q C"),
        ("Lstsq", [(4, 2), (3,)], "Lstsq: the shapes [4, 2] and [3] do not fit"),
    ],
)
def test_shapes_that_do_not_fit(op, shapes, message):
    attributes = {"upper": True} if op == "SolveTriangular" else {}
    with pytest.raises(ShapeInferenceError, match=re.escape(message)):
        OPS[op](*(np.zeros(shape) for shape in shapes), **attributes)


def test_vectors_are_told_from_matrices_by_their_sizes():
    a = Spec((B, 3, 3), np.float64)
    with pytest.raises(ShapeInferenceError, match=r"whether .* are vectors is not known before the sizes are"):
        OPS["SolveEx"].infer_shapes(a, Spec((3, 3), np.float64))
    with pytest.raises(ShapeInferenceError, match="left=False does not take"):
        solve_ex(EYE, np.ones(3), left=False)


@pytest.mark.parametrize("op", ["InvEx", "SolveEx"])
def test_no_digits_from_a_matrix_with_nan(op):
    a = np.array([np.eye(3), np.eye(3)], np.float32)
    a[1, 0, 1] = np.nan
    result = OPS[op](a, *[a[0]] * (op == "SolveEx"))[0]
    np.testing.assert_array_equal(result[0], np.eye(3))
    assert np.isnan(result[1]).all()


@pytest.mark.parametrize("op", ["InvEx", "Eigh", "Svd", "Qr", "Pinv", "LdlFactorEx", "Slogdet", "CholeskyEx"])
def test_what_overflows_does_so_without_a_warning(op):
    for number in (3e38, 1e-40):
        a = np.array([[number, number / 2], [number / 2, number]], np.float32)
        OPS[op](a)
    if op in ("LdlFactorEx", "Qr", "Slogdet"):
        OPS[op](np.array([[1, np.inf, 2], [np.inf, np.inf, 3], [2, 3, 0]], np.float32))


def test_tolerances_of_a_pseudo_inverse_broadcast_with_its_batch():
    a, atol = np.diag([1.0, 3.0]), np.array([0.0, 2.0])
    inverses = OPS["Pinv"](a, atol)
    np.testing.assert_allclose(inverses, [np.diag([1, 1 / 3]), np.diag([0, 1 / 3])], atol=1e-12)
    (spec,) = OPS["Pinv"].infer_shapes(Spec(a.shape, a.dtype), Spec((SymbolicDim("b"),), a.dtype))
    assert spec.shape == (SymbolicDim("b"), 2, 2)


def test_what_depends_on_sizes_that_are_not_known_is_left_open():
    n, double = SymbolicDim("n"), np.dtype(np.float64)
    with pytest.raises(UnknownSizeError, match="vectors"):
        OPS["SolveEx"].infer_shapes(Spec((n, 3, 3), double), Spec((2, 3), double))
    with pytest.raises(UnknownSizeError, match="residuals"):
        OPS["Lstsq"].infer_shapes(Spec((2, n, 3), double), Spec((2, n, 1), double), driver="gels")
    for op in ("Cov", "Corrcoef"):
        with pytest.raises(UnknownSizeError, match="scalar"):
            OPS[op].infer_shapes(Spec((n, 3), double))
