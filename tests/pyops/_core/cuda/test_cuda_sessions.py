"""CUDA kernels in sessions: which kernel runs, and on what. Without a GPU, see cuda_sessions."""

from __future__ import annotations

import ctypes
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import errors, onnx_op
from pyops._core.runtime.native import op_registration as native
from pyops._core.runtime.native import ort_custom_op
from pyops._support.element_types import is_viewable
from tests.helpers.models import assert_same, chain
from tests.helpers.op_db import SAMPLES
from tests.pyops._core.cuda.cuda_ops import F32, I64, X, declare, lambda_of, on_the_host, parse, plus_one
from tests.pyops._core.cuda.cuda_sessions import PROVIDER, cuda_session, cupy, needs_the_provider

pytestmark = [needs_the_provider, pytest.mark.usefixtures("cupy")]
__all__ = ["cupy"]


# Which kernel runs.


def test_the_session_s_providers_choose_the_kernel() -> None:
    seen = []
    op = declare(lambda_of("numpy", seen), device_types=("cpu",))
    op.register_kernel("cuda")(lambda_of("cupy", seen))
    model = chain("cuda::Op")
    assert cuda_session(model).run(None, {"x": X})[0].tolist() == [1, 2, 3]
    assert cuda_session(model, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0].tolist() == [1, 2, 3]
    assert seen == [("cupy", "cupy"), ("numpy", "numpy")]


def test_a_session_without_cuda_passes_over_kernels_for_it(monkeypatch) -> None:
    monkeypatch.undo()  # CUDA's own provider, which this onnxruntime may not know
    declare()
    assert cuda_session(chain("cuda::Op"), providers=["CPUExecutionProvider"]).run(None, {"x": X})[0].tolist() == [
        *(1, 2, 3)
    ]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_every_sample_gives_on_the_gpu_what_it_gives_on_the_cpu(sample, cupy) -> None:
    kernel = on_the_host(cupy, sample.op.kernels["cpu"])
    calls = []
    sample.op.register_kernel("cuda")(lambda *given, **named: calls.append(1) or kernel(*given, **named))
    expected = sample.expected()
    model = sample.model()
    lacking = [x for x in (*sample.inputs, *expected) if x is not None and not is_viewable(x.dtype)]
    if lacking:
        with pytest.raises(errors.InputError, match=r"which CuPy does not support; (have the|leave the)"):
            cuda_session(model)
        return
    assert_same(cuda_session(model).run(None, sample.feed), expected)
    assert len(calls) >= 1


# What ONNX Runtime reads of the description.


def answers(op: Any, device_type: str) -> tuple[Any, list[int]]:
    """The provider and the memory types, asked for as ONNX Runtime does: through the structure's pointers."""
    hosted = ort_custom_op.HostedOp(op, op.name, {}, native.engine.addresses, device_type, object, 0)
    struct, address = hosted.struct, hosted.address
    provider = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(struct.GetExecutionProviderType)(address)
    memory_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(struct.GetInputMemoryType)
    count = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(struct.GetInputTypeCount)(address)
    return provider, [memory_type(address, index) for index in range(count)]


def resize(x: F32, shape: I64, scale: F32 | None = None) -> F32:
    assert type(x).__module__ == "cupy"
    assert type(shape) is np.ndarray
    return x.reshape(*shape.tolist())


def test_the_description_names_the_provider_and_the_inputs_on_the_host(monkeypatch) -> None:
    op = declare(resize, host_inputs=("shape",))
    assert answers(op, "cpu") == (None, [0, 0, 0])
    assert answers(op, "cuda") == (PROVIDER.encode(), [0, -2, 0])
    monkeypatch.undo()
    assert answers(op, "cuda") == (b"CUDAExecutionProvider", [0, -2, 0])


def test_without_a_cuda_kernel_nothing_is_registered_for_cuda() -> None:
    op = declare(device_types=("cpu",))
    options = onnxruntime.SessionOptions()
    native.register(options, [native.Host("cuda", "Op", op)])
    registration = native.engine.registrations[weakref.ref(options)]
    assert [item.device_type for items in registration._hosted.values() for item in items] == ["cpu"]
    op.register_kernel("cuda")(plus_one)
    native.register(options, [native.Host("cuda", "Op", op)])
    types = [item.device_type for items in registration._hosted.values() for item in items]
    assert types == ["cpu", "cpu", "cuda"]


# Host inputs.


def test_a_host_input_is_a_numpy_array_of_its_own() -> None:
    seen = []

    def kernel(x: F32, shape: I64) -> F32:
        seen.append(shape)
        return resize(x, shape)

    declare(kernel, device_types=("cuda",), host_inputs=("shape",))
    model = parse("(float[n] x, int64[2] shape) => (float[a,b] y) { y = cuda.Op(x, shape) }")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it may be kept
        assert cuda_session(model).run(None, {"x": X, "shape": np.array([3, 1])})[0].shape == (3, 1)
    assert seen[0].tolist() == [3, 1]
    assert seen[0].flags.owndata
    assert not seen[0].flags.writeable


def test_strings_are_host_inputs_or_an_error() -> None:
    def kernel(x: F32, text: NDArray[np.str_]) -> F32:
        return x + np.float32(len(text[0]))

    model = parse("(float[n] x, string[1] text) => (float[n] y) { y = cuda.Op(x, text) }")
    declare(kernel, device_types=("cuda",))
    with pytest.raises(errors.InputError, match=r"input 'text' is string, .*: host_inputs=\('text',\)"):
        cuda_session(model)
    declare(kernel, device_types=("cuda",), host_inputs=["text"])
    assert cuda_session(model).run(None, {"x": X, "text": np.array(["abc"], object)})[0].tolist() == [3, 4, 5]


