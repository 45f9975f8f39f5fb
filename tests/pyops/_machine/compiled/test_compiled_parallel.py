"""Compiled kernels on ONNX Runtime's own thread pool, and beside Python threads."""

from __future__ import annotations

import ctypes
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._machine import memory_layout as layout
from pyops.shapes import broadcast
from tests.helpers.models import chain
from tests.helpers.systems import HAS_FORK

F32, I64 = NDArray[np.float32], NDArray[np.int64]


def session_for(body: str, inputs: str, outputs: str, threads: int = 4) -> pyops.InferenceSession:
    text = f'<ir_version: 8, opset_import: ["" : 18, "parallel" : 1]> g ({inputs}) => ({outputs}) {{ {body} }}'
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return pyops.InferenceSession(onnx.parser.parse_model(text), options)


@onnx_op("parallel::Plus", compile=True, parallel="(),()->()")
def add(x: F32, y: F32, *, out: F32 | None = None) -> F32:
    if out is None:
        out = np.empty(np.broadcast_shapes(x.shape, y.shape), np.float32)
    np.add(x, y, out)
    return out


add.register_shape_inference(lambda x, y: x.like(shape=broadcast(x, y)))


@onnx_op("parallel::Center", compile=True, parallel="(n)->(n),()")
def center(x: F32) -> tuple[F32, F32]:
    means = np.empty(x.shape[:-1], np.float32)
    result = np.empty_like(x)
    for index in np.ndindex(x.shape[:-1]):
        means[index] = np.mean(x[index])
        result[index] = x[index] - means[index]
    return result, means


center.register_shape_inference(lambda x: (x, x.like(shape=x.shape[:-1])))


@pytest.fixture(scope="module")
def add_session() -> pyops.InferenceSession:
    return session_for("z = parallel.Plus(x, y)", "float x, float y", "float z")


@pytest.fixture(scope="module")
def center_session() -> pyops.InferenceSession:
    return session_for("y, m = parallel.Center(x)", "float x", "float y, float m")


SIZES = st.integers(1, 40) | st.sampled_from([0, 1, 700, 2000])
# Each combination of ranks is compiled, which takes seconds.
SHAPES = st.lists(SIZES, min_size=3, max_size=3).filter(lambda shape: math.prod(shape) < 10**6)


@pytest.mark.exhaustive
@given(shape=SHAPES, kept=st.lists(st.booleans(), min_size=2, max_size=2))
@settings(max_examples=60, deadline=None)
def test_parts_give_what_the_whole_gives(
    shape: list[int], kept: list[bool], add_session: pyops.InferenceSession
) -> None:
    x = np.random.default_rng(0).random(shape, np.float32)
    smaller = [size if keep else 1 for size, keep in zip(shape[1:], kept, strict=True)]
    y = np.random.default_rng(1).random(smaller, np.float32)
    for _ in range(2):
        assert np.array_equal(add_session.run(None, {"x": x, "y": y})[0], x + y)


@given(shape=SHAPES.filter(lambda shape: shape[-1] > 0))
@settings(max_examples=5, deadline=None)
def test_rows_stay_together(shape: list[int], center_session: pyops.InferenceSession) -> None:
    x = np.random.default_rng(0).random(shape, np.float32)
    for _ in range(2):
        y, m = center_session.run(None, {"x": x})
        np.testing.assert_allclose(m, x.mean(-1), rtol=1e-4)
        np.testing.assert_allclose(y, x - x.mean(-1, keepdims=True), atol=1e-4)


def test_there_is_nothing_to_split_in_a_scalar_or_a_single_row(
    add_session: pyops.InferenceSession, center_session: pyops.InferenceSession
) -> None:
    one = np.array(1, np.float32)
    for _ in range(2):
        assert add_session.run(None, {"x": one, "y": one})[0] == 2
        assert center_session.run(None, {"x": np.arange(3, dtype=np.float32)})[1] == 1


