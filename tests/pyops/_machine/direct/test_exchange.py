"""The exchange: what a kernel returns becomes an output without a copy, if nothing else can see its memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._core.runtime.native.op_registration import ort_api
from pyops._machine.direct import exchange, loaded_code
from pyops._support.tested_releases import EXCHANGE
from pyops.errors import EngineError
from tests.helpers.models import assert_same
from tests.helpers.scripts import run_new_script
from tests.helpers.systems import needs_fork, needs_proc, needs_signals
from tests.helpers.tiers import exhaustive

F32 = NDArray[np.float32]
ONE, TWO = np.float32(1), np.float32(2)
X = np.arange(100_000, dtype=np.float32)
PROBLEM = exchange.Exchange.problem() or loaded_code.problem()

pytestmark = pytest.mark.skipif(bool(PROBLEM), reason=f"results are copied: {PROBLEM}")


class Pair(NamedTuple):
    first: F32
    second: F32


current: list[Callable[..., Any]] = []
"""What the ops One and Two call."""


@pytest.fixture(autouse=True)
def ops() -> Iterator[None]:
    @onnx_op("exchange::One")
    def one(x: F32) -> F32:
        return current[-1](x)

    @onnx_op("exchange::Two")
    def two(x: F32) -> tuple[F32, F32]:
        return current[-1](x)

    @onnx_op("exchange::Next")
    def after(x: F32) -> F32:
        return x + ONE

    @onnx_op("exchange::Over", may_inplace={"output": "x"})
    def over(x: F32) -> F32:
        return x * TWO

    @onnx_op("exchange::OverTwo", may_inplace={"first": "x"})
    def over_two(x: F32) -> Pair:
        return Pair(x * TWO, -x)

    yield
    current.clear()


def session_of(body: str, outputs: str = "float[m] y", inputs: str = "float[n] x", **settings: Any) -> Any:
    options = onnxruntime.SessionOptions()
    for name, value in settings.items():
        setattr(options, name, value)
    constants = "<int64[2] shape = {2, -1}, int64[1] flat = {-1}>"
    head = '<ir_version: 10, opset_import: ["" : 20, "exchange" : 1]>'
    text = f"{head} g ({inputs}) => ({outputs}) {constants} {{ {body} }}"
    return pyops.InferenceSession(onnx.parser.parse_model(text), options)


def outputs_of(kernel: Callable[..., Any], op: str = "One", x: Any = X) -> tuple[list[Any], list[bool]]:
    """Return the outputs of a kernel, and for each whether it lies where the kernel's result lay."""
    at: list[int] = []

    def called(x: F32) -> Any:
        made = kernel(x)
        at[:] = [array.ctypes.data for array in (made if isinstance(made, tuple) else (made,))]
        return made

    current.append(called)
    bodies = {"One": ("y = exchange.One(x)",), "Two": ("y, z = exchange.Two(x)", "float[m] y, float[k] z")}
    session, results = session_of(*bodies[op]), []
    for _ in range(2):
        results = session.run(None, {"x": x})
    return results, [array.ctypes.data == place for array, place in zip(results, at, strict=True)]


kept: list[Any] = []


def keep(value: Any) -> Any:
    kept.append(value)
    return value


