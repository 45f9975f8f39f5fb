"""Kernels that run at the same time, and inside one another."""

import itertools
import json
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from tests.helpers.models import chain, make_model

F32 = NDArray[np.float32]
THREADS = 8
TIMEOUT = 60


def in_threads(work: Any, count: int = THREADS) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return [future.result(TIMEOUT) for future in [pool.submit(work, i) for i in range(count)]]


def test_threads_share_a_session() -> None:
    @onnx_op("tests::Double")
    def double(x: F32) -> F32:
        return x + x

    session = pyops.InferenceSession(chain("tests::Double", "tests::Double"))

    def work(i: int) -> None:
        x = np.full((i + 1) * 100, i, np.float32)
        for _ in range(100):
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * 4)

    in_threads(work)


def test_kernels_of_several_threads_run_at_the_same_time() -> None:
    barrier = threading.Barrier(THREADS)

    @onnx_op("tests::Meet")
    def meet(x: F32) -> F32:
        barrier.wait(TIMEOUT)
        return x + 1

    session = pyops.InferenceSession(chain("tests::Meet"))
    results = in_threads(lambda i: session.run(None, {"x": np.array([i], np.float32)})[0].item())
    assert results == [i + 1 for i in range(THREADS)]


def test_each_thread_gets_the_exception_of_its_own_kernel() -> None:
    count, rounds = 32, 10
    barrier = threading.Barrier(count)

    @onnx_op("tests::Refuse")
    def refuse(x: F32) -> F32:
        barrier.wait(TIMEOUT)
        raise ValueError(int(x[0]))

    session = pyops.InferenceSession(chain("tests::Refuse"))

    def work(i: int) -> Any:
        try:
            session.run(None, {"x": np.array([i], np.float32)})
        except Exception as error:
            return type(error), error.args

    for _ in range(rounds):
        assert in_threads(work, count) == [(ValueError, (i,)) for i in range(count)]


def test_run_async_calls_back_in_a_thread_of_onnxruntime_with_the_outputs_or_the_text_of_the_exception() -> None:
    @onnx_op("tests::Fill")
    def fill(x: F32) -> F32:
        if not x.size:
            raise LookupError("nothing to fill")
        return x + 1

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 2, 4
    session = pyops.InferenceSession(chain("tests::Fill"), options)
    answers: queue.Queue[tuple[Any, str, int]] = queue.Queue()
    for size in (2, 0):
        feed = {"x": np.ones(size, np.float32)}
        session.run_async(
            None, feed, lambda outputs, _, error: answers.put((outputs, error, threading.get_ident())), None
        )
        outputs, error, thread = answers.get(timeout=TIMEOUT)
        assert thread != threading.get_ident()
        if size:
            assert outputs[0].tolist() == [2, 2]
        else:
            assert "LookupError: nothing to fill" in error


def test_sessions_are_created_in_several_threads() -> None:
    @onnx_op("tests::Negate")
    def negate(x: F32) -> F32:
        return -x

    options = onnxruntime.SessionOptions()

    def work(i: int) -> None:
        for shared in (options, None):
            session = pyops.InferenceSession(chain("tests::Negate"), shared)
            np.testing.assert_array_equal(session.run(None, {"x": np.ones(2, np.float32)})[0], -np.ones(2))

    in_threads(work)


def parallel_options(tmp_path: Path, *streams: Sequence[str]) -> onnxruntime.SessionOptions:
    """Options under which the named nodes run in streams of their own, each on its thread.

    Left to itself ONNX Runtime puts all nodes of the CPU into one stream.
    """
    config = {"type": "DeviceBasedPartitioner", "devices": ["0"] * len(streams), "streams": streams}
    path = tmp_path / "partition.json"
    path.write_text(json.dumps(config))
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 4
    options.add_session_config_entry("session.node_partition_config_file", str(path))
    return options


def fan(*names: str) -> Any:
    """A model with one node per name, all of the same input, and their sum as the result."""
    nodes = [
        helper.make_node(name, ["x"], [f"t{i}"], domain="tests", name=f"{name}{i}") for i, name in enumerate(names)
    ]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(len(names))], ["y"], name="sum"))
    return make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"tests": 1})


def test_nodes_run_in_parallel_on_threads_of_onnxruntime(tmp_path: Path) -> None:
    # Not in every run: ONNX Runtime may give both nodes to one of its threads while the others sleep.
    met = threading.Event()
    alone = threading.Lock()

    @onnx_op("tests::Meet")
    def meet(x: F32) -> F32:
        if alone.acquire(blocking=False):
            met.wait(0.2)
            alone.release()
        else:
            met.set()
        return x + 1

    session = pyops.InferenceSession(fan("Meet", "Meet"), parallel_options(tmp_path, ["Meet0"], ["Meet1", "sum"]))
    for _ in range(50):
        np.testing.assert_array_equal(session.run(None, {"x": np.ones(3, np.float32)})[0], np.full(3, 4))
    assert met.is_set()


