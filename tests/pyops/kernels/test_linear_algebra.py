"""What torch's samples of linear algebra do not reach: larger sizes, all options together, ranks, and overflow."""

import ml_dtypes
import numpy as np
import pytest

from pyops.kernels import OPS
from pyops.kernels.linear_systems import cholesky_inverse, cholesky_solve, ldl_solve, lu_solve, solve_triangular
from pyops.kernels.orthogonal_factorization import geqrf, householder_product, lstsq, ormqr, qr
from pyops.kernels.spectral import eig, eigh, matrix_exp, pinv, svd
from pyops.kernels.triangular_factorization import cholesky_ex, ldl_factor_ex, lu_factor_ex, lu_unpack
from pyops.shapes import SymbolicDim, TensorSpec


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def symmetric(n: int) -> np.ndarray:
    a = random(n, n)
    return a + a.T


# Larger matrices, which are halved


@pytest.mark.parametrize("shape", [(40, 40), (2, 50, 20), (2, 20, 50), (17, 16), (1, 1)])
def test_the_factors_of_lu(shape):
    a = random(*shape) + 30 * np.eye(*shape[-2:])
    packed, pivots, info = lu_factor_ex(a)
    assert not info.any()
    p, lower, upper = lu_unpack(packed, pivots)
    np.testing.assert_allclose(p @ lower @ upper, a, atol=1e-11)
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_array_equal(upper, np.triu(upper))


def test_the_largest_element_of_a_column_is_the_pivot():
    a = random(50, 50)
    assert np.abs(np.tril(lu_factor_ex(a).LU, -1)).max() < 1
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
    assert residuals.shape == ((0,) if driver == "gelsy" else (1,))
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


def test_tolerances_of_a_pseudo_inverse_broadcast_with_its_batch():
    a, atol = np.diag([1.0, 3.0]), np.array([0.0, 2.0])
    inverses = OPS["Pinv"](a, atol)
    np.testing.assert_allclose(inverses, [np.diag([1, 1 / 3]), np.diag([0, 1 / 3])], atol=1e-12)
    (spec,) = OPS["Pinv"].infer_shapes(TensorSpec(a.shape, a.dtype), TensorSpec((SymbolicDim("b"),), a.dtype))
    assert spec.shape == (SymbolicDim("b"), 2, 2)


def test_a_diagonal_element_that_is_small_in_its_column_only_is_a_pivot():
    a = np.array([[1.0, 2, 0], [2, 1, 100], [0, 100, 1]])
    factors, pivots, _ = ldl_factor_ex(a)
    assert pivots[0] == 1
    np.testing.assert_allclose(a @ ldl_solve(factors, pivots, a), a, atol=1e-12)


def test_values_without_vectors():
    a = symmetric(5)
    u, s, vh = svd(a, compute_uv=False)
    assert u.size == vh.size == 0
    np.testing.assert_allclose(s, svd(a).S)
    values, vectors = eigh(a, compute_v=False)
    assert vectors.size == 0
    np.testing.assert_allclose(values, eigh(a)[0])
    pairs, vectors = eig(a, compute_v=False)
    assert vectors.size == 0
    np.testing.assert_allclose(np.sort(pairs[:, 0]), values)
