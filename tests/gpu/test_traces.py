"""What CUDA kernels in sessions ask CUDA for, call by call: on onnxruntime-gpu and CuPy, over CUDA on host memory."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pyops
from pyops import errors, onnx_op
from tests.gpu.gpu_ops import CUDA, F32, I64, bound, into, one_node, session
from tests.gpu.host_cuda import runtime
from tests.gpu.host_cuda.trace import Trace, traced

pytestmark = pytest.mark.skipif(not runtime.is_loaded(), reason=runtime.LEFT_OUT)

X = np.linspace(-2, 2, 1000, dtype=np.float32)
ALL = X.nbytes
# ONNX Runtime waits at the end of each run. Of such a run, pyops does everything else.
UNFINISHED = onnxruntime.RunOptions()
UNFINISHED.add_run_config_entry("disable_synchronize_execution_providers", "1")


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "gpu" : 1]> main {text}')


def traced_run(made: Any, x: Any = X) -> tuple[Trace, Any]:
    """Trace a run on the GPU's memory, after a first one; returns the output too."""
    binding, result = bound(made, x)
    made.run_with_iobinding(binding)
    with traced() as trace:
        made.run_with_iobinding(binding, UNFINISHED)
    made.run_with_iobinding(binding)
    return trace, result.numpy()


def run_in_threads(run: Any, count: int = 4) -> None:
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# What one run is.


def test_a_kernel_with_out_is_one_launch_and_nothing_else() -> None:
    trace, y = traced_run(session(one_node("gpu::AddOne")))
    assert trace.steps == ["launch add_one"]
    assert 0 not in trace.streams
    np.testing.assert_array_equal(y, X + 1)


def test_a_returned_array_is_copied_once_on_the_device() -> None:
    trace, y = traced_run(session(one_node("gpu::Jit")))
    assert trace.steps == ["launch scale", f"copy DtoD {ALL}"]
    assert 0 not in trace.streams
    np.testing.assert_array_equal(y, X * 3)


@pytest.mark.parametrize("qualified", ["gpu::AddOne", "gpu::QuickGelu", "gpu::Jit", "gpu::Softplus", "gpu::Softmax"])
def test_every_kind_of_kernel_runs_on_the_session_s_stream_and_waits_for_nothing(qualified) -> None:
    x = X.reshape(10, 100) if qualified == "gpu::Softmax" else X
    trace, _ = traced_run(session(one_node(qualified, shape=("n", "m")[: x.ndim])), x)
    assert trace.launched
    assert not trace.waited
    assert len(trace.streams) == 1
    assert trace.streams != {0}
    assert {copy.partition(" ")[0] for copy in trace.copied} <= {"DtoD"}


def test_onnx_runtime_waits_at_the_end_of_a_run_as_it_does_without_pyops() -> None:
    model = parse("(float[n] x) => (float[n] y) { y = Identity(x) }")
    waits = []
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=CUDA)
    for made in (theirs, session(one_node("gpu::AddOne"))):
        binding, _ = bound(made, X)
        made.run_with_iobinding(binding)
        with traced() as trace:
            made.run_with_iobinding(binding)
        waits.append(trace.waited)
    assert waits[0] == waits[1]


def test_a_run_on_host_arrays_has_one_copy_each_way() -> None:
    made = session(one_node("gpu::AddOne", count=3))
    made.run(None, {"x": X})
    with traced() as trace:
        made.run(None, {"x": X})
    assert trace.copied == [f"HtoD {ALL}", f"DtoH {ALL}"]
    assert trace.launched == ["add_one"] * 3


def test_an_output_in_an_output_s_buffer_is_copied_twice() -> None:
    import cupy

    @onnx_op("gpu::Reversed", device_types=("cuda",))
    def op(x: F32, *, out: F32 | None = None) -> F32:
        return cupy.add(x, np.float32(1), out=out)[::-1]

    op.register_shape_inference(lambda x: x)
    trace, y = traced_run(session(one_node("gpu::Reversed")))
    assert len(trace.launched) + len(trace.copied) == 3
    np.testing.assert_array_equal(y, (X + 1)[::-1])


