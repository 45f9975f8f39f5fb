"""The CUDA runtime on host memory in this process: loading it before ONNX Runtime and CuPy, and its messages."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from tests.gpu.host_cuda import patched_cupy
from tests.gpu.host_cuda.build import LIBRARIES, SOURCES, build

LEFT_OUT = "tests on a CUDA runtime over host memory are left out: they need -p tests.gpu.host_cuda, see docs/cuda.md"
"""Why tests are skipped where it is not loaded."""

_loaded: dict[str, Any] = {}


def start(cache: Path) -> None:
    """Load the runtime, with CuPy on it if CuPy is there: before the first CUDA session, and before CuPy is imported.

    Parameters
    ----------
    cache : Path
        A folder for what is compiled.
    """
    cache.mkdir(parents=True, exist_ok=True)
    folder = build(cache)
    os.environ["HOST_CUDA_CACHE"] = str(folder / "kernels")
    os.environ["HOST_CUDA_INCLUDE"] = f"-I{SOURCES} -I{SOURCES / 'include'}"
    os.environ["CUPY_CACHE_DIR"] = str(folder / "cupy")
    os.environ["CUPY_ACCELERATORS"] = ""  # CUB is machine code of GPUs
    load(folder)
    patched_cupy.patch(library())


def load(folder: Path) -> None:
    """Load the libraries: what is linked against them, or opens them by name, then gets these."""
    _loaded.update({name: ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in LIBRARIES})
    for take in (library().host_cuda_take_trace, library().host_cuda_take_complaints):
        take.restype, take.argtypes = ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_size_t)
    library().host_cuda_set_limit.argtypes = (ctypes.c_size_t,)
    library().host_cuda_in_use.restype = ctypes.c_size_t


def library() -> Any:
    """Return the CUDA runtime."""
    return _loaded["libcudart.so.13"]


def is_loaded() -> bool:
    """Return whether this process computes on host memory."""
    return bool(_loaded)


def take_trace() -> list[str]:
    """Return the lines of the trace since the last time."""
    return _taken(library().host_cuda_take_trace)


def take_complaints() -> list[str]:
    """Return what a GPU would have made wrong numbers or a crash of, since the last time."""
    return _taken(library().host_cuda_take_complaints)


def in_use(device: int = 0) -> int:
    """Return how many bytes of a device are allocated."""
    return int(library().host_cuda_in_use(device))


def _taken(take: Any) -> list[str]:
    while True:
        room = take(None, 0) + 4096
        buffer = ctypes.create_string_buffer(room)
        size = take(buffer, room)
        if size <= room:
            return buffer.raw[:size].decode().splitlines()