@pytest.mark.parametrize(
    ("kernel", "is_taken"),
    [
        (lambda x: x + ONE, True),
        (lambda x: (x + ONE).reshape(2, -1).reshape(-1), True),
        (lambda x: np.ones_like(x), True),
        (lambda x: np.sort(-x), True),
        (lambda x: np.resize(x + ONE, x.size), True),
        (lambda x: (x + ONE)[:-1], True),
        (lambda x: np.asarray(memoryview(x + ONE)), False),
        (lambda x: (x + ONE)[1:], False),
        (lambda x: (x + ONE)[: x.size // 2], False),
        (lambda x: (x + ONE)[::2], False),
        (lambda x: x, False),
        (lambda x: x[:], False),
        (lambda x: np.zeros_like(x, subok=False) if x.size < 9 else np.zeros(x.size, np.float32), False),
        (lambda x: np.frombuffer(bytes(x.nbytes), np.float32), False),
        (lambda x: keep(x + ONE), False),
        (lambda x: (made := x + ONE, keep(made[5:]))[0], False),
        (lambda x: (made := x + ONE, keep(made[:0]))[0], False),
        (lambda x: (made := x + ONE, keep(memoryview(made)))[0], False),
        (lambda x: (made := x + ONE, keep(made.reshape(2, -1)), made.reshape(-1))[2], False),
        (lambda x: (made := x + ONE, keep(weakref.ref(made)))[0], False),
        (lambda x: (made := x + ONE, keep(lambda: made))[0], False),
        (lambda x: (view := (x + ONE).reshape(-1), keep(weakref.ref(view.base)))[0], False),
    ],
)
def test_what_nothing_else_refers_to_is_taken_and_all_else_copied(kernel: Any, is_taken: bool) -> None:
    kept.clear()
    wanted = kernel(X)
    (y,), (taken,) = outputs_of(kernel)
    assert_same([y], [wanted])
    assert taken == is_taken
    then = y.copy()
    for item in kept:
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            item[...] = 7
    assert np.array_equal(y, then)
    kept.clear()
    y += 1  # a result is the caller's own


@pytest.mark.parametrize(
    ("kernel", "are_taken"),
    [
        (lambda x: (x + ONE, x * TWO), [True, True]),
        (lambda x: (x + ONE, x), [True, False]),
        (lambda x: (x, x + ONE), [False, True]),
        (lambda x: (x[:7], x + ONE), [False, True]),
        (lambda x: keep((x + ONE, x * TWO)), [False, False]),
        (lambda x: (made := x + ONE, made)[:2], [False, False]),
        (lambda x: (made := x + ONE, made.reshape(-1))[:2], [False, False]),
        (lambda x: (made := x + ONE, made[1:])[:2], [False, False]),
        (lambda x: (keep(x + ONE), x * TWO), [False, True]),
    ],
)
def test_outputs_are_taken_one_by_one_from_a_tuple_that_nothing_else_refers_to(kernel: Any, are_taken: Any) -> None:
    kept.clear()
    wanted = kernel(X)
    results, taken = outputs_of(kernel, "Two")
    assert_same(results, list(wanted))
    assert taken == are_taken


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint64", "bool"])
def test_element_types_and_ranks(dtype: str) -> None:
    kind = {"float64": "double"}.get(dtype, dtype)
    scalar = np.dtype(dtype).type
    at = []

    def kernel(x: Any) -> Any:
        made = np.repeat(x[None, :, None], 3, 2)
        at[:] = [made.ctypes.data]
        return made

    kernel.__annotations__ = {"x": NDArray[scalar], "return": NDArray[scalar]}
    onnx_op("exchange::Typed")(kernel)
    session = session_of("y = exchange.Typed(x)", f"{kind}[a, b, c] y", f"{kind}[n] x")
    x = (np.arange(70_000) % 3).astype(scalar)
    for _ in range(2):
        (y,) = session.run(None, {"x": x})
    assert_same([y], [np.repeat(x[None, :, None], 3, 2)])
    assert y.ctypes.data == at[0]


def test_results_outlive_sessions_and_kept_memory_goes_to_the_next_call() -> None:
    results = []
    for number in range(10):
        (y,), (taken,) = outputs_of(lambda x, number=number: x + np.float32(number))
        assert taken
        results.append(y)
    gc.collect()
    assert all(np.array_equal(y, X + np.float32(number)) for number, y in enumerate(results))


def test_an_exception_leaves_what_its_traceback_refers_to() -> None:
    errors = []

    def fails(x: F32) -> F32:
        made = x + ONE
        if x[0]:
            raise ValueError("no")
        return made

    current.append(fails)
    session = session_of("y = exchange.One(x)")
    for number in range(20):
        with pytest.raises(ValueError, match="no") as caught:
            session.run(None, {"x": X + np.float32(number + 1)})
        errors.append(caught.value)
        assert_same(session.run(None, {"x": X}), [X + ONE])
    for number, error in enumerate(errors):
        traceback = error.__traceback__
        while traceback.tb_next:
            traceback = traceback.tb_next
        assert np.array_equal(traceback.tb_frame.f_locals["made"], X + np.float32(number + 2))
        with pytest.raises(pyops.errors.OutputError):
            outputs_of(lambda x: (x + ONE).astype(np.float64))


def test_generators_threads_and_event_loops_in_kernels() -> None:
    def numbers(x: F32) -> Iterator[F32]:
        while True:
            made = x + ONE
            yield made
            made *= TWO  # after it was returned
            yield made

    running = numbers(X.copy())
    current.append(lambda x: next(running))
    session = session_of("y = exchange.One(x)")
    results = [session.run(None, {"x": X})[0] for _ in range(6)]
    assert_same(results, [(X + ONE) * factor for factor in (ONE, TWO) * 3])

    async def later(x: F32) -> F32:
        return x + ONE

    with ThreadPoolExecutor(1) as pool:
        for kernel in (lambda x: asyncio.run(later(x)) + ONE, lambda x: pool.submit(np.add, x, TWO).result()):
            assert_same(outputs_of(kernel)[0], [X + TWO])


def test_eight_threads_and_sessions_in_kernels() -> None:
    inner = session_of("y = exchange.Next(x)")
    own = threading.local()

    def kernel(x: F32) -> F32:
        made = x + ONE
        own.__dict__.setdefault("kept", []).append((made, made.copy()))
        return made * inner.run(None, {"x": made})[0]

    current.append(kernel)
    session = session_of("y = exchange.One(x)  z = Neg(y)  w = exchange.Next(z)", "float[m] y, float[m] w")

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for size in random.choice([1000, 20_000, 100_000], 40):
            x = random.standard_normal(size, np.float32)
            wanted = (x + ONE) * (x + ONE + ONE)
            assert_same(session.run(None, {"x": x}), [wanted, -wanted + ONE])
            assert all(np.array_equal(made, copy) for made, copy in own.kept)
            del own.kept[:-3]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


REUSED = """y = exchange.One(x)  r = Reshape(y, shape)  p = Relu(r)  t = Identity(y)  u = exchange.Over(t)
    v = exchange.Over(u)  m = Reshape(v, flat)  k = Neg(m)  q = exchange.Next(k)
    h = Neg(x)  a, b = exchange.OverTwo(h)  c = exchange.Next(a)  d = exchange.Next(b)"""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enable_mem_pattern": False},
        {"enable_mem_reuse": False},
        {"enable_cpu_mem_arena": False},
        {"execution_mode": onnxruntime.ExecutionMode.ORT_PARALLEL, "inter_op_num_threads": 2},
        {"graph_optimization_level": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL},
    ],
    ids=str,
)
def test_outputs_that_others_share_reuse_or_compute_in_place(settings: dict[str, Any]) -> None:
    current.append(lambda x: x + ONE)
    session = session_of(REUSED, "float[a, b] p, float[c] q, float[k] c, float[l] d", **settings)
    shrinking = onnxruntime.RunOptions()
    shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    for number in range(4):
        x = X + np.float32(number % 2)
        wanted = [np.maximum(x + ONE, 0).reshape(2, -1), (x + ONE) * -4 + ONE, -x * TWO + ONE, x + ONE]
        run_options = shrinking if number == 3 and "enable_cpu_mem_arena" not in settings else None
        assert_same(session.run(None, {"x": x}, run_options), wanted)
    done, got = threading.Event(), []
    session.run_async(None, {"x": x}, lambda results, data, error: (got.append(results), done.set()), None)
    assert done.wait(60)
    assert_same(got[0], wanted)