def test_an_op_without_a_cuda_kernel_runs_between_copies() -> None:
    @onnx_op("gpu::OnHost")
    def op(x: F32) -> F32:
        return x * np.float32(2)

    model = parse("(float[n] x) => (float[n] y) { a = gpu.AddOne(x)  b = gpu.OnHost(a)  y = gpu.AddOne(b) }")
    with pytest.warns(errors.DeviceCopyWarning):
        made = session(model)
    made.run(None, {"x": X})
    with traced() as trace:
        (y,) = made.run(None, {"x": X})
    assert trace.copied == [f"HtoD {ALL}", f"DtoH {ALL}", f"HtoD {ALL}", f"DtoH {ALL}"]
    np.testing.assert_array_equal(y, (X + 1) * 2 + 1)


def test_an_op_with_a_cuda_kernel_alone_runs_between_copies_in_a_session_on_the_cpu() -> None:
    @onnx_op("gpu::OnGpu", device_types=("cuda",))
    def op(x: F32) -> F32:
        return x * np.float32(2)

    made = pyops.InferenceSession(one_node("gpu::OnGpu"), providers=["CPUExecutionProvider"])
    with pytest.warns(errors.DeviceCopyWarning):
        made.run(None, {"x": X})
    with traced() as trace:
        (y,) = made.run(None, {"x": X})
    assert trace.copied == [f"HtoD {ALL}", f"DtoH {ALL}"]
    np.testing.assert_array_equal(y, X * 2)


# Inputs on the host.


@onnx_op("gpu::NextShape", device_types=("cuda",))
def next_shape(x: I64) -> I64:
    return x + np.int64(1)


def test_a_host_input_that_the_gpu_computes_is_waited_for_by_an_event() -> None:
    made = session(parse("(float[n] x, int64[2] s) => (float[a,b] y) { t = gpu.NextShape(s)  y = gpu.Reshape(x, t) }"))
    feed = {"x": X, "s": np.array([9, 99])}
    made.run(None, feed)
    with traced() as trace:
        (y,) = made.run(None, feed, UNFINISHED)
    assert y.shape == (10, 100)
    read = trace.steps.index("copy DtoH 16")
    assert trace.steps[read + 1 : read + 3] == ["record an event", "wait for the event"]
    assert trace.waited == ["wait for the event"]


def test_a_host_input_that_lies_on_the_host_is_neither_copied_nor_waited_for() -> None:
    made = session(parse("(float[n] x, int64[2] s) => (float[a,b] y) { y = gpu.Reshape(x, s) }"))
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0))
    binding.bind_cpu_input("s", np.array([10, 100]))
    binding.bind_output("y", "cuda", 0)
    made.run_with_iobinding(binding)
    with traced() as trace:
        made.run_with_iobinding(binding, UNFINISHED)
    assert trace.steps == [f"copy DtoD {ALL}"]


def test_a_host_input_cannot_be_captured() -> None:
    model = parse("(float[1000] x, int64[2] s) => (float[10,100] y) { y = gpu.Reshape(x, s) }")
    made = session(model, enable_cuda_graph=1)
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0))
    binding.bind_cpu_input("s", np.array([10, 100]))
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(X.reshape(10, 100), "cuda", 0))
    with pytest.raises(errors.InputError, match=r"the host inputs \('shape'\) would be read only during"):
        made.run_with_iobinding(binding)


# Streams, devices and threads.


def test_everything_runs_on_the_stream_that_the_user_gave() -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    for qualified in ("gpu::AddOne", "gpu::Jit"):
        trace, _ = traced_run(session(one_node(qualified, count=2), user_compute_stream=stream.ptr))
        assert trace.streams == {stream.ptr}


