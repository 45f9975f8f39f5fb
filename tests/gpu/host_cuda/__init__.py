"""A pytest plug-in that puts a CUDA runtime on host memory in place of a GPU.

``python -m pytest -p tests.gpu.host_cuda tests/gpu``, where onnxruntime-gpu and CuPy are installed. They are the real
ones, with the CUDA execution provider, streams, memory and graphs, and kernels that CuPy compiles. Only the machine
code for GPUs in their binaries cannot run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu.host_cuda import runtime

NEED_A_GPU = {
    "test_a_host_input_that_the_gpu_has_only_just_computed": "MatMul is cuBLAS's, ReduceSum and Mul are ONNX Runtime's",
}
"""The tests that cannot pass on host memory, and why."""


def pytest_configure(config: pytest.Config) -> None:
    """Load the runtime before any test imports CuPy."""
    if not runtime.is_loaded():
        runtime.start(config.cache.mkdir("host_cuda"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect that these fail."""
    for item in items:
        if reason := NEED_A_GPU.get(item.name):
            item.add_marker(pytest.mark.xfail(reason=f"needs a GPU's machine code: {reason}", strict=True))


@pytest.fixture(autouse=True)
def no_complaints() -> Iterator[None]:
    """Fail a test if the runtime complains meanwhile."""
    runtime.take_complaints()
    yield
    assert runtime.take_complaints() == []
