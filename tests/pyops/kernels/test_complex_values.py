"""The ops of complex numbers: properties of their results, and their shapes."""

import re

import numpy as np
import pytest

from pyops.errors import ShapeInferenceError
from pyops.kernels import OPS
from pyops.shapes import SymbolicDim, TensorSpec

rng = np.random.default_rng(0)


def random(*shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def adjoint(x):
    return x.conj().mT


def as_pairs(x):
    return np.stack([x.real, x.imag], -1) if np.iscomplexobj(x) else x


def as_numbers(x):
    return x[..., 0] + 1j * x[..., 1]


A, B, TALL, EYE = random(2, 3, 3), random(2, 3, 2), random(2, 4, 3), np.eye(3)
HERMITIAN = A @ adjoint(A) + EYE
LU, PIVOTS, _ = OPS["ComplexLuFactorEx"](as_pairs(A))
LDL, PAIRS, _ = OPS["ComplexLdlFactorEx"](as_pairs(HERMITIAN), hermitian=True)
REFLECTORS, TAU = map(as_numbers, OPS["ComplexGeqrf"](as_pairs(TALL)))
Q = as_numbers(OPS["ComplexQr"](as_pairs(TALL), mode="complete").Q)
FACTOR = np.linalg.cholesky(HERMITIAN)

# Op, inputs, attributes, and what is 0 of its outputs.
CASES = [
    ("InvEx", (A,), {}, lambda x, info: (A @ x - EYE, info)),
    ("SolveEx", (A, B), {}, lambda x, info: (A @ x - B, info)),
    ("SolveEx", (A, B.mT), {"left": False}, lambda x, info: (x @ A - B.mT, info)),
    ("Slogdet", (A,), {}, lambda sign, size: (np.linalg.det(A) - sign * np.exp(size),)),
    ("SolveTriangular", (A, B.mT), {"upper": True, "left": False}, lambda x: (x @ np.triu(A) - B.mT,)),
    ("CholeskyEx", (HERMITIAN,), {"upper": True}, lambda x, info: (adjoint(x) @ x - HERMITIAN, info)),
    ("CholeskyInverse", (adjoint(FACTOR),), {"upper": True}, lambda x: (x @ HERMITIAN - EYE,)),
    ("CholeskySolve", (B, FACTOR), {}, lambda x: (HERMITIAN @ x - B,)),
    ("CholeskySolve", (B, adjoint(FACTOR)), {"upper": True}, lambda x: (HERMITIAN @ x - B,)),
    ("LuUnpack", (as_numbers(LU), PIVOTS), {}, lambda p, lower, upper: (p @ lower @ upper - A,)),
    ("LuSolve", (as_numbers(LU), PIVOTS, B), {"adjoint": True}, lambda x: (adjoint(A) @ x - B,)),
    ("LuSolve", (as_numbers(LU), PIVOTS, B.mT), {"left": False}, lambda x: (x @ A - B.mT,)),
    ("LdlSolve", (as_numbers(LDL), PAIRS, B), {"hermitian": True}, lambda x: (HERMITIAN @ x - B,)),
    ("Qr", (TALL,), {}, lambda q, r: (q @ r - TALL, adjoint(q) @ q - EYE)),
    ("HouseholderProduct", (REFLECTORS, TAU), {}, lambda x: (x - Q[..., :3],)),
    ("Ormqr", (REFLECTORS, TAU, TALL), {"transpose": True}, lambda x: (x - adjoint(Q) @ TALL,)),
    ("Ormqr", (REFLECTORS, TAU, TALL.mT), {"left": False}, lambda x: (x - TALL.mT @ Q,)),
    ("Lstsq", (TALL, TALL @ B), {"driver": "gelsd"}, lambda x, residuals, rank, s: (x - B, residuals, rank - 3)),
    ("Svd", (TALL,), {}, lambda u, s, vh: ((u * s[..., None, :]) @ vh - TALL, adjoint(u) @ u - EYE)),
    ("Svd", (TALL,), {"compute_uv": False}, lambda u, s, vh: (s - np.linalg.svdvals(TALL),)),
    ("Eigh", (HERMITIAN,), {}, lambda values, v: (HERMITIAN @ v - v * values[..., None, :],)),
    ("Pinv", (TALL, None, None), {}, lambda x: (x @ TALL - EYE,)),
    ("Pinv", (HERMITIAN, None, None), {"hermitian": True}, lambda x: (x @ HERMITIAN - EYE,)),
    ("MatrixExp", (1j * HERMITIAN,), {}, lambda x: (adjoint(x) @ x - EYE,)),
    ("Cumprod", (A,), {"dim": -2}, lambda x: (x - A.cumprod(-2),)),
]
REAL = {"Slogdet": (1,), "Lstsq": (1, 3), "Svd": (1,), "Eigh": (0,)}


@pytest.mark.parametrize(("name", "inputs", "attributes", "zeros"), CASES, ids=[case[0] for case in CASES])
def test_what_holds_of_them(name, inputs, attributes, zeros):
    op, arrays = OPS[f"Complex{name}"], [None if x is None else as_pairs(x) for x in inputs]
    results = op(*arrays, **attributes)
    results = results if isinstance(results, tuple) else (results,)
    specs = op.infer_shapes(*(None if x is None else TensorSpec(x.shape, x.dtype) for x in arrays), **attributes)
    assert [(item.shape, item.dtype) for item in specs] == [(x.shape, x.dtype) for x in results]
    of_real = [x.dtype.kind != "f" or place in REAL.get(name, ()) for place, x in enumerate(results)]
    for found in zeros(*(x if real else as_numbers(x) for x, real in zip(results, of_real, strict=True))):
        np.testing.assert_allclose(found, 0, atol=1e-12)


def test_eigenvalues():
    values, vectors = map(as_numbers, OPS["ComplexEig"](as_pairs(A)))
    np.testing.assert_allclose(A @ vectors, vectors * values[..., None, :], atol=1e-12)
    np.testing.assert_array_equal(
        as_numbers(OPS["ComplexEig"](as_pairs(A), compute_v=False)[0]).sum(-1), values.sum(-1)
    )


@pytest.mark.parametrize("hermitian", [False, True])
def test_symmetric_factors(hermitian):
    matrix = HERMITIAN if hermitian else A + A.mT
    factors, pivots, info = OPS["ComplexLdlFactorEx"](as_pairs(matrix), hermitian=hermitian)
    x = as_numbers(OPS["ComplexLdlSolve"](factors, pivots, as_pairs(B), hermitian=hermitian))
    np.testing.assert_allclose(matrix @ x, B, atol=1e-12)
    assert not info.any()


def test_shapes_that_are_not_known():
    b, m, n = map(SymbolicDim, "bmn")
    specs = OPS["ComplexQr"].infer_shapes(TensorSpec((b, m, n, 2), np.float32), mode="complete")
    assert " ".join(map(str, specs)) == "float32[b, m, m, 2] float32[b, m, n, 2]"
    specs = OPS["ComplexSvd"].infer_shapes(TensorSpec((b, 3, 2, 2), np.float32))
    assert " ".join(map(str, specs)) == "float32[b, 3, 2, 2] float32[b, 2] float32[b, 2, 2, 2]"


@pytest.mark.parametrize("shape", [(), (3, 3)])
def test_what_are_no_pairs(shape):
    message = (
        f"ComplexInvEx: an input has shape {list(shape)}; complex values must be pairs of reals along a last dimension"
    )
    with pytest.raises(ShapeInferenceError, match=re.escape(message)):
        OPS["ComplexInvEx"].infer_shapes(TensorSpec(shape, np.float64))
    with pytest.raises(ValueError, match=r"pairs of reals along a last dimension of 2"):
        OPS["ComplexInvEx"](np.ones(shape))
