"""The CUDA runtime on host memory is as strict as the tests on it assume. Needs no GPU, and no CuPy."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.host_cuda.build import build, compiler

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    compiler() is None or sys.platform != "linux", reason="needs a C compiler, and is for Linux"
)

SETUP = """
import ctypes, sys
from ctypes import byref, c_char, c_int, c_size_t, c_void_p
from pathlib import Path
from tests.gpu.host_cuda import runtime

runtime.load(Path(sys.argv[1]))
cuda = runtime.library()
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3


def made(function, *given):
    out = c_void_p()
    assert function(byref(out), *given) == 0
    return out


def bytes_at(address):
    return (c_char * 8).from_address(address.value)


def size(n):
    return c_size_t(n)


stream = made(cuda.cudaStreamCreateWithFlags, 1)
device = made(cuda.cudaMalloc, size(8))
pinned, result = made(cuda.cudaMallocHost, size(8)), made(cuda.cudaMallocHost, size(8))
bytes_at(pinned).value, bytes_at(result).value = b"before", b"nothing"
"""


@pytest.fixture(scope="module")
def folder(pytestconfig: pytest.Config) -> Path:
    return build(pytestconfig.cache.mkdir("host_cuda"))


def run(folder: Path, code: str) -> int:
    """Run it after `SETUP`; return the process's status."""
    done = subprocess.run([sys.executable, "-c", SETUP + code, folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode <= 0, done.stderr
    return done.returncode


def test_the_host_cannot_touch_device_memory(folder) -> None:
    assert run(folder, "bytes_at(device).value") == -signal.SIGSEGV


def test_queued_work_is_done_when_something_waits_for_it_and_no_sooner(folder) -> None:
    code = """
assert cuda.cudaMemcpyAsync(device, pinned, size(8), TO_DEVICE, stream) == 0
bytes_at(pinned).value = b"after"  # too early: it has not been read yet
assert cuda.cudaMemcpyAsync(result, device, size(8), TO_HOST, stream) == 0
assert bytes_at(result).value == b"nothing"
assert cuda.cudaStreamSynchronize(stream) == 0
assert bytes_at(result).value == b"after"
"""
    assert run(folder, code) == 0


def test_streams_wait_for_each_other_by_events_alone(folder) -> None:
    code = """
other, event = made(cuda.cudaStreamCreateWithFlags, 1), made(cuda.cudaEventCreate)
for waits, expected in ((False, False), (True, True)):
    assert cuda.cudaMemsetAsync(device, 0, size(8), stream) == cuda.cudaStreamSynchronize(stream) == 0
    assert cuda.cudaMemcpyAsync(device, pinned, size(8), TO_DEVICE, stream) == 0
    assert cuda.cudaEventRecord(event, stream) == 0
    if waits:
        assert cuda.cudaStreamWaitEvent(other, event, 0) == 0
    assert cuda.cudaMemcpyAsync(result, device, size(8), TO_HOST, other) == cuda.cudaStreamSynchronize(other) == 0
    assert (bytes_at(result).value == b"before") == expected
    assert cuda.cudaStreamSynchronize(stream) == 0
"""
    assert run(folder, code) == 0


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("cuda.cudaMemcpyAsync(device, pinned, size(8), ON_DEVICE, stream)", "copy DtoD between other places"),
        ("cuda.cudaMemcpyAsync(device, pinned, size(9), TO_DEVICE, stream)", "copy outside of what is allocated"),
        ("cuda.cudaMemcpyAsync(device, device, size(8), ON_DEVICE, stream)", "copy onto itself"),
        ("cuda.cudaStreamDestroy(stream); cuda.cudaMemsetAsync(device, 0, size(8), stream)", "a stream that is gone"),
        ("cuda.cudaLaunchKernel(stream, size(0), 0, size(0), 0, None, size(0), stream)", "of a CUDA binary"),
        ("cuda.host_cuda_check_argument(byref(c_void_p(id(cuda))))", "kernel given host memory"),
    ],
)
def test_a_mistake_is_a_complaint(folder, code, complaint) -> None:
    assert run(folder, f"{code}\n(said,) = runtime.take_complaints()\nassert {complaint!r} in said, said") == 0


def test_a_capture_forbids_what_waits_and_is_replayed_otherwise(folder) -> None:
    code = """
assert cuda.cudaStreamBeginCapture(stream, 0) == 0
assert cuda.cudaMemcpyAsync(device, pinned, size(8), TO_DEVICE, stream) == 0
assert cuda.cudaMemcpyAsync(result, device, size(8), TO_HOST, stream) == 0
graph = made(lambda out: cuda.cudaStreamEndCapture(stream, out))
replayed = made(cuda.cudaGraphInstantiate, graph, 0)
for text in (b"one", b"two"):
    bytes_at(pinned).value = text
    assert cuda.cudaGraphLaunch(replayed, stream) == cuda.cudaStreamSynchronize(stream) == 0
    assert bytes_at(result).value == text
assert cuda.cudaStreamBeginCapture(stream, 0) == 0
assert cuda.cudaStreamSynchronize(stream) == 900
assert cuda.cudaStreamEndCapture(stream, byref(graph)) == 901
"""
    assert run(folder, code) == 0


def test_memory_has_an_end_and_is_counted(folder) -> None:
    code = """
cuda.host_cuda_set_limit(1000)
assert runtime.in_use() == 8
assert cuda.cudaMalloc(byref(c_void_p()), size(1000)) == 2
assert cuda.cudaFree(device) == 0
assert runtime.in_use() == 0
assert made(cuda.cudaMalloc, size(1000))
"""
    assert run(folder, code) == 0
