"""CUDA sessions without a GPU: a stand-in for CuPy, and another execution provider in place of CUDA.

The stand-in works on the host's memory, and so does the Azure execution provider, which runs whatever
custom ops are registered for it: everything but the GPU is what it is with one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_void_p
from typing import Any

import onnx
import onnxruntime
import pytest

import pyops
from pyops._core.cuda import devices
from pyops._core.runtime.native import op_registration as native
from tests.helpers import cupy_on_host

PROVIDER = "AzureExecutionProvider"
PROVIDERS = [PROVIDER, "CPUExecutionProvider"]

needs_the_provider = pytest.mark.skipif(
    PROVIDER not in onnxruntime.get_available_providers(), reason=f"this onnxruntime has no {PROVIDER}"
)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in as CuPy, and its provider as CUDA's."""
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)
    monkeypatch.setattr(devices, "CUDA_PROVIDER", PROVIDER)
    cupy_on_host.log.clear()
    yield cupy_on_host
    cupy_on_host.state.available, cupy_on_host.state.capturing = True, False


def cuda_session(model: onnx.ModelProto, options: Any = None, providers: Sequence[str] = PROVIDERS) -> Any:
    return pyops.InferenceSession(model, options, providers=list(providers))


def logged() -> list[tuple[Any, ...]]:
    """The stand-in's log, without what is done for the pools of sessions that are gone, whenever they go."""
    found: list[tuple[Any, ...]] = []
    for event in cupy_on_host.log:
        found.append(event)
        if [name for name, *_ in found[-3:]] == ["enter device", "free_all_blocks", "leave device"]:
            del found[-3:]
    return found


@contextmanager
def compute_stream(pointer: int) -> Iterator[None]:
    """Within it, ONNX Runtime says of every node that it is on this stream."""
    api = native.ort_api()
    real = api.KernelContext_GetGPUComputeStream

    def get(context: int, out: int) -> None:
        c_void_p.from_address(out).value = pointer

    api.KernelContext_GetGPUComputeStream = get
    try:
        yield
    finally:
        api.KernelContext_GetGPUComputeStream = real
