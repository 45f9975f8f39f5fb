"""CUDA graphs: sessions that capture their runs and replay them, on a GPU."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pyops
from pyops import errors, onnx_op
from tests.gpu.gpu_ops import CUDA, F32, bound, cuda_options, one_node, session

pytestmark = pytest.mark.gpu("session")

X = np.linspace(-2, 2, 1000, dtype=np.float32)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "gpu" : 1]> main {text}')


def test_python_runs_while_a_graph_is_captured_and_not_when_it_is_replayed() -> None:
    calls = []

    @onnx_op("gpu::Counted", device_types=("cuda",))
    def op(x: F32) -> F32:
        calls.append(1)
        return (x + np.float32(1)) * np.float32(2)

    made = session(one_node("gpu::Counted", shape=(1000,)), enable_cuda_graph=1)
    given = onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    result = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(X), "cuda", 0)
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", given)
    binding.bind_ortvalue_output("y", result)
    made.run_with_iobinding(binding)
    captured = len(calls)
    for step in range(5):
        x = X + np.float32(step)
        given.update_inplace(x)
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(result.numpy(), (x + 1) * 2)
    assert captured >= 1
    assert len(calls) == captured


def wait() -> None:
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def refuse(error: BaseException) -> None:
    raise error


def wait_unseen() -> None:
    with contextlib.suppress(RuntimeError):
        wait()
    raise ValueError("not today")


# In which kernels fail in a capture: what they do, the error, and the note.
WAYS_TO_FAIL = {
    "by an error of its own": (lambda x: refuse(ValueError("not today")), ValueError, None),
    "by an interrupt": (lambda x: refuse(KeyboardInterrupt()), KeyboardInterrupt, None),
    "by its result": (lambda x: x.astype(np.float64), errors.OutputError, None),
    "where CuPy refuses": (lambda x: x + np.float32(x.sum().item()), RuntimeError, "cannot be captured"),
    "where CUDA refuses": (lambda x: wait(), RuntimeError, "cannot be captured"),
    "where CUDA refuses, unseen": (lambda x: wait_unseen(), ValueError, None),
}


def failing_in_captures(how: str, failing: list[bool]) -> Any:
    """A model of two nodes, the second of which fails in captures as long as it is asked to."""
    import cupy

    @onnx_op("gpu::Fails", device_types=("cuda",))
    def op(x: F32) -> F32:
        if failing and cupy.cuda.get_current_stream().is_capturing():
            return WAYS_TO_FAIL[how][0](x)
        return x + np.float32(1)

    return parse("(float[1000] x) => (float[1000] y) { t = gpu.AddOne(x)  y = gpu.Fails(t) }")


def assert_runs_are_right(made: Any) -> None:
    given = onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    binding, result = bound(made, X)
    binding.bind_ortvalue_input("x", given)
    for step in range(5):
        given.update_inplace(X + np.float32(step))
        made.run_with_iobinding(binding)
        np.testing.assert_allclose(result.numpy(), X + step + 2, rtol=1e-6)


@pytest.mark.parametrize("how", WAYS_TO_FAIL)
def test_an_error_in_a_capture_is_raised_as_itself_and_leaves_nothing_to_replay(how) -> None:
    failing = [True]
    made = session(failing_in_captures(how, failing), enable_cuda_graph=1)
    binding, _ = bound(made, X)
    _, kind, note = WAYS_TO_FAIL[how]
    for _ in range(3):
        with pytest.raises(kind) as raised:
            made.run_with_iobinding(binding)
        first, *others = raised.value.__notes__
        assert "gpu::Fails" in first
        assert [note in other for other in others] == ([True] if note else [])
    failing.clear()
    assert_runs_are_right(made)


@pytest.mark.parametrize("how", WAYS_TO_FAIL)
def test_an_error_in_a_capture_leaves_nothing_to_replay_in_other_people_s_sessions(how) -> None:
    failing = [True]
    model = failing_in_captures(how, failing)
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    options.log_severity_level = 4
    given = {"providers": CUDA, "provider_options": cuda_options(enable_cuda_graph=1)}
    made = onnxruntime.InferenceSession(model.SerializeToString(), options, **given)
    binding, _ = bound(made, X)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="cudaStreamEndCapture"):
            made.run_with_iobinding(binding)
        assert isinstance(pyops.last_exception(), WAYS_TO_FAIL[how][1])
    failing.clear()
    assert_runs_are_right(made)


def test_runs_that_ask_for_no_graph_need_no_bound_memory() -> None:
    made = session(one_node("gpu::AddOne", shape=(1000,)), enable_cuda_graph=1)
    uncaptured = onnxruntime.RunOptions()
    uncaptured.add_run_config_entry("gpu_graph_id", "-1")
    given = onnxruntime.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    for _ in range(3):
        np.testing.assert_array_equal(made.run(None, {"x": X}, uncaptured)[0], X + 1)
        (result,) = made.run_with_ort_values(None, {"x": given}, uncaptured)
        np.testing.assert_array_equal(result.numpy(), X + 1)


def test_each_graph_id_has_a_graph_and_sizes_of_its_own() -> None:
    made = session(one_node("gpu::AddOne"), enable_cuda_graph=1)
    given = {size: onnxruntime.OrtValue.ortvalue_from_numpy(X[:size], "cuda", 0) for size in (1000, 10)}
    bindings = {size: bound(made, X[:size]) for size in given}
    for step in range(3):
        for size, (binding, result) in bindings.items():
            binding.bind_ortvalue_input("x", given[size])
            given[size].update_inplace(X[:size] + np.float32(step))
            options = onnxruntime.RunOptions()
            options.add_run_config_entry("gpu_graph_id", str(size))
            made.run_with_iobinding(binding, options)
            np.testing.assert_array_equal(result.numpy(), X[:size] + np.float32(step) + 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("t = gpu.AddOneNumPy(x)  y = gpu.AddOne(t)", "gpu::AddOneNumPy has no CUDA kernel and would run on the CPU"),
        ("t = gpu.AddOne(x)  y = Det(t)", "has no CUDA kernel for some node; remove enable_cuda_graph"),
    ],
)
def test_a_session_of_nodes_that_cannot_be_captured_is_refused(text, reason) -> None:
    with pytest.raises(errors.ModelError, match=reason):
        session(parse(f"(float[10, 10] x) => (y) {{ {text} }}"), enable_cuda_graph=1)
