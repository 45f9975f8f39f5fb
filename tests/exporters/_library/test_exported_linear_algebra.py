"""Exported linear algebra checks what torch checks, and reports the failures that torch reports."""

import numpy as np
import pytest
import torch

import exporters
from exporters._library.row_table import absent
from pyops.kernels.linear_systems import inv_ex, slogdet, solve_ex
from pyops.kernels.triangular_factorization import cholesky_ex, ldl_factor_ex, lu_factor_ex
from tests.helpers.tiers import exhaustive

REGULAR = torch.tensor([[4.0, 1, 2], [1, 5, 3], [2, 3, 6]])
SINGULAR = torch.tensor([[1.0, 2, 4], [2, 4, 8], [1, 1, 1]])
INDEFINITE = torch.tensor([[4.0, 1, 2], [1, -3, 5], [2, 5, 9]])
SHEAR = torch.tensor([[0.0, 1, 0], [0, 2, 0], [0, 0, 1]])


class Calling(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self._function = function

    def forward(self, *tensors):
        return self._function(*tensors)


def export(function, *tensors, **arguments):
    return exporters.export(Calling(function).eval(), tensors, verbose=False, **arguments)


@pytest.mark.filterwarnings("ignore:torch.(cholesky|lu|triangular_solve) is deprecated")
@pytest.mark.parametrize(
    ("function", "bad"),
    [
        pytest.param(torch.linalg.inv, SINGULAR, id="inv"),
        exhaustive(torch.inverse, SINGULAR, id="inverse"),
        exhaustive(lambda a: torch.linalg.matrix_power(a, -2), SINGULAR, id="matrix_power"),
        exhaustive(lambda a: torch.linalg.tensorinv(a, ind=1), SINGULAR, id="tensorinv"),
        pytest.param(lambda a: torch.linalg.solve(a, torch.ones(3)), SINGULAR, id="solve"),
        exhaustive(lambda a: torch.linalg.tensorsolve(a, torch.ones(3)), SINGULAR, id="tensorsolve"),
        exhaustive(lambda a: torch.linalg.lu_factor(a)[0], SINGULAR, id="lu_factor"),
        pytest.param(lambda a: torch.linalg.inv_ex(a, check_errors=True)[0], SINGULAR, id="inv_ex"),
        pytest.param(torch.linalg.cholesky, INDEFINITE, id="cholesky"),
        pytest.param(
            torch.cholesky,
            INDEFINITE,
            id="torch.cholesky",
            marks=pytest.mark.skipif("aten::cholesky" in absent, reason="this torch has no aten::cholesky any more"),
        ),
        exhaustive(torch.cholesky_inverse, torch.diag(torch.tensor([1.0, 0, 2])), id="cholesky_inverse"),
    ],
)
def test_a_failure_is_an_error_as_in_torch(function, bad):
    with pytest.raises(RuntimeError, match=r"singular|definite|U\[3,3\] is zero"):
        function(bad)
    program = export(function, REGULAR)
    assert exporters.verify(Calling(function), (REGULAR,), program)
    with pytest.raises(np.linalg.LinAlgError, match=r"singular|definite|U\[3,3\] is zero"):
        program(bad)


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
@pytest.mark.parametrize(
    "function",
    [
        exhaustive(lambda a, b: torch.logdet(a), id="logdet"),
        pytest.param(lambda a, b: torch.slogdet(a), id="slogdet"),
        pytest.param(lambda a, b: torch.linalg.solve_ex(a, b), id="solve_ex"),
        pytest.param(lambda a, b: torch.linalg.tensorinv(a.reshape(3, 3, 1), ind=1), id="tensorinv"),
        exhaustive(lambda a, b: torch.lu(a), id="lu"),
        pytest.param(lambda a, b: torch.linalg.lstsq(a, b), id="lstsq"),
        pytest.param(lambda a, b: torch.linalg.lstsq(a[:, :2], b, rcond=0.5, driver="gelsd"), id="lstsq-gelsd"),
        exhaustive(lambda a, b: torch.linalg.lstsq(a[:, :2], b[:, 0], driver="gels"), id="lstsq-gels"),
        pytest.param(lambda a, b: torch.linalg.eigvals(a).abs(), id="eigvals"),
        pytest.param(lambda a, b: torch.ops.aten._linalg_slogdet(a), id="slogdet-factors"),
        exhaustive(lambda a, b: torch.ops.aten._linalg_solve_ex(a, b), id="solve-factors"),
    ],
)
def test_what_torch_makes_others_of(function):
    program = export(function, REGULAR, SHEAR)
    assert {node.domain for node in program.model_proto.graph.node} <= {"", "pyops"}
    report = exporters.verify(Calling(function), (REGULAR, SHEAR), program)
    assert report.ok, report


def test_a_negative_determinant_has_no_logarithm():
    program = export(torch.logdet, torch.stack([REGULAR, REGULAR]))
    swapped = torch.stack([REGULAR[[1, 0, 2]], SINGULAR])
    (result,) = program(swapped)
    torch.testing.assert_close(result, torch.logdet(swapped), equal_nan=True)
    assert result[0].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("op", "function"),
    [
        (inv_ex, torch.linalg.inv_ex),
        (cholesky_ex, torch.linalg.cholesky_ex),
        (lu_factor_ex, torch.linalg.lu_factor_ex),
        (ldl_factor_ex, torch.linalg.ldl_factor_ex),
        (slogdet, torch.linalg.slogdet),
    ],
)
def test_what_is_reported_of_a_failure(op, function, dtype):
    batch = torch.stack([REGULAR, SINGULAR, INDEFINITE, SHEAR, torch.zeros(3, 3), torch.eye(3)]).to(dtype)
    batch = batch.tril() + batch.tril(-1).mT if op in (cholesky_ex, ldl_factor_ex) else batch
    for one, other in zip(op(batch.numpy()), function(batch), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_reported_of_a_system_without_solution(dtype):
    a = torch.stack([REGULAR, SINGULAR, SHEAR]).to(dtype)
    result, info = solve_ex(a.numpy(), a.numpy())
    expected, expected_info = torch.linalg.solve_ex(a, a)
    np.testing.assert_array_equal(info, expected_info.numpy())
    np.testing.assert_allclose(result[0], expected[0].numpy(), atol=1e-6)
    assert not np.isfinite(result[1:]).all((1, 2)).any()


def test_sizes_that_are_dynamic():
    def function(a, b):
        q, r = torch.linalg.qr(b)
        p, lower, upper = torch.linalg.lu(b)
        values = torch.linalg.svdvals(b), torch.linalg.eigvalsh(a), torch.linalg.matrix_exp(a / 10), torch.logdet(a)
        factor = torch.linalg.cholesky(a)
        solved = torch.cholesky_solve(b, factor), torch.linalg.solve(a, b), torch.linalg.lstsq(a, b).solution
        return q @ r, p @ lower @ upper, torch.linalg.pinv(b), torch.linalg.tensorinv(a, ind=1), *values, *solved

    n, k = torch.export.Dim("n", min=2), torch.export.Dim("k", min=2)
    tensors = REGULAR, torch.linspace(-1, 2, 12).reshape(3, 4) ** 2
    program = export(function, *tensors, dynamic_shapes=(({0: n, 1: n}, {0: n, 1: k}),))
    larger = torch.eye(5) * 3 + torch.ones(5, 5), torch.arange(10.0).reshape(5, 2).sin()
    report = exporters.verify(Calling(function), larger, program)
    assert report.ok, report
    assert program.model_proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"
