"""Errors of CUDA kernels in sessions, and their messages. Without a GPU, see cuda_sessions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyops
from pyops import errors
from pyops._core.runtime.native import op_registration as native
from tests.helpers import cupy_on_host
from tests.helpers.models import chain
from tests.pyops._core.cuda.cuda_ops import F32, X, declare, lambda_of
from tests.pyops._core.cuda.cuda_sessions import PROVIDER, cuda_session, cupy, needs_the_provider

pytestmark = [needs_the_provider, pytest.mark.usefixtures("cupy")]
__all__ = ["cupy"]


def test_without_cupy_or_a_gpu_a_cuda_session_says_what_is_missing(cupy, monkeypatch) -> None:
    declare()
    cupy.state.available = False
    with pytest.raises(
        errors.DeviceError, match=r"the CUDA kernel of cuda::Op needs an NVIDIA GPU, but CuPy finds none"
    ):
        cuda_session(chain("cuda::Op"))
    cupy.state.available = cupy.cuda.runtime.CUDARuntimeError(35)
    with pytest.raises(errors.DeviceError, match="CuPy finds none here") as raised:
        cuda_session(chain("cuda::Op"))
    assert raised.value.__cause__ is cupy.state.available
    cupy.state.available = cupy.cuda.runtime.CUDARuntimeError(700)
    with pytest.raises(errors.DeviceError, match=r"an earlier error \(700\) has left CUDA unusable .*; restart it"):
        cuda_session(chain("cuda::Op"))
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(errors.MissingDependencyError, match=r'needs CuPy .*; pip install "onnx-pyops\[cuda\]"'):
        cuda_session(chain("cuda::Op"))
    # Neither is needed on the CPU.
    cuda_session(chain("cuda::Op"), providers=["CPUExecutionProvider"]).run(None, {"x": X})


def test_a_provider_that_onnx_runtime_does_not_start_is_an_error(monkeypatch) -> None:
    monkeypatch.undo()
    available = [*onnxruntime.get_available_providers(), "CUDAExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
    declare(device_types=("cpu",))
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(
            errors.DeviceError, match=r"CUDAExecutionProvider was requested, but ONNX Runtime could not start it"
        ),
    ):
        cuda_session(chain("cuda::Op"), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])


CUDA_CALL = "cuda_call.cc:154 std::conditional_t<THRW, void, Status> onnxruntime::CudaCall(ERRTYPE, const char*) "
PARSE = "cuda_execution_provider_info.cc:63 [ONNXRuntimeError] : 1 : FAIL : provider_options_utils.h:182 Parse "
ILLEGAL = "CUDA failure 700: an illegal memory access was encountered"
BROKEN = f"an earlier error ({ILLEGAL}) has left CUDA unusable for this process; restart it"


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (
            f'{PARSE}Unknown provider option: "gpu_mem_limt".\n',
            {"gpu_mem_limt": 1},
            'Unknown provider option: "gpu_mem_limt"',
        ),
        (
            f'{PARSE}Failed to parse provider option "device_id": Invalid device ID: 7, must be between 0 (inclusive) '
            "and 2 (exclusive).\n",
            {"device_id": 7},
            'Failed to parse provider option "device_id": Invalid device ID: 7, must be between 0 (inclusive) and 2',
        ),
        (f"{CUDA_CALL}{ILLEGAL} ; GPU=0 ; expr=cudaSetDevice();", {}, BROKEN),
        (f'{PARSE}Failed to parse provider option "device_id": {CUDA_CALL}{ILLEGAL} ; GPU=0', {"device_id": 0}, BROKEN),
        (f"{CUDA_CALL}CUDA failure 2: out of memory ; GPU=0", {}, "CUDA failure 2: out of memory. Its options"),
    ],
)
def test_why_the_provider_is_not_started_is_said(monkeypatch, text, options, reason) -> None:
    refusal = RuntimeError(text)
    real = onnxruntime.InferenceSession._create_inference_session
    # In the name of the module in which ONNX Runtime raises.
    scope = {"__name__": real.__module__}
    exec("def refuse(error):\n    raise error", scope)

    def create(self: Any, providers: Any, *given: Any) -> None:
        if providers != ["CPUExecutionProvider"]:
            scope["refuse"](refusal)
        real(self, providers, *given)

    declare()
    session = cuda_session(chain("cuda::Op"), providers=["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime.InferenceSession, "_create_inference_session", create)
    for make in (
        lambda: cuda_session(chain("cuda::Op"), providers=[(PROVIDER, options), "CPUExecutionProvider"]),
        lambda: session.set_providers([PROVIDER, "CPUExecutionProvider"], [options, {}]),
    ):
        with pytest.raises(errors.DeviceError) as raised:
            make()
        assert str(raised.value).startswith(f"{PROVIDER} was requested, but ONNX Runtime could not start it: {reason}")
        assert str(raised.value).endswith('to run on the CPU, pass providers=["CPUExecutionProvider"]')
        assert raised.value.__cause__ is refusal


def test_what_is_no_refusal_of_the_provider_is_raised_as_it_is() -> None:
    declare()
    with pytest.raises(ValueError, match="'providers' and 'provider_options' should be the same length"):
        pyops.InferenceSession(chain("cuda::Op"), providers=[PROVIDER, "CPUExecutionProvider"], provider_options=[{}])


@pytest.mark.parametrize(
    ("returned", "fragment"),
    [
        (
            lambda cupy, x: X,
            "the CUDA kernel returned a NumPy array for 'output'; return a CuPy array, for example cupy",
        ),
        (lambda cupy, x: np.float32(1), "returned a NumPy array for 'output'"),
        (
            lambda cupy, x: [1.0],
            "returned list for 'output'; return a CuPy array, for example cupy.asarray(result, np.float32)",
        ),
        (
            lambda cupy, x: x.astype(np.float64),
            "'output' is declared float32 and the kernel returned float64[3] on the",
        ),
        (lambda cupy, x: None, "the kernel returned None; return an array"),
        (lambda cupy, x: (x, x), "the kernel returned tuple"),
    ],
    ids=["NumPy", "a scalar", "a list", "dtype", "None", "a tuple"],
)
def test_what_is_not_declared_is_an_error(cupy, returned, fragment) -> None:
    op = declare(device_types=("cuda",))
    op.register_kernel("cuda")(lambda x: returned(cupy, x))
    with pytest.raises(errors.OutputError) as raised:
        cuda_session(chain("cuda::Op")).run(None, {"x": X})
    assert fragment in str(raised.value)


def test_a_shape_other_than_the_shape_function_s_is_an_error() -> None:
    op = declare(lambda_of("", []), device_types=("cuda",))
    op.register_shape_inference(lambda x: x.like(shape=(1,)))
    with pytest.raises(
        errors.OutputError, match=r"for inputs float32\[3\] on the GPU the kernel returned shapes \[3\]"
    ):
        cuda_session(chain("cuda::Op")).run(None, {"x": X})


@pytest.mark.parametrize(
    ("status", "fragment"),
    [
        (900, "the session captures a CUDA graph (enable_cuda_graph), but this node cannot be captured"),
        (700, "an earlier node may have caused it; set CUDA_LAUNCH_BLOCKING=1"),
        (2, "gpu_mem_limit"),
        (1, None),
    ],
)
def test_errors_of_cuda_are_explained(cupy, status, fragment) -> None:
    def kernel(x: F32) -> F32:
        raise cupy.cuda.runtime.CUDARuntimeError(status)

    declare(kernel, device_types=("cuda",))
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError) as raised:
        cuda_session(chain("cuda::Op")).run(None, {"x": X})
    notes = raised.value.__notes__
    assert notes[0].startswith("in node 'node0' (cuda::Op)")
    assert len(notes) == (1 if fragment is None else 2)
    assert fragment is None or fragment in notes[1]


def invalidate(cupy: Any) -> None:
    cupy.state.capturing = "no longer"
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize(
    "wait",
    [
        lambda cupy, x: cupy.asnumpy(x),
        lambda cupy, x: cupy.cuda.get_current_stream().synchronize(),
        lambda cupy, x: invalidate(cupy),
    ],
    ids=["CuPy refuses it", "CUDA refuses it", "the capture is no longer valid"],
)
def test_a_kernel_that_waits_while_it_is_captured_is_told_why_it_cannot(cupy, wait) -> None:
    def kernel(x: F32) -> F32:
        wait(cupy, x)
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    cupy.state.capturing = True
    with pytest.raises(RuntimeError) as raised:
        session.run(None, {"x": X})
    assert "nothing may wait for the GPU" in raised.value.__notes__[1]


class CaptureError(RuntimeError):
    """As ONNX Runtime's own error where CUDA has invalidated a capture."""