def test_profiled_calls(tmp_path: Any) -> None:
    current.append(lambda x: x + ONE)
    session = session_of("y = exchange.One(x)", enable_profiling=True, profile_file_prefix=str(tmp_path / "profile"))
    for _ in range(3):
        assert_same(session.run(None, {"x": X}), [X + ONE])


def test_memory_that_is_bound_to_outputs() -> None:
    current.append(lambda x: x + ONE)
    session = session_of("y = exchange.One(x)")
    for _ in range(3):
        memory, both = np.zeros_like(X), X.copy()
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(X.shape, np.float32)
        for source, target in ((X, memory), (both, both)):
            binding = session.io_binding()
            binding.bind_input("x", "cpu", 0, np.float32, X.shape, source.ctypes.data)
            binding.bind_output("y", "cpu", 0, np.float32, X.shape, target.ctypes.data)
            session.run_with_iobinding(binding)
            assert np.array_equal(target, X + ONE)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_output("y", value)
        session.run_with_iobinding(binding)
        assert np.array_equal(value.numpy(), X + ONE)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        first = binding.get_outputs()[0]
        session.run_with_iobinding(binding)
        assert_same([first.numpy(), binding.get_outputs()[0].numpy()], [X + ONE] * 2)
        given = onnxruntime.OrtValue.ortvalue_from_numpy(X)
        assert_same([session.run_with_ort_values(None, {"x": given})[0].numpy()], [X + ONE])