def test_sessions_on_two_devices_run_each_on_its_own() -> None:
    import cupy

    made = [session(one_node("gpu::Jit", count=2), device_id=device) for device in (0, 1)]
    for step in range(3):
        for device in (1, 0):
            x = X + np.float32(step)
            with traced() as trace:
                (y,) = made[device].run(None, {"x": x})
            assert trace.devices == {str(device)}
            np.testing.assert_array_equal(y, x * 3 * 3)
    assert cupy.cuda.runtime.getDevice() == 0


def test_four_threads_in_one_session_get_right_numbers_and_never_the_default_stream() -> None:
    @onnx_op("gpu::Slow", device_types=("cuda",))
    def op(x: F32) -> F32:
        return (x + np.float32(1)) * np.float32(2) - x

    made = session(one_node("gpu::Slow", count=3))
    made.run(None, {"x": X})
    wrong: list[Any] = []

    def run(number: int) -> None:
        for i in range(25):
            x = np.full(1000, number * 100 + i, np.float32)
            if not np.array_equal(made.run(None, {"x": x})[0], x + 6):
                wrong.append((number, i))

    with traced() as trace:
        run_in_threads(run)
    assert wrong == []
    assert len(trace.launched) == 4 * 25 * 3 * 3
    assert 0 not in trace.streams


def test_four_threads_with_sessions_of_two_devices() -> None:
    made = [session(one_node("gpu::Jit", count=2), device_id=number % 2) for number in range(4)]
    wrong: list[Any] = []

    def run(number: int) -> None:
        for i in range(25):
            x = np.full(1000, number * 100 + i, np.float32)
            if not np.array_equal(made[number].run(None, {"x": x})[0], x * 9):
                wrong.append((number, i))

    run_in_threads(run)
    assert wrong == []


# Graphs and control flow.


def test_a_graph_is_captured_once_and_then_replayed() -> None:
    made = session(one_node("gpu::AddOne", shape=(1000,), count=2), enable_cuda_graph=1)
    given = onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    binding, result = bound(made, X)
    binding.bind_ortvalue_input("x", given)
    with traced() as trace:
        made.run_with_iobinding(binding)
    start, end = trace.steps.index("begin a capture"), trace.steps.index("end the capture")
    assert trace.steps[start : end + 2] == [
        *("begin a capture", "launch add_one", "launch add_one", "end the capture", "make a graph of 2")
    ]
    for step in range(3):
        given.update_inplace(X + np.float32(step))
        with traced() as trace:
            made.run_with_iobinding(binding)
        assert trace.steps[0] == "replay the graph"
        assert not trace.launched
        np.testing.assert_array_equal(result.numpy(), X + np.float32(step) + 1 + 1)


def test_what_a_captured_kernel_allocates_stays_its_own() -> None:
    @onnx_op("gpu::Kept", device_types=("cuda",))
    def op(x: F32) -> F32:
        return (x + np.float32(1)) * np.float32(2)

    made = session(one_node("gpu::Kept", shape=(1000,)), enable_cuda_graph=1)
    given = onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    binding, result = bound(made, X)
    binding.bind_ortvalue_input("x", given)
    made.run_with_iobinding(binding)
    others = session(one_node("gpu::Jit"))
    for step in range(3):
        given.update_inplace(X + np.float32(step))
        others.run(None, {"x": X})
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(result.numpy(), (X + np.float32(step) + 1) * 2)


def test_no_graph_is_made_of_a_capture_in_which_a_kernel_raised() -> None:
    import cupy

    failing = [True]

    @onnx_op("gpu::Fails", device_types=("cuda",))
    def op(x: F32) -> F32:
        if failing and cupy.cuda.get_current_stream().is_capturing():
            raise ValueError("not today")
        return x + np.float32(1)

    text = "(float[1000] x) => (float[1000] y) { t = gpu.AddOne(x)  y = gpu.Fails(t) }"
    made = session(parse(text), enable_cuda_graph=1)
    binding, result = bound(made, X)
    with traced() as trace, pytest.raises(ValueError, match="not today"):
        made.run_with_iobinding(binding)
    assert "end the capture" in trace.steps
    assert not [step for step in trace.steps if step.startswith(("make a graph", "replay"))]
    failing.clear()
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(result.numpy(), X + 1 + 1)