@pytest.fixture
def failed_captures(monkeypatch) -> list[Exception]:
    """As with CUDA's provider, a capture that is no longer valid is an error at its end, whatever a node said."""
    failed = []
    for name in ("run", "run_with_iobinding"):
        real = getattr(onnxruntime.InferenceSession, name)

        def run(*given: Any, real: Any = real) -> Any:
            try:
                return real(*given)
            except Exception:
                if cupy_on_host.state.capturing != "no longer":
                    raise
                cupy_on_host.state.capturing = False
                failed.append(CaptureError("CUDA failure 901: expr=cudaStreamEndCapture(stream_, &graph);"))
                raise failed[-1] from None

        monkeypatch.setattr(onnxruntime.InferenceSession, name, run)
    return failed


def run_bound(session: Any) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)


ways_to_run = pytest.mark.parametrize("run", [lambda session: session.run(None, {"x": X}), run_bound])


@ways_to_run
@pytest.mark.parametrize("error", [ValueError("not today"), KeyboardInterrupt()], ids=["an error", "an interrupt"])
def test_an_error_in_a_capture_makes_it_void_and_is_raised_as_itself(cupy, failed_captures, run, error) -> None:
    raising = [error]

    def kernel(x: F32) -> F32:
        if raising:
            raise raising.pop()
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    cupy.state.capturing = True
    with pytest.raises(type(error)) as raised:
        run(session)
    assert raised.value is error
    assert raised.value.__notes__[0].startswith("in node 'node0' (cuda::Op)")
    assert len(failed_captures) == 1
    # Nothing is left of it: a later error is not this one, and a later run is a run.
    with pytest.raises(Exception, match="Unexpected input data type"):
        session.run(None, {"x": np.zeros(3, np.int8)})
    run(session)