def test_branches_and_bodies() -> None:
    branches = session_of(
        """y = If (c) <then_branch = t () => (float[k] a) { b = exchange.Next(x)  a = exchange.Next(b) },
        else_branch = e () => (float[l] d) { d = exchange.Next(x) }>""",
        inputs="float[n] x, bool c",
    )
    looped = session_of(
        """f, all = Loop (trips, yes, x) <body = b (int64 i, bool going, float[n] v)
        => (bool on, float[n] w, float[n] o) { on = Identity(going)  w = exchange.Next(v)  o = exchange.Next(w) }>""",
        "float[n] f, float[t, n] all",
        "int64 trips, bool yes, float[n] x",
    )
    scanned = session_of(
        """f, all = Scan <num_scan_inputs = 1, body = b (float[n] v, float[n] q) => (float[n] w, float[n] p)
        { w = exchange.Next(v)  o = Add(w, q)  p = exchange.Next(o) }> (x, rows)""",
        "float[n] f, float[t, n] all",
        "float[n] x, float[t, n] rows",
    )
    rows = np.stack([X * TWO, X, X + ONE])
    sums = [X + np.float32(turn) + ONE + row + ONE for turn, row in enumerate(rows)]
    for _ in range(3):
        for choice in (True, False):
            assert_same(branches.run(None, {"x": X, "c": np.array(choice)}), [X + ONE + np.float32(choice)])
        feed = {"trips": np.array(4), "yes": np.array(True), "x": X}
        assert_same(looped.run(None, feed), [X + np.float32(4), np.stack([X + np.float32(i + 2) for i in range(4)])])
        last, every = scanned.run(None, {"x": X, "rows": rows})
        assert_same([last], [X + np.float32(3)])
        np.testing.assert_allclose(every, sums)


def test_tracemalloc_forgets_what_was_taken() -> None:
    current.append(lambda x: x + ONE)
    session = session_of("y = exchange.One(x)")
    session.run(None, {"x": X})
    tracemalloc.start()
    try:
        for _ in range(50):
            (y,) = session.run(None, {"x": X})
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 2 * X.nbytes
    assert np.array_equal(y, X + ONE)


KEEPING = """
    from pyops.errors import BorrowedArrayWarning
    from tests.stress.memory import LIBC, M_MMAP_THRESHOLD, resident

    LIBC.mallopt(M_MMAP_THRESHOLD, 64 * 1024)  # so that large memory which is freed cannot be read
    os.environ["PYOPS_KEPT_MEMORY"] = "0"  # freed at once
    warnings.simplefilter("ignore", BorrowedArrayWarning)
    SIZE = 1_000_000

    # ONNX Runtime computes the next node in place where it knows that its shape is the same.
    @onnx_op("hazards::Make")
    def make(x: F32) -> F32:
        return x + np.float32(1)

    make.register_shape_inference(lambda x: x)

    @onnx_op("hazards::Keep")
    def keep(x: F32) -> F32:
        if keeping:
            kept.append(HOW(x))
        if raising:
            raise KeyError
        return x[:1] + np.float32(1)

    kept, keeping, raising = [], [], []
    x = np.ones(SIZE, np.float32)

    def run(*nodes, error=None):
        model = chain(*nodes)
        model.graph.input[0].type.tensor_type.shape.dim.add(dim_param="n")
        session = pyops.InferenceSession(model)
        for _ in range(2):
            session.run(None, {"x": x})
        keeping.append(True)
        raising.extend([True] * bool(error))
        try:
            session.run(None, {"x": x})
        except KeyError:
            error = None
        keeping.clear(), raising.clear()
        assert error is None
        for _ in range(3):
            session.run(None, {"x": x})
        return session
"""


