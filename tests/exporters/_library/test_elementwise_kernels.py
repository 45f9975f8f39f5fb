"""Elementwise kernels on what torch's samples leave out: Python numbers, integers, promotion, ends of domains."""

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.testing import make_tensor

import exporters
from exporters._library.elementwise import OF_FLOATS
from exporters._torch.private.operators import overloads
from tests.exporters._library.kernel_calls import Call, arrays, run


@pytest.fixture(autouse=True)
def _exporting(monkeypatch):
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)


def check(name, *args, rtol=1e-5, atol=1e-6, **kwargs):
    """The nodes of a call return what torch does."""
    (target,) = overloads(f"aten::{name}" if "." in name else f"aten::{name}.default")
    call = Call(target, args, kwargs, target(*args, **kwargs))
    for actual, expected in zip(run(call), arrays(call.expected), strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        if expected.dtype == ml_dtypes.bfloat16:
            actual, expected = actual.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


POLYNOMIALS = [name.removeprefix("special_") for name in OF_FLOATS if "polynomial" in name]
UNARY = ["lgamma", "digamma", "erfinv", "i0", "special_i0e", "special_i1", "special_i1e", "signbit"]
NARROW = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_a_number_as_degree_or_as_argument(name):
    x, n = torch.linspace(-1.5, 1.5, 7), torch.tensor([-1.0, 0, 1, 2, 5, 9.7])
    check(f"special_{name}.n_scalar", x, 3)
    check(f"special_{name}.n_scalar", x.double(), 2.5)
    check(f"special_{name}.n_scalar", torch.arange(4), 2)
    check(f"special_{name}.x_scalar", 0.3, n)
    check(f"special_{name}.x_scalar", 2, torch.arange(5))
    check(f"special_{name}", x[:, None], n)
    check(f"special_{name}", x[:, None], torch.arange(5))
    check(f"special_{name}", x, torch.tensor(4.0, dtype=torch.float64))


@pytest.mark.parametrize("name", POLYNOMIALS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_degrees_that_are_high_or_none(name, dtype):
    x = torch.tensor([-1, -0.9, -0.5, -0.0, 0, 0.3, 0.99, 1], dtype=dtype)
    n = torch.tensor([-(2.0**70), -3, -0.5, 6, 7, 8, 9, 30, 127, 128], dtype=dtype)
    # Beyond, torch and NumPy round the parts of a recurrence in float32 each in its own way.
    check(f"special_{name}", x[:, None], n, rtol=2e-3 if dtype == torch.float32 else 1e-9, atol=1e-3)


@pytest.mark.parametrize("name", ["hermite_polynomial_h", "hermite_polynomial_he"])
def test_hermite_polynomials_end_at_a_degree(name):
    check(f"special_{name}", torch.tensor([0.5]), torch.tensor([129.0]))
    check(f"special_{name}", torch.tensor([0.5]).double(), torch.tensor([513.0]).double())


@pytest.mark.parametrize("overload", ["self_scalar", "other_scalar"])
def test_zeta_with_a_number(overload):
    x = torch.tensor([1.0, 1.5, 2, 30, 0.5])
    for number in (2, 2.5):
        check(f"special_zeta.{overload}", *((number, x) if overload == "self_scalar" else (x, number)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_whole_numbers(name, dtype):
    x, y = (make_tensor((5, 1, 4), dtype=dtype, device="cpu"), make_tensor((3, 1), dtype=dtype, device="cpu"))
    x[0, 0], y[0] = torch.tensor([0, 1, 2, 3]), 0
    check(name, x, y, rtol=0, atol=0)
    check(name, x[:0], y, rtol=0, atol=0)
    check(name, x, y.to(torch.int64), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.int64])
@pytest.mark.parametrize("name", ["fmax", "fmin"])
def test_extremes_of_whole_numbers(name, dtype):
    x, y = make_tensor((4, 3), dtype=dtype, device="cpu"), make_tensor((3,), dtype=dtype, device="cpu")
    check(name, x, y)
    check(name, x, y.to(torch.float32))


@pytest.mark.parametrize("name", [name for name in UNARY if name != "signbit"])
def test_whole_numbers_become_floats(name):
    for x in (torch.tensor([0, 1, 2]), torch.tensor([True, False]), torch.tensor(1, dtype=torch.uint8)):
        check(name, x)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", [*UNARY, "frexp.Tensor"])
def test_narrow_floats(name, dtype):
    check(name, torch.tensor([[0.1, 0.9, -0.5], [0.25, 1, 0.6]], dtype=dtype).T, rtol=NARROW[dtype])


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ["igamma", "igammac", "hypot", "copysign.Tensor", "fmax", "fmin", "nextafter"])
def test_narrow_floats_of_two(name, dtype):
    x = torch.tensor([0.1, 0.9, 0.5, 3], dtype=dtype)
    check(name, x[:, None], x, rtol=NARROW[dtype])


EDGES = torch.tensor([0.0, -0.0, 1, -1, 2, -3, 0.5, torch.inf, -torch.inf, torch.nan, 1e-40, 3e38, -0.5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name", [name for name, op in OF_FLOATS.items() if len(op.signature.inputs) == 1] + ["special_erfcx", "signbit"]
)
def test_ends_of_domains(name, dtype):
    check(name, EDGES.to(dtype))
    check(name, EDGES.to(dtype)[::2])
    check(name, EDGES.to(dtype)[2])


@pytest.mark.parametrize("name", ["hypot", "copysign.Tensor", "fmax", "fmin", "nextafter", "special_zeta"])
def test_ends_of_domains_of_two(name):
    edges = EDGES[EDGES.abs() <= 3] if "zeta" in name else EDGES
    check(name, edges[:, None], edges)
    check(name, edges[:, None].double(), edges.double())
    check(name, edges[:0, None], edges)


def test_signs_are_kept():
    (target,) = overloads("aten::copysign.Tensor")
    (actual,) = run(Call(target, (EDGES, -EDGES), {}, None))
    np.testing.assert_array_equal(np.signbit(actual), ~np.signbit(EDGES.numpy()))
    for number in (-2, -0.0, 3.5):
        check("copysign.Scalar", torch.tensor([1, -2]), number)
        check("copysign.Scalar", EDGES, number)


def test_a_scalar_tensor_does_not_widen_one_with_dimensions():
    wide = torch.tensor(2.0, dtype=torch.float64)
    check("hypot", torch.ones(3), wide)
    check("hypot", wide, torch.ones(3))
    check("fmax", torch.arange(3), wide)
    check("copysign.Tensor", torch.arange(3), wide)


@pytest.mark.parametrize("n", range(5))
def test_polygamma_between_its_poles(n):
    x = torch.tensor([0.1, 1, 2.5, 30, -0.5, -1.7, torch.nan])
    check("polygamma", n, x, rtol=1e-4)
    check("polygamma", n, x.double(), rtol=1e-7)
    check("polygamma", n, torch.tensor([1, 2, 3]))


def test_silu_of_complex_numbers():
    z = make_tensor((3, 4), dtype=torch.complex128, device="cpu", low=-20, high=20)
    check("silu", z)
    check("silu", z[:, 0].to(torch.complex64))
    check("silu", z[0, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rrelu_in_evaluation(dtype):
    x = torch.tensor([-2.0, -0.0, 0, 3, torch.nan], dtype=dtype)
    check("rrelu_with_noise_functional", x, torch.zeros_like(x))
    check("rrelu_with_noise_functional", x, torch.zeros_like(x), 0.1, 0.9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rrelu_in_training(dtype):
    (target,) = overloads("aten::rrelu_with_noise_functional.default")
    x = torch.linspace(-3, 3, 101, dtype=dtype)
    call = Call(target, (x, torch.empty_like(x), 0.1, 0.9, True), {}, None)
    result, noise = run(call)
    negative = x.numpy() <= 0
    assert (noise[~negative] == 1).all()
    assert noise.dtype == x.numpy().dtype
    assert ((noise[negative] >= 0.0999) & (noise[negative] <= 0.9001)).all()
    assert len(np.unique(noise[negative])) > 10
    np.testing.assert_array_equal(result, x.numpy() * noise)


def test_an_export_takes_them():
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.special.erfcx(x), torch.mvlgamma(x + 3, 3), torch.special.chebyshev_polynomial_t(x, 4)

    program = exporters.export(Model().eval(), (torch.linspace(-30, 5, 8),), verbose=False)
    found = {node.op_type for node in program.model.graph if node.domain == "pyops"}
    assert found == {"Erfcx", "Lgamma", "ChebyshevPolynomialT"}
    # Of polynomials far from 0 a relative tolerance.
    report = exporters.verify(Model(), (torch.linspace(-2, 5, 8),), program)
    assert report.ok, report