RUNS_WITHOUT_BOUND_MEMORY = {
    "run": lambda made, values, options: made.run(None, {"x": X}, options),
    "run_with_ort_values": lambda made, values, options: made.run_with_ort_values(None, {"x": values[0]}, options),
    "run_async": lambda made, values, options: made.run_async(None, {"x": X}, lambda *_: None, None, options),
    "run_with_ortvaluevector": lambda made, values, options: made.run_with_ortvaluevector(
        options or onnxruntime.RunOptions(), ["x"], [values[0]], ["y"], [values[1]], []
    ),
}


@pytest.mark.parametrize("how", RUNS_WITHOUT_BOUND_MEMORY)
def test_a_run_without_bound_memory_is_refused_where_graphs_are_captured(how) -> None:
    made = session(one_node("gpu::AddOne", shape=(1000,)), enable_cuda_graph=1)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0) for _ in range(2)]
    with traced() as trace, pytest.raises(errors.InputError, match="bind inputs and outputs on the GPU"):
        RUNS_WITHOUT_BOUND_MEMORY[how](made, values, None)
    assert trace.steps == []


def test_kernels_in_a_loop() -> None:
    body = "<body = g (int64 i, bool c, float[n] v) => (bool d, float[n] w) { d = Identity(c)  w = gpu.AddOne(v) }>"
    constants = "<int64 times = {3}, bool on = {1}>"
    made = session(parse(f"(float[n] x) => (float[n] y) {constants} {{ y = Loop(times, on, x) {body} }}"))
    made.run(None, {"x": X})
    with traced() as trace:
        (y,) = made.run(None, {"x": X})
    assert trace.launched == ["add_one"] * 3
    assert len(trace.streams) == 1
    np.testing.assert_array_equal(y, X + 1 + 1 + 1)


@pytest.mark.parametrize(("condition", "kernel"), [(True, "add_one"), (False, "scale")])
def test_kernels_in_an_if(condition, kernel) -> None:
    then = "then_branch = a () => (float[n] u) { u = gpu.AddOne(x) }"
    other = "else_branch = b () => (float[n] v) { v = gpu.Jit(x) }"
    made = session(parse(f"(float[n] x, bool c) => (float[n] y) {{ y = If(c) <{then}, {other}> }}"))
    feed = {"x": X, "c": np.array(condition)}
    made.run(None, feed)
    with traced() as trace:
        (y,) = made.run(None, feed)
    assert trace.launched == [kernel]
    assert len(trace.streams) == 1
    np.testing.assert_array_equal(y, X + 1 if condition else X * 3)


# Memory.


def test_what_kernels_allocate_is_the_session_s_and_is_allocated_once() -> None:
    import cupy

    @onnx_op("gpu::Temporary", device_types=("cuda",))
    def op(x: F32) -> F32:
        return (x + np.float32(1)) * np.float32(2)

    pool = cupy.get_default_memory_pool()
    before = pool.total_bytes()
    trace, y = traced_run(session(one_node("gpu::Temporary", count=3)))
    assert trace.allocated == []
    assert pool.total_bytes() == before
    np.testing.assert_array_equal(y, ((X + 1) * 2 + 1) * 2 * 2 + 2)


def test_a_session_s_memory_goes_with_it() -> None:
    def run() -> None:
        made = session(one_node("gpu::Jit", count=3))
        made.run(None, {"x": X})
        made.run(None, {"x": np.zeros(5_000_000, np.float32)})

    run()
    gc.collect()
    before = runtime.in_use()
    for _ in range(3):
        run()
    gc.collect()
    session(one_node("gpu::Jit"))  # which looks through what is left of others
    gc.collect()
    assert runtime.in_use() <= before