def test_what_a_captured_graph_would_read_once_is_an_error(cupy) -> None:
    declare(resize, device_types=("cuda",), host_inputs=("shape",))
    fed = cuda_session(parse("(float[n] x, int64[2] shape) => (float[a,b] y) { y = cuda.Op(x, shape) }"))
    constant = cuda_session(parse("(float[n] x) => (float[a,b] y) <int64[2] shape = {1, 3}> { y = cuda.Op(x, shape) }"))
    feed = {"x": X, "shape": np.array([3, 1])}
    assert fed.run(None, feed)[0].shape == (3, 1)
    cupy.state.capturing = True
    with pytest.raises(
        errors.InputError, match=r"captures a CUDA graph .* the host inputs \('shape'\) would be read only during"
    ):
        fed.run(None, feed)
    assert constant.run(None, {"x": X})[0].shape == (1, 3)


# Redeclaring.


def test_a_living_session_follows_a_new_cuda_kernel() -> None:
    op = declare(device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    op.register_kernel("cuda")(lambda x: x + np.float32(10))
    assert session.run(None, {"x": X})[0].tolist() == [10, 11, 12]


def test_a_living_session_says_that_its_kernel_is_gone() -> None:
    declare()
    session = cuda_session(chain("cuda::Op"))
    declare(device_types=("cpu",))
    with pytest.raises(
        errors.DeclarationError, match=r"no kernel for 'cuda'; register one with @plus_one.register_kern"
    ):
        session.run(None, {"x": X})


def test_a_living_session_brings_inputs_to_where_a_new_kernel_wants_them() -> None:
    text = "(float[n] x, int64[2] shape) => (float[a,b] y) { y = cuda.Op(x, shape) }"
    feed = {"x": X, "shape": np.array([3, 1])}

    def on_device(x: F32, shape: I64) -> F32:
        assert type(x).__module__ == type(shape).__module__ == "cupy"
        return x.reshape(3, 1)

    op = declare(on_device, device_types=("cuda",))
    before = cuda_session(parse(text))
    op.register_kernel("cuda", host_inputs=("shape",))(resize)
    after = cuda_session(parse(text))
    for session in (before, after):
        assert session.run(None, feed)[0].shape == (3, 1)
    op.register_kernel("cuda")(on_device)
    for session in (before, after):
        assert session.run(None, feed)[0].shape == (3, 1)


def test_the_cpu_kernel_may_be_a_compiled_one() -> None:
    pytest.importorskip("numba")

    @onnx_op("cuda::Compiled", compile=True)
    def op(x: F32) -> F32:
        return x + np.float32(1)

    op.register_kernel("cuda")(lambda x: x + np.float32(2))
    assert cuda_session(chain("cuda::Compiled"), providers=["CPUExecutionProvider"]).run(None, {"x": X})[0][0] == 1
    assert cuda_session(chain("cuda::Compiled")).run(None, {"x": X})[0][0] == 2


# One device's kernel in a session of the other.


def test_an_op_without_a_cuda_kernel_says_once_that_it_runs_on_the_cpu() -> None:
    declare(device_types=("cpu",))
    with pytest.warns(
        errors.DeviceCopyWarning, match=r"cuda::Op has no CUDA kernel and runs on the CPU in this CUDA se"
    ):
        session = cuda_session(chain("cuda::Op"))
    assert session.run(None, {"x": X})[0].tolist() == [1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cuda_session(chain("cuda::Op"))
        cuda_session(chain("cuda::Op"), providers=["CPUExecutionProvider"])


def test_a_cuda_kernel_between_copies_gets_no_out(cupy) -> None:
    def kernel(x: F32, *, out: F32 | None = None) -> F32:
        return cupy.add(x, np.float32(1), out=out)

    op = declare(kernel, device_types=("cuda",))
    op.register_shape_inference(lambda x: x)
    session = cuda_session(chain("cuda::Op"), providers=["CPUExecutionProvider"])
    with pytest.warns(errors.DeviceCopyWarning):
        assert session.run(None, {"x": X})[0].tolist() == [1, 2, 3]


def test_an_op_with_a_cuda_kernel_alone_runs_in_a_cpu_session_between_copies() -> None:
    declare(device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"), providers=["CPUExecutionProvider"])
    with pytest.warns(errors.DeviceCopyWarning, match=r"cuda::Op has only a CUDA kernel and is run on the CPU"):
        assert session.run(None, {"x": X})[0].tolist() == [1, 2, 3]


# Threads, and what looks on.


def test_a_thousand_runs_in_four_threads_give_the_right_numbers(cupy) -> None:
    declare(device_types=("cuda",))
    session = cuda_session(chain("cuda::Op", "cuda::Op", "cuda::Op"))
    wrong: list[Any] = []

    def run(number: int) -> None:
        for i in range(250):
            x = np.full(16, number * 1000 + i, np.float32)
            y = session.run(None, {"x": x})[0]
            if y.tolist() != (x + 3).tolist():
                wrong.append((number, i))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_profile_counts_the_calls_of_a_cuda_kernel() -> None:
    declare(device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    with pyops.profile(session) as profile:
        session.run(None, {"x": X})
    assert "cuda::Op" in str(profile)