@onnx_op("parallel::Parts", compile=True, parallel="()->()")
def parts(x: F32) -> F32:
    result = np.empty_like(x)
    result[:] = x.size
    return result


parts.register_shape_inference(lambda x: x)


def test_a_large_tensor_is_computed_in_parts_and_a_small_one_is_not() -> None:
    session = session_for("y = parallel.Parts(x)", "float[n] x", "float[n] y")
    for n, parts in ((10, 1), (layout.SMALLEST_SPLIT - 1, 1), (layout.SMALLEST_SPLIT, 4), (10**7, 32)):
        session.run(None, {"x": np.zeros(n, np.float32)})
        (y,) = session.run(None, {"x": np.zeros(n, np.float32)})
        assert set(y.tolist()) == {n / parts}


_thread_id = ctypes.CDLL(None).pthread_self if HAS_FORK else ctypes.CDLL("kernel32").GetCurrentThreadId
_thread_id.argtypes, _thread_id.restype = (), ctypes.c_int64


@onnx_op("parallel::Thread", compile=True, parallel="()->()")
def thread(x: I64) -> I64:
    total = np.int64(0)
    # Long enough for every thread to get a part.
    for i in range(1000 * x.size):
        total ^= i * x[i % x.size]
    result = np.empty_like(x)
    result[:] = _thread_id() + (total == -1)
    return result


thread.register_shape_inference(lambda x: x)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_is_the_sessions(threads: int) -> None:
    session = session_for("y = parallel.Thread(x)", "int64[n] x", "int64[n] y", threads)
    x = np.ones(layout.SMALLEST_SPLIT, np.int64)
    session.run(None, {"x": x})
    seen = set(session.run(None, {"x": x})[0].tolist())
    assert 1 <= len(seen) <= threads
    assert threads == 1 or len(seen) > 1


def test_eight_threads_run_one_session() -> None:
    session = pyops.InferenceSession(chain("parallel::Parts", "parallel::Parts"))
    x = np.zeros(10, np.float32)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: session.run(None, {"x": np.zeros(i % 7 + 1, np.float32)})[0], range(400)))
    assert [result.tolist() for result in results] == [[i % 7 + 1] * (i % 7 + 1) for i in range(400)]
    assert session.run(None, {"x": x})[0].tolist() == [10] * 10


def test_redefining_while_threads_run_it() -> None:
    def declare(number: int) -> None:
        @onnx_op("parallel::Changing", compile="try")
        def changing(x: F32) -> F32:
            return x * np.float32(0) + np.float32(number)

        changing.register_shape_inference(lambda x: x)

    declare(0)
    session = pyops.InferenceSession(chain("parallel::Changing"))
    stop = threading.Event()
    seen: set[float] = set()

    def run() -> None:
        while not stop.is_set():
            seen.update(session.run(None, {"x": np.zeros(3, np.float32)})[0].tolist())

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(run) for _ in range(4)]
        for number in range(1, 4):
            declare(number)
            session.run(None, {"x": np.zeros(3, np.float32)})
        stop.set()
        for future in futures:
            future.result()
    assert seen <= {0, 1, 2, 3}
    assert session.run(None, {"x": np.zeros(3, np.float32)})[0].tolist() == [3] * 3


def test_it_runs_while_another_thread_holds_the_interpreter() -> None:
    session = pyops.InferenceSession(chain("parallel::Parts"))
    x = np.zeros(10**6, np.float32)
    session.run(None, {"x": x})
    from numba import njit  # compiled code that keeps the GIL

    @njit
    def hold(n: int) -> int:
        total = 0
        for i in range(n):
            total ^= i * i
        return total

    hold(1)
    done: list[Any] = []
    runner = threading.Thread(target=lambda: done.append(session.run(None, {"x": x})))
    runner.start()
    hold(10**6)
    runner.join(30)
    assert len(done) == 1
