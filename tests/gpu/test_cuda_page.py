"""The kernels that docs/cuda.md shows, in CUDA sessions over the CUDA runtime on host memory."""

from __future__ import annotations

import contextlib
import linecache
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.gpu.gpu_ops import bound, one_node, session
from tests.gpu.host_cuda import runtime
from tests.gpu.host_cuda.trace import traced
from tests.gpu.test_gpu_sessions import gelu, quick_gelu
from tests.gpu.test_traces import UNFINISHED
from tests.project.test_docs import blocks

pytestmark = pytest.mark.skipif(not runtime.is_loaded(), reason=runtime.LEFT_OUT)

X = np.linspace(-2, 2, 1000, dtype=np.float32)


@pytest.fixture(autouse=True, scope="module")
def page() -> dict[str, Any]:
    """What the page's examples declare."""
    names: dict[str, Any] = {"__name__": __name__}
    for number, (code, _) in enumerate(blocks(Path(__file__).parents[2] / "docs" / "cuda.md")):
        name = f"cuda.md, block {number}"
        linecache.cache[name] = len(code), None, code.splitlines(True), name  # where cupyx.jit looks for it
        exec(compile(code, name, "exec"), names)
    return names


def run(name: str, *kernels: str) -> Any:
    """Run one of them on the GPU's memory, and check that it launches these kernels and does not leave the GPU."""
    made = session(one_node(f"cuda::{name}"))
    binding, result = bound(made, X)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of cupyx.jit
        made.run_with_iobinding(binding)
    with traced() as trace:
        made.run_with_iobinding(binding, UNFINISHED)
    assert not kernels or tuple(trace.launched) == kernels
    assert trace.waited == []
    assert len(trace.streams) == 1
    assert 0 not in trace.streams
    assert {copy.split()[0] for copy in trace.copied} <= {"DtoD"}
    made.run_with_iobinding(binding)
    return result.numpy()


def test_functions_of_cupy() -> None:
    assert run("AddOne").tolist() == (X + 1).tolist()
    np.testing.assert_allclose(run("Softplus"), np.log1p(np.exp(X)), rtol=1e-6)


def test_an_elementwise_kernel() -> None:
    np.testing.assert_allclose(run("QuickGelu", "quick_gelu"), quick_gelu(X), rtol=1e-5, atol=1e-6)


def test_cuda_c() -> None:
    assert run("Cube", "cube").tolist() == (X * X * X).tolist()


def test_python_that_cupy_compiles() -> None:
    assert run("Triple", "triple").tolist() == (X * np.float32(3)).tolist()


class Tensor:
    """A tensor as torch's, as far as the page's example goes: torch with CUDA needs libraries of a GPU."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **given: Any) -> Any:
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the example uses of torch: its functions compute on its own current stream, which it is told."""
    import cupy

    compute = cupy.ElementwiseKernel("T x", "T y", "y = T(0.5) * x * (T(1) + erf(x * T(0.70710678)))", "torch_gelu")
    current: list[int] = [0]

    @contextlib.contextmanager
    def stream(pointer: int) -> Iterator[None]:
        current.append(pointer)
        yield
        current.pop()

    def gelu(x: Tensor) -> Tensor:
        assert current[-1] == cupy.cuda.get_current_stream().ptr
        return Tensor(compute(x.array))

    cuda = SimpleNamespace(ExternalStream=lambda pointer, device: pointer, stream=stream)
    nn = SimpleNamespace(functional=SimpleNamespace(gelu=gelu))
    stand_in = SimpleNamespace(cuda=cuda, nn=nn, from_dlpack=lambda x: Tensor(cupy.from_dlpack(x)))
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    return stand_in


@pytest.mark.usefixtures("torch")
def test_functions_of_torch_take_and_give_arrays_through_dlpack() -> None:
    np.testing.assert_allclose(run("Gelu", "torch_gelu"), gelu(X), rtol=1e-5, atol=1e-6)


def test_a_host_input() -> None:
    import onnx

    text = "(float[n] x, int64[2] shape) => (float[a,b] y) { y = cuda.Reshape(x, shape) }"
    made = session(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "cuda" : 1]> main {text}'))
    (y,) = made.run(None, {"x": X, "shape": np.array([10, 100])})
    assert y.tolist() == X.reshape(10, 100).tolist()
