"""Memory that is kept for the arrays of kernels: where it is used, how much it is, and when it is given back."""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from numpy._core.multiarray import get_handler_name
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._machine.direct import loaded_code
from pyops.errors import EngineError
from tests.helpers.scripts import run_new_script
from tests.helpers.systems import needs_proc

F32 = NDArray[np.float32]
X = np.arange(100_000, dtype=np.float32)
NUMPY, KEPT = "default_allocator", "pyops"

pytestmark = pytest.mark.skipif(bool(loaded_code.problem()), reason=f"no direct calls: {loaded_code.problem()}")


def session_of(kernel: Callable[..., Any]) -> pyops.InferenceSession:
    @onnx_op("kept::Op")
    def op(x: F32) -> F32:
        return kernel(x)

    text = '<ir_version: 8, opset_import: ["" : 17, "kept" : 1]> g (float[n] x) => (float[m] y) { y = kept.Op(x) }'
    return pyops.InferenceSession(onnx.parser.parse_model(text))


def test_large_arrays_of_a_kernel_get_memory_that_is_kept() -> None:
    seen = []

    def kernel(x: F32) -> F32:
        made = [np.negative(x)]
        made.append(made[0] + made[0])
        seen.append((get_handler_name(), {array.ctypes.data for array in made}))
        return made[1]

    session = session_of(kernel)
    for _ in range(3):
        assert np.array_equal(session.run(None, {"x": X})[0], -2 * X)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == KEPT
    session.run(None, {"x": X[:10]})
    assert get_handler_name() == NUMPY


def test_calls_with_small_arrays_are_as_they_were() -> None:
    seen = []
    session = session_of(lambda x: seen.append(get_handler_name()) or np.resize(x, 100_000 * (len(seen) == 2)))
    for _ in range(3):
        session.run(None, {"x": X[:10]})
    assert seen == [NUMPY, NUMPY, KEPT]  # the last, as an output was large


def test_what_arrays_do_with_their_memory() -> None:
    def kernel(x: F32) -> F32:
        for size in (0, 10, 20_000, 200_000, 190_000, 400_000, 10):
            y = x.copy()
            y.resize(size, refcheck=False)
            assert np.array_equal(y[:10], x[: min(size, 10)])
            y[100_000:] = 3
            y.resize(100_000, refcheck=False)
            assert np.array_equal(y[: min(size, 100_000)], x[:size])
            small = np.zeros(10, np.float32)
            small.resize(size, refcheck=False)
            assert not small.any()
            assert y.ctypes.data % 16 == 0
        with pytest.raises(MemoryError):
            np.empty(2**60, np.int8)
        with pytest.raises(MemoryError):
            np.zeros(2**60, np.int8)
        with pytest.raises(MemoryError):
            x.copy().resize(2**58, refcheck=False)
        return y

    session = session_of(kernel)
    for _ in range(3):
        assert not session.run(None, {"x": X})[0][10:].any()


def numpy_handlers() -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    """Return the functions of NumPy's C API that set and get the handler."""
    table = loaded_code._numpy_table()
    object_ = ctypes.py_object
    return ctypes.PYFUNCTYPE(object_, object_)(table[304]), ctypes.PYFUNCTYPE(object_)(table[305])


def test_handlers_that_others_set_stay() -> None:
    set_, get = numpy_handlers()
    own = get()
    memory = loaded_code.memory_of_arrays()
    words = memory.words.copy()
    (ctypes.c_char * 127).from_address(words.ctypes.data).value = b"another"
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    another = make(words.ctypes.data, memory._NAME, None)
    seen = []

    def kernel(x: F32) -> F32:
        seen.append(get_handler_name())
        if setting:
            set_(setting.pop())
        return x + np.float32(1)

    setting: list[Any] = []
    session = session_of(kernel)

    def context() -> list[Any]:
        try:
            set_(another)
            session.run(None, {"x": X})
            outside = [get()]
            setting.append(own)
            session.run(None, {"x": X})
            return [*outside, get()]
        finally:
            set_(own)

    assert contextvars.copy_context().run(context) == [another, own]
    setting.append(another)
    try:
        session.run(None, {"x": X})
        assert get() is another
    finally:
        set_(own)
    session.run(None, {"x": X})
    assert get() is own
    assert seen == ["another", "another", KEPT, KEPT]


def test_an_exception_and_a_nested_session_leave_numpy_s_own_handler() -> None:
    def kernel(x: F32) -> F32:
        seen.append(get_handler_name())
        if x[0]:
            raise ValueError("no")
        return session.run(None, {"x": x + np.float32(1)})[0]

    seen: list[str] = []
    session = session_of(kernel)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            session.run(None, {"x": X})
        assert get_handler_name() == NUMPY
    assert seen == [KEPT] * 6