@needs_proc
@pytest.mark.parametrize("how", ["x", "x[7:]", "memoryview(x)", "(x, x[::2])"])
@pytest.mark.parametrize("error", [None, "KeyError"])
def test_an_array_that_a_kernel_keeps_can_be_read_in_memory_that_was_taken(how: str, error: str | None) -> None:
    run_new_script(
        (
            KEEPING.replace("HOW(x)", how),
            f"""
            # In the value itself, in one that was computed in place, in one that shares it, and in none of them.
            for nodes in (["hazards::Make"], ["hazards::Make", "Relu"], ["hazards::Make", "Identity", "Relu"]):
                sessions = [run(*nodes, "hazards::Keep", error={error})]
                first = np.asarray(kept[0][0] if type(kept[0]) is tuple else kept[0])
                assert abs(first[-1]) == abs(first[0])
                sessions.clear()
                gc.collect()
                sum(np.asarray(array).sum() for item in kept for array in (item if type(item) is tuple else (item,)))
                del first
                pyops.last_exception()
                kept.clear()
            print("read")
            """,
        ),
        "read",
    )


@needs_proc
def test_memory_in_which_kept_arrays_lay_is_freed_with_the_last_of_them() -> None:
    run_new_script(
        (
            KEEPING.replace("HOW(x)", "x"),
            """
            used = []
            for turn in range(30):
                run("hazards::Make", "Relu", "hazards::Keep")
                kept.clear()
                keep = onnx_op("hazards::Keep")(keep.kernels["cpu"])
                used.append(resident())
            print(used[-1] - used[5] < 10 * SIZE * 4)
            """,
        ),
        "True",
    )


@needs_proc
def test_more_kept_arrays_than_pins_end_the_exchange_and_no_process() -> None:
    run_new_script(
        (
            KEEPING.replace("HOW(x)", "x"),
            """
            from pyops._machine.direct import exchange

            sessions = []
            for _ in range(exchange.PINS + 3):
                sessions.append(run("hazards::Make", "Relu", "hazards::Keep"))
                keep = onnx_op("hazards::Keep")(keep.kernels["cpu"])
            print(len(kept) > exchange.PINS, int(kept[-1].sum()))
            kept.clear()
            at = []

            @onnx_op("hazards::Last")
            def last(x: F32) -> F32:
                made = x * x
                at[:] = [made.ctypes.data]
                return made

            session = pyops.InferenceSession(chain("hazards::Last"))
            for _ in range(3):
                (y,) = session.run(None, {"x": x})
            print(y.ctypes.data == at[0], int(y.sum()))
            """,
        ),
        "True 2000000\nFalse 1000000",
    )


@needs_fork
def test_forks_beside_running_threads() -> None:
    run_new_script(
        """
        warnings.simplefilter("ignore")

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return x + np.float32(1)

        x = np.ones(100_000, np.float32)
        session = pyops.InferenceSession(chain("hazards::Op"))
        y = session.run(None, {"x": x})[0]
        stop = []

        def busy():
            while not stop:
                session.run(None, {"x": x})

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        codes = set()
        for _ in range(10):
            child = os.fork()
            if not child:
                try:
                    fine = y.sum() == 200_000
                    del y
                    own = pyops.InferenceSession(chain("hazards::Op"))
                    fine &= all(own.run(None, {"x": x})[0].sum() == 200_000 for _ in range(3))
                except BaseException as error:
                    print(repr(error), flush=True)
                    fine = False
                os._exit(not fine)
            codes.add(os.waitpid(child, 0)[1])
        stop.append(True)
        for thread in threads:
            thread.join()
        print(codes)
        """,
        "{0}",
    )