@pytest.mark.parametrize("what", ["an input", "an array of its own"])
def test_what_a_kernel_keeps_outlives_the_session(what) -> None:
    import cupy

    kept: list[Any] = []

    @onnx_op("gpu::Keeps", device_types=("cuda",))
    def op(x: F32) -> F32:
        y = x + np.float32(1)
        kept[:] = [x[1:] if what == "an input" else y]
        return y

    def run() -> None:
        with warnings.catch_warnings(action="ignore", category=errors.BorrowedArrayWarning):
            session(one_node("gpu::Keeps")).run(None, {"x": X})

    run()
    gc.collect()
    # ONNX Runtime may have put other values into an input; reading them is no error.
    values = cupy.asnumpy(kept[0])
    assert what == "an input" or values.tolist() == (X + 1).tolist()
    others = session(one_node("gpu::Jit"))
    for _ in range(3):
        others.run(None, {"x": X})
    assert cupy.asnumpy(kept.pop()).tolist() == values.tolist()


def test_what_a_kernel_frees_is_not_reused_before_the_work_on_it_is_done() -> None:
    @onnx_op("gpu::Temporaries", device_types=("cuda",))
    def op(x: F32) -> F32:
        for _ in range(5):
            x = into_new(into_new(x)) - np.float32(1)
        return x

    def into_new(x: F32) -> F32:
        return (x + np.float32(2)) * np.float32(0.5)

    expected = X
    for _ in range(5):
        for _ in range(2):
            expected = (expected + np.float32(2)) * np.float32(0.5)
        expected = expected - np.float32(1)
    _, y = traced_run(session(one_node("gpu::Temporaries")))
    np.testing.assert_array_equal(y, expected)


def test_gpu_mem_limit_holds_for_what_kernels_allocate() -> None:
    import cupy

    @onnx_op("gpu::Large", device_types=("cuda",))
    def op(x: F32) -> F32:
        return cupy.zeros(64 << 20, np.uint8)[: x.size].astype(np.float32)

    made = session(one_node("gpu::Large"), gpu_mem_limit=32 << 20)
    with traced() as trace, pytest.raises(MemoryError) as raised:
        made.run(None, {"x": X})
    assert "gpu_mem_limit" in "".join(raised.value.__notes__)
    # What is given back may be another stream's next: nothing may still use it.
    assert "wait for the device" in trace.waited


def test_a_kernel_that_writes_into_its_out_and_returns_another_array_is_right() -> None:
    @onnx_op("gpu::Either", device_types=("cuda",))
    def op(x: F32, *, out: F32 | None = None) -> F32:
        assert out is not None
        out[...] = x
        return into(lambda a: a + np.float32(1), x, None)

    op.register_shape_inference(lambda x: x)
    _, y = traced_run(session(one_node("gpu::Either")))
    np.testing.assert_array_equal(y, X + 1)


# What CUDA says of itself.


def test_an_error_that_left_cuda_unusable_is_named() -> None:
    made = session(one_node("gpu::AddOne"))
    binding, _ = bound(made, X)
    made.run_with_iobinding(binding)
    runtime.library().host_cuda_set_broken(700)  # as after an illegal address
    try:
        with pytest.raises(RuntimeError, match=r"(?i)illegal") as raised:
            made.run_with_iobinding(binding)
        with pytest.raises(errors.DeviceError, match=r"an earlier error .* has left CUDA unusable"):
            session(one_node("gpu::AddOne"))
    finally:
        runtime.library().host_cuda_set_broken(0)
    assert "CUDA_LAUNCH_BLOCKING=1" in "".join(raised.value.__notes__)
    made.run_with_iobinding(binding)
