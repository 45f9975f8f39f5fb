"""What `pyops.testing.check` finds in CUDA kernels."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import onnx_op
from pyops.testing import check
from tests.helpers import cupy_on_host
from tests.pyops._core.cuda.cuda_sessions import cupy, needs_the_provider
from tests.pyops.testing.halving import F32, X, declare_halve

__all__ = ["cupy"]


def test_a_cuda_kernel_is_held_against_the_cpu_kernel(monkeypatch: pytest.MonkeyPatch):
    op = declare_halve()
    assert check(op, X, checks="cuda")["cuda"].reason == "no CUDA kernel is registered"
    op.register_kernel("cuda")(lambda x, *, by=2.0: x * np.float32(1 / by))
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = check(op, X, checks="cuda")["cuda"]
    assert (result.status, result.reason[:27]) == ("not run", "the CUDA kernel needs CuPy ")
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)
    monkeypatch.setattr(cupy_on_host.state, "available", False)
    assert "CuPy finds none here" in check(op, X, checks="cuda")["cuda"].reason
    monkeypatch.setattr(cupy_on_host.state, "available", True)
    result = check(op, X, checks="cuda")["cuda"]
    assert result.status == "passed"
    assert "not in a session: CUDAExecutionProvider was requested, but this onnxruntime lacks it" in result.reason
    op.register_kernel("cuda")(lambda x, *, by=2.0: x + np.float32(0))
    report = check(op, X, checks="cuda", raise_exception=False)
    assert "the CUDA kernel gives other outputs: output 'output'" in report["cuda"].reason


@needs_the_provider
@pytest.mark.usefixtures("cupy")
def test_a_cuda_kernel_is_held_against_the_cpu_kernel_in_a_session_too():
    @onnx_op("checked::Resized")
    def resized(x: F32, shape: NDArray[np.int64]) -> F32:
        return x.reshape(shape.tolist())

    resized.register_kernel("cuda", host_inputs=("shape",))(lambda x, shape: x.reshape(*shape.tolist()))
    result = check(resized, X, np.array([-1, 1]), checks="cuda")["cuda"]
    assert (result.status, result.reason) == ("passed", "in a plain call, and in a CUDA session")


def test_a_cuda_kernel_alone_has_nothing_to_be_held_against(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)

    @onnx_op("checked::Alone", device_types=("cuda",))
    def alone(x: F32) -> F32:
        return x + np.float32(1)

    assert "no CPU kernel" in check(alone, X, checks="cuda")["cuda"].reason