@pytest.mark.parametrize("end", ["", "sys.exit()", "threads()", "del session"])
def test_the_process_ends_with_results_alive(end: str) -> None:
    run_new_script(
        f"""
        import builtins, time

        kept = []

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            kept[:] = [x * x, (x * x)[3:]]
            while threading.current_thread() is not threading.main_thread():
                time.sleep(0.0001)
                kept[:] = [x * x, (x * x)[3:]]
            return x - np.float32(1)

        class Late:
            def __init__(self, *arrays):
                self.arrays = arrays

            def __del__(self):
                self.arrays = None

        def threads():
            for _ in range(3):
                threading.Thread(target=session.run, args=(None, {{"x": x}}), daemon=True).start()
            time.sleep(0.2)

        x = np.ones(100_000, np.float32)
        session = pyops.InferenceSession(chain("hazards::Op"))
        results = [session.run(None, {{"x": x}}) for _ in range(5)]
        sys.late, builtins.late, np.late = Late(results[0], session), kept, [results, kept, session]
        print(results[-1][0].any(), flush=True)
        {end}
        """,
        "False",
    )


INTERRUPTS = """
    import random, time

    @onnx_op("hazards::Op")
    def op(x: F32) -> F32:
        return np.tanh(x) + x

    x = np.arange(100_000, dtype=np.float32)
    wanted = np.tanh(x) + x
    session = pyops.InferenceSession(chain("hazards::Op", "Neg", "hazards::Op"))
    (twice,) = session.run(None, {"x": x})
    sent = caught = 0
    allowed = False

    def handler(number, frame):
        global allowed
        if allowed:
            allowed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, handler)

    def shoot():
        global sent
        chosen = random.Random(3)
        while sent < COUNT:
            time.sleep(chosen.random() * 1e-3)
            sent += 1
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=shoot)
    thread.start()
    while thread.is_alive():
        try:
            allowed = True
            (y,) = session.run(None, {"x": x})
            allowed = False
            assert y.tobytes() == twice.tobytes()
        except KeyboardInterrupt:
            caught += 1
    thread.join()
    from numpy._core.multiarray import get_handler_name
    print(caught > COUNT // 50, get_handler_name())
"""


@needs_signals
@pytest.mark.parametrize("count", [500, exhaustive(10_000)])
def test_interrupts(count: int) -> None:
    run_new_script(INTERRUPTS.replace("COUNT", str(count)), "True default_allocator")


@needs_proc
def test_memory_does_not_grow() -> None:
    run_new_script(
        """
        from tests.stress.memory import resident

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return np.tanh(x) + x

        session = pyops.InferenceSession(chain("hazards::Op"))
        sizes = np.random.default_rng(0).integers(20_000, 200_000, 400)
        used = []
        for _ in range(3):
            for size in sizes:
                session.run(None, {"x": np.ones(size, np.float32)})
            used.append(resident())
        print(used[-1] - used[0] < 2**22)
        """,
        "True",
    )


def test_it_says_why_results_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = exchange.Exchange.problem
    assert problem() == ""
    with monkeypatch.context() as patch:
        patch.setenv("PYOPS_EXCHANGE", "0")
        assert problem() == "PYOPS_EXCHANGE is 0"
        assert outputs_of(lambda x: x + ONE)[1] == [False]
        patch.setenv("PYOPS_EXCHANGE", "no")
        with pytest.raises(EngineError, match=r"PYOPS_EXCHANGE is 'no'; set it to 0 to copy results, or to 1"):
            session_of("y = exchange.Next(x)")
    with monkeypatch.context() as patch:
        patch.setenv("PYOPS_DIRECT_CALLS", "0")
        assert loaded_code.exchange_problem(ort_api()) == "PYOPS_DIRECT_CALLS is 0"
    untested = exchange.Exchange._untested.__wrapped__
    with monkeypatch.context() as patch:
        patch.setattr(onnxruntime, "__version__", "1.99.0")
        patch.setattr(exchange, "HOST", "linux-riscv")
        assert untested() == "not tested with onnxruntime 1.99.0, the system linux-riscv"
    with monkeypatch.context() as patch:
        patch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
        assert untested() == "not tested with an onnxruntime with CUDAExecutionProvider"
    assert onnxruntime.__version__ in EXCHANGE["onnxruntime"]


@pytest.mark.parametrize("word", ["_COUNTER", "_TYPE"])
def test_another_layout_of_values_is_noticed(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = loaded_code._exchange(ort_api())
    assert made._is_known()
    monkeypatch.setattr(exchange, word, 0)
    assert not made._is_known()