def test_threads_and_contexts_that_a_kernel_starts() -> None:
    later: list[Any] = []

    def kernel(x: F32) -> F32:
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: later.append((get_handler_name(), x + x)))
        thread.start()
        thread.join()
        later.append((context.run(get_handler_name), context.run(np.negative, x)))
        later.append(context)
        return later[-2][1] + later[-3][1]

    session = session_of(kernel)
    for _ in range(3):
        assert np.array_equal(session.run(None, {"x": X})[0], X)
    (in_thread, twice), (in_context, negative), context = later[-3:]
    assert (in_thread, in_context) == (NUMPY, KEPT)
    del session
    assert context.run(np.ones, 100_000).sum() == 100_000
    assert np.array_equal(twice, -2 * negative)


def test_eight_threads_get_memory_of_their_own() -> None:
    def kernel(x: F32) -> F32:
        made = [x + np.float32(step) for step in range(4)]
        return (made[0] + made[3]) - (made[1] + made[2] - x)

    session = session_of(kernel)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for size in random.choice([20_000, 50_000, 100_000, 200_000], 100):
            x = random.integers(0, 1000, size).astype(np.float32)
            assert np.array_equal(session.run(None, {"x": x})[0], x)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5"])
def test_a_limit_that_is_no_number_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOPS_KEPT_MEMORY", text)
    with pytest.raises(EngineError, match=rf"PYOPS_KEPT_MEMORY is '{text}'; set it to how many MiB may be kept"):
        session_of(np.negative)


@needs_proc
@pytest.mark.parametrize("limit", [0, 64, 256])
def test_what_is_kept_is_within_the_limit_and_gone_with_the_last_session(limit: int) -> None:
    run_new_script(
        f"""
        from tests.stress.memory import resident

        os.environ["PYOPS_KEPT_MEMORY"] = "{limit}"
        SIZE = 40 * 2**20
        peaks = []

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            made = [x + np.float32(step) for step in range(10)]
            peaks.append(resident())
            return made[-1]

        x = np.ones(SIZE // 4, np.float32)
        first, second = (pyops.InferenceSession(chain("hazards::Op")) for _ in range(2))
        start = resident()
        for session in (first, second):
            for _ in range(3):
                session.run(None, {{"x": x}})
        ARENA = 70 * 2**20  # of ONNX Runtime, per session
        print(max(peaks) - start < 11 * SIZE + 2 * ARENA)
        del session, first
        kept = resident() - start
        print({limit >> 1} * 2**20 <= kept < {limit} * 2**20 + ARENA + SIZE)
        del second
        print(resident() - start < 0.7 * SIZE)
        """,
        "True\nTrue\nTrue",
    )


@needs_proc
def test_zeros_cost_no_memory_until_they_are_used() -> None:
    run_new_script(
        """
        from tests.stress.memory import LIBC, resident

        M_PERTURB = -6
        LIBC.mallopt(M_PERTURB, 0)  # which writes to zeros, too

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            made = np.zeros(2**28, np.float32)
            made[:: 2**26] = 1
            grown.append(resident() - start)
            return x[:4] + made[0]

        grown, start = [], 0
        session = pyops.InferenceSession(chain("hazards::Op"))
        for _ in range(3):
            start = resident()
            session.run(None, {"x": np.zeros(20_000, np.float32)})
        print(max(grown[1:]) < 2**25)
        """,
        "True",
    )


def test_arrays_outlive_sessions_modules_and_the_fork_of_a_process() -> None:
    run_new_script(
        """
        kept = []

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            kept[:] = [x + np.float32(1), (x * x)[3:]]
            return x - np.float32(1)

        class Late:
            def __init__(self, *arrays):
                self.arrays = arrays

            def __del__(self):
                print(self.arrays[0][0])
                self.arrays = None

        x = np.ones(100_000, np.float32)
        session = pyops.InferenceSession(chain("hazards::Op"))
        for _ in range(3):
            results = session.run(None, {"x": x})
        sys.modules["late"] = Late(*kept, *results)
        if hasattr(os, "fork"):
            if not os.fork():
                kept.clear()
                print(pyops.InferenceSession(chain("hazards::Op")).run(None, {"x": x})[0].sum(), flush=True)
                os._exit(0)
            os.wait()
        else:
            print(0.0)
        del session, results
        """,
        "0.0\n2.0",
    )
