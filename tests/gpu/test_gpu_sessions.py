"""CUDA kernels in CUDA sessions, on a GPU."""

from __future__ import annotations

import json
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pyops
from pyops import errors, onnx_op
from pyops._support.element_types import is_viewable
from tests.gpu import gpu_ops
from tests.gpu.gpu_ops import CUDA, F32, bound, cuda_options, one_node, session
from tests.helpers.models import assert_same
from tests.helpers.op_db import SAMPLES
from tests.pyops._core.cuda.cuda_ops import on_the_host

pytestmark = pytest.mark.gpu("session")

X = np.linspace(-2, 2, 1000, dtype=np.float32)
# CuPy has arrays of these.
ON_GPU = [s for s in SAMPLES if all(x is None or is_viewable(x.dtype) for x in (*s.inputs, *s.expected()))]


def quick_gelu(x):
    return x / (1 + np.exp(-1.702 * x))


def gelu(x):
    from math import erf

    return np.array([0.5 * v * (1 + erf(v / 2**0.5)) for v in x.tolist()])


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("sample", ON_GPU, ids=lambda sample: sample.id)
def test_every_sample_gives_on_the_gpu_what_it_gives_on_the_cpu(sample) -> None:
    import cupy

    sample.op.register_kernel("cuda")(on_the_host(cupy, sample.op.kernels["cpu"]))
    assert_same(session(sample.model()).run(None, sample.feed), sample.expected())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("size", [0, 1, 1000, 10**6])
def test_an_elementwise_kernel(dtype, size) -> None:
    x = np.resize(X.astype(dtype), size)
    got = session(one_node("gpu::AddOne", dtype)).run(None, {"x": x})[0]
    assert got.tobytes() == (x + dtype(1)).tobytes()


@pytest.mark.parametrize(
    ("qualified", "expected"),
    [
        ("gpu::QuickGelu", quick_gelu),
        ("gpu::Jit", lambda x: x * 3),
        ("gpu::Softplus", lambda x: np.log1p(np.exp(x))),
    ],
)
def test_kernels_of_each_kind(qualified, expected) -> None:
    np.testing.assert_allclose(session(one_node(qualified)).run(None, {"x": X})[0], expected(X), rtol=2e-6, atol=1e-6)


def test_a_function_of_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    np.testing.assert_allclose(session(one_node("gpu::Torch")).run(None, {"x": X})[0], gelu(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (1000, 1000), (3, gpu_ops.MOST_COLUMNS)])
def test_a_raw_kernel(shape) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    got = session(one_node("gpu::Softmax", shape=("n", "m"))).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, softmax(x), rtol=1e-5)


def test_a_host_input() -> None:
    model = pyops.testing.Sample(gpu_ops.reshape, X, np.array([10, 100])).with_expected(X.reshape(10, 100)).model()
    assert session(model).run(None, {"x": X, "shape": np.array([10, 100])})[0].shape == (10, 100)


