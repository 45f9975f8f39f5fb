"""Calls with complex tensors: nodes of ONNX on real and imaginary parts, without torch in the model."""

import math
import warnings

import pytest
import torch

import exporters
from tests.helpers.tiers import exhaustive


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def numbers(*shape, dtype=torch.complex64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(len(shape)))


Z, SQUARE, BATCH = numbers(3, 4), numbers(4, 4), numbers(2, 3, 4)
REAL, PLACES = Z.real, torch.tensor([2, 0])


def written(x, y):
    z, real = x.clone(), y.clone()
    z[1] = y[0]
    z[:, 1:3] = 1.5j
    real.copy_(x[0])
    return z, x.clone().copy_(y[1]), real


QUICK = {
    "scattered": (lambda x, i: x.index_put((i,), x[0]).scatter(1, i[:, None], 0), Z, PLACES),
    "layer": (lambda x, y: torch.nn.functional.linear(x, y, y[0]).sigmoid() * 2j, Z, SQUARE),
    "recurrence": (lambda x: (x.exp() * x.unsqueeze(1)).sum(-1).cumsum(0), Z),
    "pieces": (lambda x: (*x.split([1, 3], -1), *x.unbind(0), *x.chunk(2, -1)), Z),
    "real numbers written": (written, Z, REAL),
    "system": (lambda x, y: torch.linalg.solve(x, y) + torch.linalg.inv(x), SQUARE, SQUARE),
    "chosen": (lambda x: torch.where(x.real > 0, x, 0).masked_fill(x.imag > 0, 1j).repeat(2, 1), Z),
}


def factors(x):
    """What is determined of factors that are free in signs and phases, and triangular factors, which are not."""
    symmetric = x @ x.mH + torch.eye(4)
    q, r = torch.linalg.qr(x[:, :3])
    u, s, vh = torch.linalg.svd(x[:, :3], full_matrices=False)
    p, lower, upper = torch.linalg.lu(x)
    packed, pivots = torch.linalg.ldl_factor(symmetric, hermitian=True)
    factor = torch.linalg.cholesky(symmetric)
    others = torch.cholesky_inverse(factor), torch.linalg.ldl_solve(packed, pivots, x, hermitian=True)
    return q @ r, (u * s) @ vh, s, p @ lower @ upper, torch.linalg.lu_solve(*torch.linalg.lu_factor(x), x.mT), *others


def eigenvalues(x):
    values, vectors = torch.linalg.eig(x)
    real, turned = torch.linalg.eigh(x + x.mH)
    found = torch.linalg.eigvals(x)
    powers = found.sum(), (found**2).sum(), (found**3).sum()
    return x @ vectors - vectors * values, vectors.abs().square().sum(0), real, (turned * real) @ turned.mH, *powers


FUNCTIONS = (
    "exp expm1 log log1p log2 log10 sqrt rsqrt sin cos tan sinh cosh tanh acos asin atan acosh asinh atanh "
    "sigmoid sgn square isnan isfinite isinf"
)
MORE = {
    **{name: (getattr(torch, name), Z) for name in [*FUNCTIONS.split(), "logical_not", "conj_physical"]},
    "times a number": (lambda x: x * 1j / (2 - 1j), REAL),
    "powers": (lambda x: (x**3, x**-2, x**0.5, x**1.5, 2**x, x**x), Z),
    "norms": (lambda x: (x.norm(), torch.linalg.vector_norm(x, 1, -1)), Z),
    "products": (lambda x: (torch.bmm(x, x.mT), torch.baddbmm(x @ x.mT, x, x.mT), x[0] @ x[0, 0]), BATCH),
    "inner products": (lambda x: (torch.dot(x[0], x[1]), torch.vdot(x[0], x[1])), Z),
    "affine": (
        lambda x, y: (torch.addmm(x, x, y, alpha=2), torch.addcmul(x, x, x), torch.lerp(x, x * 2, 0.3)),
        Z,
        SQUARE,
    ),
    "indices": (
        lambda x, i: (x[i], x[:, i], x.index_select(1, i), x.gather(1, i[None]), x.index_add(0, i, x[:2])),
        Z,
        PLACES,
    ),
    "padding": (lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), value=3), Z),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.diagonal(), torch.diag_embed(x), x.unfold(-1, 2, 1)), SQUARE),
    "shapes": (lambda x: (x.unsqueeze(-1), x[:, :1].squeeze(-1), x[:, None].expand(3, 2, 4), x.tile(2)), Z),
    "types": (lambda x: (x.to(torch.complex128), x.bool(), x == x, x != 0, x.any(), x.all(-1)), Z),
    "singular values": (torch.linalg.svdvals, SQUARE),
    "matrices": (lambda x: (torch.linalg.matrix_exp(x), torch.linalg.pinv(x)), SQUARE),
    "determinants": (lambda x: (torch.det(x), torch.logdet(x), *torch.linalg.slogdet(x)), SQUARE),
    "inverses of tensors": (lambda x: torch.linalg.tensorinv(x, ind=1), numbers(4, 2, 2)),
    "factors": (factors, SQUARE),
    "eigenvalues": (eigenvalues, SQUARE),
    "least squares": (lambda x: torch.linalg.lstsq(x.mT, x.mT[:, :2]).solution, Z),
    "spread": (lambda x: (x.var(), x.std(0), *torch.var_mean(x, 1, correction=0), *torch.std_mean(x, keepdim=True)), Z),
    "spread of few": (lambda x: (x.var(), x[0].std(), x[0].var(correction=0)), numbers(1)),
    "products of all": (
        lambda x: (x.prod(), x.prod(0, keepdim=True), x[:, :0].prod(1), x.cumprod(-1, dtype=x.dtype)),
        Z,
    ),
    "closeness": (
        lambda x: (x.isclose(x.flip(0)), x.isclose(x + 1e-9, equal_nan=True), x.nan_to_num(), x.nan_to_num(2, 1, 0)),
        torch.tensor([1, 1 + 1e-9j, complex(math.inf, 1), complex(-math.inf, 1), complex(1, math.nan), 1j]),
    ),
    "other products": (lambda x: (torch.addr(x, x[:, 0], x[0], alpha=2j), torch.linalg.cross(x.mT, x.mT + 1)), Z),
    "products of vectors": (lambda x: (torch.linalg.vecdot(x, x * 1j), torch.cross(x.mT, x.mT * 2, dim=1)), Z),
    "places": (lambda x: (x * (x.real > 0)).nonzero(), Z),
}