def test_other_errors_are_not_taken_for_those_of_a_capture(cupy) -> None:
    raising: list[Exception] = [
        ValueError("while it is captured"),
        *map(RuntimeError, ["while it is not", "after 700"]),
    ]

    def kernel(x: F32) -> F32:
        raise raising[0]

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    for capturing in (True, False, cupy.cuda.runtime.CUDARuntimeError(700)):
        cupy.state.capturing = capturing
        with pytest.raises(type(raising[0])) as raised:
            session.run(None, {"x": X})
        assert len(raised.value.__notes__) == 1
        raising.pop(0)


def test_an_error_of_onnx_runtime_s_own_is_raised_as_itself(monkeypatch) -> None:
    declare(device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    api = native.ort_api()
    monkeypatch.setattr(api, "KernelContext_GetGPUComputeStream", lambda context, out: api.status("no stream"))
    with pytest.raises(errors.EngineError, match="no stream") as raised:
        session.run(None, {"x": X})
    assert len(raised.value.__notes__) == 1


def test_in_other_people_s_sessions_the_error_carries_the_text() -> None:
    def kernel(x: F32) -> F32:
        raise ValueError("not today")

    declare(kernel, device_types=("cuda",))
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(chain("cuda::Op").SerializeToString(), options, providers=[PROVIDER])
    with pytest.raises(Exception, match="ValueError: not today"):
        session.run(None, {"x": X})
    assert str(pyops.last_exception()) == "not today"