def test_an_exception_on_a_thread_of_onnxruntime_is_raised_as_itself(tmp_path: Path) -> None:
    @onnx_op("tests::Refuse")
    def refuse(x: F32) -> F32:
        raise LookupError("no")

    @onnx_op("tests::Keep")
    def keep(x: F32) -> F32:
        return x

    options = parallel_options(tmp_path, ["Keep0", "Refuse1"], ["Keep2", "Refuse3", "sum"])
    session = pyops.InferenceSession(fan("Keep", "Refuse", "Keep", "Refuse"), options)
    for _ in range(20):
        with pytest.raises(LookupError, match="no"):
            session.run(None, {"x": np.ones(3, np.float32)})


def test_a_kernel_runs_another_session() -> None:
    @onnx_op("tests::Inner")
    def inner(x: F32) -> F32:
        return x * 2

    @onnx_op("tests::Outer")
    def outer(x: F32) -> F32:
        return nested.run(None, {"x": x})[0] + x

    nested = pyops.InferenceSession(chain("tests::Inner"))
    session = pyops.InferenceSession(chain("tests::Outer", "tests::Outer"))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * 9)
    in_threads(lambda i: np.testing.assert_array_equal(session.run(None, {"x": x + i})[0], (x + i) * 9))


def test_a_kernel_runs_its_own_session_deeper_and_deeper() -> None:
    @onnx_op("tests::Count")
    def count(x: F32) -> F32:
        return x if x[0] <= 0 else session.run(None, {"x": x - 1})[0] + 1

    session = pyops.InferenceSession(chain("tests::Count"))
    assert session.run(None, {"x": np.array([20], np.float32)})[0] == 20


def test_an_exception_passes_through_a_kernel_that_runs_another_session() -> None:
    @onnx_op("tests::Inner")
    def inner(x: F32) -> F32:
        raise LookupError("inner")

    @onnx_op("tests::Outer")
    def outer(x: F32) -> F32:
        return nested.run(None, {"x": x})[0]

    nested = pyops.InferenceSession(chain("tests::Inner"))
    session = pyops.InferenceSession(chain("tests::Outer"))
    for _ in range(2):
        with pytest.raises(LookupError, match=r"^inner") as caught:
            session.run(None, {"x": np.ones(1, np.float32)})
        inner_note, outer_note = caught.value.__notes__
        assert "tests::Inner" in inner_note
        assert "tests::Outer" in outer_note


def test_a_kernel_that_catches_the_exception_of_another_session_goes_on() -> None:
    @onnx_op("tests::Inner")
    def inner(x: F32) -> F32:
        raise LookupError("inner")

    @onnx_op("tests::Outer")
    def outer(x: F32) -> F32:
        try:
            return nested.run(None, {"x": x})[0]
        except LookupError:
            return x + 7

    nested = pyops.InferenceSession(chain("tests::Inner"))
    session = pyops.InferenceSession(chain("tests::Outer"))
    assert session.run(None, {"x": np.ones(1, np.float32)})[0] == 8


def test_the_error_of_a_session_of_onnxruntime_inside_a_kernel_is_raised_as_itself() -> None:
    @onnx_op("tests::Inner")
    def inner(x: F32) -> F32:
        raise LookupError("inner")

    @onnx_op("tests::Outer")
    def outer(x: F32) -> F32:
        try:
            return nested.run(None, {"x": x})[0]
        except Exception as error:
            raised.append(error)
            raise

    raised: list[Exception] = []
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    nested = onnxruntime.InferenceSession(chain("tests::Inner").SerializeToString(), options)
    session = pyops.InferenceSession(chain("tests::Outer"))
    with pytest.raises(Exception, match="inner") as caught:
        session.run(None, {"x": np.ones(1, np.float32)})
    assert caught.value is raised[0]
    assert "tests::Outer" in caught.value.__notes__[0]


@pytest.mark.parametrize("given", [1, 2, 3])
def test_a_shape_function_that_another_thread_replaces_meanwhile_is_not_missed(
    given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @onnx_op("tests::Replaced")
    def replaced(x: F32) -> F32:
        return x + 1

    session = pyops.InferenceSession(chain("tests::Replaced"))
    # What each lookup finds, while another thread declares the op again and again.
    functions = itertools.cycle([lambda x: x] * given + [None])
    monkeypatch.setattr(pyops.Op, "shape_function", property(lambda op: next(functions)), raising=False)
    for size in range(8):
        x = np.zeros(size, np.float32)
        assert session.run(None, {"x": x})[0].tolist() == replaced(x).tolist() == [1] * size
