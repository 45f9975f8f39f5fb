"""Linear algebra that fails: singular matrices, numbers that are not finite or overflow, and what is unaffected."""

import numpy as np
import pytest

from pyops.kernels import OPS
from pyops.kernels.linear_systems import (
    cholesky_inverse,
    cholesky_solve,
    inv_ex,
    ldl_solve,
    lu_solve,
    slogdet,
    solve_ex,
    solve_triangular,
)
from pyops.kernels.orthogonal_factorization import lstsq
from pyops.kernels.spectral import eig, eigh, pinv, svd
from pyops.kernels.triangular_factorization import cholesky_ex, ldl_factor_ex, lu_factor_ex, lu_unpack

REGULAR = np.array([[4.0, 1, 2], [1, 5, 3], [2, 3, 6]])
SINGULAR = np.array([[1.0, 2, 4], [2, 4, 8], [1, 1, 1]])
BATCH = np.stack([REGULAR, SINGULAR, 2 * REGULAR])
INDEFINITE = np.array([[4.0, 1, 2], [1, -3, 5], [2, 5, 9]])
NAN = np.full((3, 3), np.nan)
EYE = np.eye(3)
FAR_APART = np.array([[0.0, 0, 0, 0], [0, 0, 0, 0], [2e292, 0, 0, 0], [0, 3e24, 5e21, 0]])


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
        (eigh, (FAR_APART,), "Eigh: the algorithm failed to converge .*; use float64, and values that are fewer"),
        (eig, (np.full((2, 2), np.inf),), "Eig: .*non-finite values; find where they come from"),
    ],
)
def test_a_failure_is_an_error(op, inputs, message):
    with pytest.raises(np.linalg.LinAlgError, match=message):
        op(*inputs)


@pytest.mark.parametrize("op", [lu_solve, lu_unpack, ldl_solve])
@pytest.mark.parametrize("pivots", [[1, 2, 4], [0, 2, 3]])
def test_pivots_are_rows(op, pivots):
    inputs = (EYE, np.array(pivots, np.int32), EYE)
    with pytest.raises(ValueError, match="pivots must be rows from 1"):
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