def test_a_host_input_that_the_gpu_has_only_just_computed() -> None:
    # What comes before takes the GPU long enough to be seen where nothing waits for it.
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17, "gpu" : 1]>
        main (float[n,n] a, float[m] x, int64[2] shape) => (float[p,q] y) <float zero = {0.0}> {
            b = MatMul(a, a)  c = MatMul(b, a)  d = MatMul(c, a)  s = ReduceSum <keepdims: int = 0> (d)
            t = Mul(s, zero)  u = Cast <to: int = 7> (t)  sum = Add(shape, u)
            y = gpu.Reshape(x, sum)
        }
        """
    )
    made = session(model)
    a = np.full((4000, 4000), 1e-4, np.float32)
    for shape in [(10, 100), (1000, 1), (2, 500)] * 3:
        assert made.run(None, {"a": a, "x": X, "shape": np.array(shape)})[0].shape == shape


def test_outputs_in_the_memory_of_other_outputs() -> None:
    import cupy

    @onnx_op("gpu::Swapped", device_types=("cuda",))
    def op(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        assert out is not None
        cupy.add(x, np.float32(-1), out=out[0])
        cupy.add(x, np.float32(1), out=out[1])
        return out[1][::-1], out[0]

    op.register_shape_inference(lambda x: (x, x))
    model = pyops.testing.Sample(op, X).with_expected((X + 1)[::-1], X - 1).model()
    more, less = session(model).run(None, {"x": X})
    np.testing.assert_array_equal(more, (X + 1)[::-1])
    np.testing.assert_array_equal(less, X - 1)


# Where it runs.


def events(tmp_path: Path, model: Any, x: Any) -> list[dict[str, Any]]:
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    made = session(model, options)
    binding, _ = bound(made, x)
    for _ in range(3):
        made.run_with_iobinding(binding)
    return list(json.loads(Path(made.end_profiling()).read_text()))


def test_no_copy_to_or_from_the_host_stands_around_a_node(tmp_path) -> None:
    found = events(tmp_path, one_node("gpu::AddOne", count=3), X)
    nodes = [event for event in found if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]
    assert {event["args"]["op_name"] for event in nodes} == {"AddOne"}
    assert {event["args"]["provider"] for event in nodes} == {"CUDAExecutionProvider"}


def test_kernels_run_on_the_stream_that_the_user_gave() -> None:
    import cupy

    seen = []

    @onnx_op("gpu::Stream", device_types=("cuda",))
    def op(x: F32) -> F32:
        seen.append(cupy.cuda.get_current_stream().ptr)
        return x + np.float32(1)

    stream = cupy.cuda.Stream(non_blocking=True)
    assert session(one_node("gpu::Stream"), user_compute_stream=stream.ptr).run(None, {"x": X})[0][0] == -1
    assert session(one_node("gpu::Stream")).run(None, {"x": X})[0][0] == -1
    assert seen[0] == stream.ptr
    assert seen[1] not in (0, stream.ptr), "nothing runs on the default stream"


def test_allocations_come_from_the_session_s_arena() -> None:
    import cupy

    @onnx_op("gpu::Temporary", device_types=("cuda",))
    def op(x: F32) -> F32:
        return (x + np.float32(1)) * np.float32(2)

    pool = cupy.get_default_memory_pool()
    made, before = session(one_node("gpu::Temporary")), pool.total_bytes()
    assert made.run(None, {"x": X})[0].tolist() == ((X + 1) * 2).tolist()
    assert pool.total_bytes() == before


# Errors, kept arrays, the other device.


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gpu_mem_limt": 1}, 'Unknown provider option: "gpu_mem_limt". Its options are at https://'),
        ({"gpu_mem_limit": "lots"}, 'Failed to parse provider option "gpu_mem_limit"'),
        ({"device_id": 99}, "Invalid device ID: 99"),
    ],
)
def test_options_that_the_provider_refuses_are_told_from_a_gpu_that_is_not_there(capfd, options, reason) -> None:
    with pytest.raises(errors.DeviceError, match=re.escape(reason)):
        session(one_node("gpu::AddOne"), **options)
    made = session(one_node("gpu::AddOne"))
    with pytest.raises(errors.DeviceError, match=re.escape(reason)):
        made.set_providers(CUDA, cuda_options(**options))
    assert "EP Error" not in capfd.readouterr().out


def test_a_kernel_s_exception_is_raised_as_itself_and_the_session_goes_on() -> None:
    raising = [True]

    @onnx_op("gpu::Raises", device_types=("cuda",))
    def op(x: F32) -> F32:
        if raising.pop():
            raise ValueError("not today")
        return x + np.float32(1)

    made = session(one_node("gpu::Raises"))
    with pytest.raises(ValueError, match="not today") as raised:
        made.run(None, {"x": X})
    assert "float32[1000] on the GPU" in raised.value.__notes__[0]
    raising.append(False)
    assert made.run(None, {"x": X})[0].tolist() == (X + 1).tolist()


def test_a_kept_array_is_reported() -> None:
    kept = []

    @onnx_op("gpu::Keeps", device_types=("cuda",))
    def op(x: F32) -> F32:
        kept.append(x[1:])
        return x + np.float32(1)

    made = session(one_node("gpu::Keeps"))
    with pytest.warns(errors.BorrowedArrayWarning):
        made.run(None, {"x": X})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.run(None, {"x": X})


def test_nothing_else_is_taken_for_kept() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for qualified in ("gpu::AddOne", "gpu::QuickGelu", "gpu::Jit", "gpu::Softplus"):
            session(one_node(qualified)).run(None, {"x": X})


def test_an_op_of_the_other_device_runs_between_copies() -> None:
    with pytest.warns(errors.DeviceCopyWarning, match="has no CUDA kernel"):
        made = session(one_node("gpu::AddOneNumPy"))
    assert made.run(None, {"x": X})[0].tolist() == (X + 1).tolist()
    made = pyops.InferenceSession(one_node("gpu::Jit"), providers=["CPUExecutionProvider"])
    with pytest.warns(errors.DeviceCopyWarning, match="has only a CUDA kernel"):
        assert made.run(None, {"x": X})[0].tolist() == (X * np.float32(3)).tolist()


# Threads.


def test_a_thousand_runs_from_four_threads_on_two_streams_give_the_right_numbers() -> None:
    import cupy

    @onnx_op("gpu::Chain", device_types=("cuda",))
    def op(x: F32) -> F32:
        return (x + np.float32(1)) * np.float32(2) - x

    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    made = [session(one_node("gpu::Chain", count=3), user_compute_stream=stream.ptr) for stream in streams]
    wrong: list[Any] = []

    def run(number: int) -> None:
        for i in range(250):
            x = np.full(10_000, number * 1000 + i, np.float32)
            if not np.array_equal(made[number % 2].run(None, {"x": x})[0], x + 6):
                wrong.append((number, i))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thousand_runs_of_one_session_from_four_threads_give_the_right_numbers() -> None:
    made = session(one_node("gpu::AddOne", count=3))
    wrong: list[Any] = []

    def run(number: int) -> None:
        for i in range(250):
            x = np.full(10_000, number * 1000 + i, np.float32)
            if not np.array_equal(made.run(None, {"x": x})[0], x + 3):
                wrong.append((number, i))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