def check(function, *args):
    model = Function(function).eval()
    program = exporters.export(model, args, verbose=False)  # without fallback=
    pair = (1e-4, 1e-5)
    report = exporters.verify(model, args, program, tolerances={torch.float32: pair, torch.float64: pair})
    assert report.ok, report


@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
@pytest.mark.filterwarnings("ignore:.* degrees of freedom is <= 0:UserWarning")
@pytest.mark.parametrize("name", [*QUICK, *map(exhaustive, MORE)])
def test_it_computes_what_torch_does(name):
    function, *args = {**QUICK, **MORE}[name]
    check(function, *args)


@pytest.mark.parametrize("name", ["log", *(exhaustive(name) for name in FUNCTIONS.split() if name != "log")])
def test_double_precision(name):
    model = Function(getattr(torch, name)).eval()
    args = (Z.to(torch.complex128),)
    report = exporters.verify(model, args, exporters.export(model, args, verbose=False))
    assert report.ok, report


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_large_and_small_numbers():
    values = torch.tensor([0, 1e30 + 1e30j, 1e-30 - 1e-30j, -4, 2j], dtype=torch.complex64)
    check(lambda x: (x.sqrt(), (x + 1e-30).log().real, x.log1p().imag), values)
    tiny = torch.tensor([1e-30 - 1e-30j, 3e-200 + 4e-200j, 1e200 + 1e200j], dtype=torch.complex128)
    check(lambda x: (x.abs() * 1e200, x.abs() * 1e-200, x.to(torch.complex64).abs() * 1e30), tiny)
    check(lambda x: (x.tanh(), x.sigmoid()), torch.tensor([50 + 3j, -50 - 3j], dtype=torch.complex64))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_sides_of_branch_cuts(dtype):
    real = torch.tensor([2, 2, -2, -2, 0.5, -0.5, 0, 0, 1, 1e8], dtype=dtype)
    imaginary = torch.tensor([0, -0.0, 0, -0.0, 0, -0.0, 2, -2, 0, 1], dtype=dtype)
    functions = torch.acos, torch.asin, torch.atan, torch.acosh, torch.asinh, torch.atanh, torch.sqrt, torch.log
    check(lambda x: tuple(function(x) for function in functions), torch.complex(real, imaginary))


@pytest.mark.exhaustive
def test_decompositions_of_other_sizes():
    model = Function(lambda x: (torch.linalg.svdvals(x), torch.linalg.pinv(x), x.var(-1), x.prod(0))).eval()
    batch, size = torch.export.Dim("batch", min=2), torch.export.Dim("size", min=2)
    program = exporters.export(model, (BATCH,), dynamic_shapes=(({0: batch, 2: size},),), verbose=False)
    report = exporters.verify(model, (numbers(3, 3, 5),), program)
    assert report.ok, report


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_grouped_products(dtype):
    model = Function(lambda x, y, ends: torch._grouped_mm(x, y, offs=ends)).eval()
    matrices = torch.randn(3, 16, 8, generator=torch.manual_seed(0)).to(dtype)
    samples = [
        (torch.randn(size, 16).to(dtype), matrices, torch.tensor(ends, dtype=torch.int32))
        for size, ends in ((12, [4, 4, 12]), (8, [0, 5, 8]))
    ]
    rows = (({0: torch.export.Dim.AUTO}, None, None),)
    program = exporters.export(model, samples[0], dynamic_shapes=rows, verbose=False)
    report = exporters.verify(model, program=program, samples=samples)
    assert report.ok, report
    assert all(not node.domain for node in program.model.graph)


@pytest.mark.parametrize("capture", ["export", "trace"])
def test_grouped_products_of_counted_rows(capture):
    """The rows of each expert of a mixture of experts, whose number is that of the weights."""
    weights = torch.randn(4, 8, 8, generator=torch.manual_seed(0))

    def experts(x):
        chosen = x.argmax(-1) % 4
        order = chosen.argsort()
        ends = torch.bincount(chosen, minlength=4).cumsum(0).to(torch.int32)
        return torch._grouped_mm(x[order], weights, offs=ends)[order.argsort()]

    model, rows = Function(experts).eval(), torch.randn(6, 8)
    dynamic = {"dynamic_shapes": (({0: torch.export.Dim.DYNAMIC},),)} if capture == "export" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exporters.CaptureWarning)
        program = exporters.export(model, (rows,), verbose=False, capture=capture, **dynamic)
    report = exporters.verify(model, program=program, samples=[(rows,), *[(torch.randn(9, 8),)] * bool(dynamic)])
    assert report.ok, report


def test_truth_of_all_and_any():
    check(lambda x: (torch._is_all_true(x > -9), torch._is_any_true(x > 9)), REAL)
