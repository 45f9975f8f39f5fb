"""Code that comes in between at any instant: handlers of signals, exceptions set by other threads, nested sessions."""

import pytest

from tests.helpers.scripts import run_new_script, run_script
from tests.helpers.systems import needs_proc, needs_signals
from tests.helpers.tiers import exhaustive

both_engines = pytest.mark.usefixtures("engine_of_scripts")

PYTHON_CALLS = """
        os.environ["PYOPS_DIRECT_CALLS"] = "0"  # as without llvmlite
"""
CALLED = pytest.mark.parametrize(
    "called", ["", exhaustive(PYTHON_CALLS, id="from Python")], ids=lambda called: "directly" if called == "" else None
)
OPS = """
        import time

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1

        @onnx_op("hazards::Good")
        def good(x: F32) -> F32:
            return x + 1

        @onnx_op("hazards::Bad")
        def bad(x: F32) -> F32:
            raise ValueError("no")

        def create(name="Good"):
            return pyops.InferenceSession(chain(f"hazards::{name}"), options)

        def run(session):
            assert session.run(None, {"x": x})[0].tolist() == [1, 2, 3]

        def during(signals, function, handler, period=0.003):
            '''Call a function again and again until a timer's signals have called the handler so often.'''
            handled = 0

            def handle(number, frame):
                nonlocal handled
                handled += 1
                handler()

            signal.signal(signal.SIGALRM, handle)
            while handled < signals:
                signal.setitimer(signal.ITIMER_REAL, period * random.random() + 1e-5)
                function()
            signal.setitimer(signal.ITIMER_REAL, 0)

        import random
        random.seed(0)
        run(create())  # so that nothing is left to be imported
"""


@needs_signals
@both_engines
@CALLED
def test_a_handler_runs_a_session_during_runs_that_fail(called: str) -> None:
    script = """
        failing, session = create("Bad"), create()

        def fail():
            try:
                failing.run(None, {"x": x})
            except ValueError as error:
                assert error.args == ("no",)
            else:
                raise AssertionError

        during(1000, fail, lambda: run(session), 0.0005)
        print("right")
    """
    run_script((called, OPS, script), "right")


@needs_signals
@both_engines
@CALLED
def test_a_handler_creates_a_session_during_a_creation(called: str) -> None:
    script = """
        during(100, lambda: run(create()), lambda: run(create()))
        print("right")
    """
    run_script((called, OPS, script), "right")


@needs_signals
@CALLED
def test_what_a_handler_raises_during_a_creation_is_raised(called: str) -> None:
    script = """
        raised = arrived = 0

        def refuse():
            global raised
            if ready:
                raised += 1
                raise TimeoutError

        def attempt():
            global arrived, ready
            try:
                ready = True
                create()
                ready = False
            except TimeoutError:
                ready = False
                arrived += 1

        ready = False
        during(200, attempt, refuse)
        print(raised > 0, raised - arrived)
    """
    run_script((called, OPS, script), "True 0")


@needs_signals
def test_a_plain_session_survives_what_a_handler_raises_during_its_creation() -> None:
    script = """
        data = chain("hazards::Good").SerializeToString()

        def refuse():
            if ready:
                raise TimeoutError

        def attempt():
            global ready
            try:
                ready = True
                try:
                    run(onnxruntime.InferenceSession(data, options))
                    ready = False
                finally:
                    ready = False
            except Exception as error:
                ready = False
                assert "TimeoutError" in repr(error), error

        ready = False
        pyops.register_custom_ops(options)
        during(200, attempt, refuse)
        print("right")
    """
    run_script((OPS, script), "right")


@pytest.mark.exhaustive
def test_an_exception_that_another_thread_sets_during_a_creation_is_raised() -> None:
    script = """
        import ctypes

        counts = dict(sent=0, received=0)
        stop = False

        def work():
            while not stop:
                try:
                    counts["ready"] = True
                    while not stop:
                        run(create())
                except TimeoutError:
                    counts["received"] += 1

        thread = threading.Thread(target=work)
        thread.start()
        while counts["sent"] < 300:
            time.sleep(random.random() * 0.005)
            if counts.pop("ready", False):
                counts["sent"] += 1
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(TimeoutError))
        while counts["received"] < 300:
            time.sleep(0.01)
        stop = True
        thread.join()
        print("right")
    """
    run_script((OPS, script), "right")


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_an_exception_that_another_thread_sets_during_runs_that_fail_is_raised(engine: str) -> None:
    script = f"""
        sys.modules["torch"] = None
        import ctypes, time

        @onnx_op("hazards::Bad")
        def bad(x: F32) -> F32:
            raise KeyError("no")

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = pyops.InferenceSession(chain("hazards::Bad", "Identity"), options, engine="{engine}")
        ready = threading.Event()
        received = 0

        def fail():
            try:
                session.run(None, {{"x": x}})
            except KeyError:
                pass

        def work():
            global received
            while received < 100:
                try:
                    ready.set()
                    while True:
                        fail()
                except TimeoutError:
                    received += 1

        fail()  # so that nothing is left to be imported
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        sent = 0
        while sent < 100 and ready.wait(10):
            ready.clear()
            time.sleep(0.001)
            sent += 1
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(TimeoutError))
        thread.join(10)
        print(sent, received)
        sys.stdout.flush()
        os._exit(0)
    """
    run_new_script(script, "100 100")


@both_engines
@CALLED
def test_an_exception_whose_text_runs_a_session_is_raised(called: str) -> None:
    script = """
        session = create()

        class TooLarge(Exception):
            def __str__(self):
                return f"more than {session.run(None, {'x': x})[0].max()}"

        @onnx_op("hazards::Check")
        def check(x: F32) -> F32:
            raise TooLarge

        for _ in range(3):
            attempt(create("Check").run, None, {"x": x})
    """
    run_script((called, OPS, script), "TooLarge more than 3.0\n" * 3)


@needs_signals
@both_engines
def test_an_event_loop_sees_a_signal_once() -> None:
    script = """
        import asyncio

        failing = create("Bad")

        def fail():
            try:
                failing.run(None, {"x": x})
            except ValueError:
                pass

        async def count(function, signals):
            calls = []
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, calls.append, 1)
            for _ in range(signals):
                timer = threading.Timer(random.uniform(0.001, 0.01), os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                while timer.is_alive():
                    function()
                timer.join()
                await asyncio.sleep(0.005)
            return len(calls)

        print(asyncio.run(count(create, 20)), asyncio.run(count(fail, 20)))
    """
    run_script((OPS, script), "20 20")


@needs_signals
def test_handlers_deferred_are_all_called_though_one_raises_and_user_changes_stay() -> None:
    script = """
        from pyops._core.runtime.callback_guard import signals_deferred

        seen = []

        def refuse(number, frame):
            seen.append(number)
            raise TimeoutError

        signal.signal(signal.SIGUSR1, refuse)
        signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
        try:
            with signals_deferred():
                os.kill(os.getpid(), signal.SIGUSR1)
                os.kill(os.getpid(), signal.SIGUSR2)
                print(seen)
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
        except TimeoutError:
            print(sorted(seen) == [signal.SIGUSR1, signal.SIGUSR2])
        print(signal.getsignal(signal.SIGUSR1) is refuse, signal.getsignal(signal.SIGALRM) == signal.SIG_IGN)
    """
    run_script((OPS, script), "[]\nTrue\nTrue True")


@both_engines
def test_every_run_of_many_threads_that_fail_at_once_raises_its_own_exception() -> None:
    script = """
        barrier = threading.Barrier(200)
        others = []

        @onnx_op("hazards::Refuse")
        def refuse(x: F32) -> F32:
            barrier.wait(60)
            raise KeyError(int(x[0]))

        session = create("Refuse")

        def work(number):
            try:
                session.run(None, {"x": np.full(3, number, np.float32)})
            except KeyError as error:
                if error.args == (number,) and pyops.last_exception() is error:
                    return
            except BaseException as error:
                others.append(error)
            others.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(others)
    """
    run_script((OPS, script), "[]")


def test_a_plain_session_leaves_no_exception_behind() -> None:
    script = """
        class Tracked(Exception):
            alive = 0
            def __init__(self):
                Tracked.alive += 1
            def __del__(self):
                Tracked.alive -= 1

        @onnx_op("hazards::Tracked")
        def tracked(x: F32) -> F32:
            raise Tracked

        own = pyops.register_custom_ops(onnxruntime.SessionOptions())
        own.log_severity_level = 4
        session = onnxruntime.InferenceSession(chain("hazards::Tracked").SerializeToString(), own)
        for _ in range(300):
            try:
                session.run(None, {"x": x})
            except Exception as error:
                assert "Tracked" in str(error) and "pyops exception" not in str(error)
        gc.collect()
        print(Tracked.alive)  # the last one

        done = threading.Semaphore(0)
        texts = []

        def called_back(results, data, text):
            texts.append(text)
            done.release()

        own = onnxruntime.SessionOptions()
        own.log_severity_level, own.intra_op_num_threads = 4, 2
        session = pyops.InferenceSession(chain("hazards::Tracked"), own)
        for _ in range(20):
            session.run_async(None, {"x": x}, called_back, None)
            done.acquire()
        gc.collect()
        print(Tracked.alive, all("in tracked" in text for text in texts))  # and the last one in other threads
    """
    run_script((OPS, script), "1\n2 True")


def test_a_setup_function_may_wait_for_a_thread_that_uses_its_options() -> None:
    script = """
        from concurrent.futures import ThreadPoolExecutor
        from typing import Any

        @onnx_op("hazards::Outer")
        def outer(x: F32, *, state: Any = None) -> F32:
            return state.run(None, {"x": x})[0]

        @outer.register_setup
        def _():
            with ThreadPoolExecutor() as pool:
                return pool.submit(create).result()

        run(create("Outer"))
        print(outer(x).tolist())
    """
    run_script((OPS, script), "[1.0, 2.0, 3.0]")


def test_a_setup_function_may_create_a_plain_session() -> None:
    script = """
        from typing import Any

        own = pyops.register_custom_ops(onnxruntime.SessionOptions())
        own.log_severity_level = 4

        @onnx_op("hazards::Outer")
        def outer(x: F32, *, state: Any = None) -> F32:
            try:
                state[1].run(None, {"x": x})
            except Exception as error:
                assert "ValueError: no" in str(error), error
            return state[0].run(None, {"x": x})[0]

        @outer.register_setup
        def _():
            return [onnxruntime.InferenceSession(chain(f"hazards::{name}").SerializeToString(), own)
                    for name in ("Good", "Bad")]

        run(create("Outer"))
        print("right")
    """
    run_script((OPS, script), "right")


def test_a_session_whose_setup_creates_it_again_is_a_recursion_error() -> None:
    script = """
        from typing import Any

        @onnx_op("hazards::Endless")
        def endless(x: F32, *, state: Any = None) -> F32:
            return x

        endless.register_setup(lambda: create("Endless"))
        attempt(create, "Endless")
        run(create())
    """
    expected = (
        "RecursionError 20 sessions are being created within each other: a setup function or a kernel creates a "
        "session of a model with its own op"
    )
    run_script((OPS, script), expected)


@needs_proc
def test_threads_that_run_a_session_leave_no_memory() -> None:
    script = """
        session = create("Bad")

        def fail():
            try:
                session.run(None, {"x": x})
            except ValueError:
                pass

        def threads(count):
            for _ in range(count):
                thread = threading.Thread(target=fail)
                thread.start()
                thread.join()
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        threads(500)
        before = threads(500)
        print((threads(3000) - before) // 3000 < 1500)  # the values prepared for one thread took 3,000 bytes
    """
    run_script((OPS, script), "True")


@pytest.mark.exhaustive
def test_the_shape_table_of_a_new_session_is_right_in_every_thread() -> None:
    script = """
        from concurrent.futures import ThreadPoolExecutor

        good.register_shape_inference(lambda x: x)
        sys.setswitchinterval(1e-6)

        def work(session, sizes):
            return [session.run(None, {"x": np.ones(n, np.float32)})[0].tolist() == [2] * n for n in sizes]

        end = time.monotonic() + 10
        with ThreadPoolExecutor(4) as pool:
            while time.monotonic() < end:
                session = create()
                assert all(map(all, pool.map(work, [session] * 4, [range(4 * i, 4 * i + 12) for i in range(4)])))
        print("right")
    """
    run_new_script((OPS, script), "right")


@pytest.mark.exhaustive
def test_a_compiled_kernel_reads_its_shapes_while_thousands_of_others_come() -> None:
    script = """
        @onnx_op("hazards::Slow", compile=True)
        def slow(x: F32, y: F32) -> F32:
            total = 0.0
            for i in range(np.int64(x[0]) * 1000):
                total += np.sin(total + i)
            return x + np.float32(total * 0)

        seen = []

        @slow.register_shape_inference
        def _(x, y):
            if y.shape == (1, 1, 1):
                seen.append(y)
            return x

        model = onnx.parser.parse_model('''
        <ir_version: 10, opset_import: ["" : 20, "hazards" : 1]>
        g (float[n] x, float[a, b, c] y) => (float[n] z) { z = hazards.Slow(x, y) }''')
        session = pyops.InferenceSession(model, options)
        seen.clear()

        def call(iterations, shape):
            began = time.perf_counter()
            feed = {"x": np.full(2, iterations, np.float32), "y": np.zeros(shape, np.float32)}
            session.run(None, feed)
            return time.perf_counter() - began

        call(0, (1, 1, 1))
        shortest = min(call(0, (2, 2, i)) for i in range(1, 50))
        count = int(5000 * 5 * shortest * 1000 / call(1000, (1, 1, 1)))
        thread = threading.Thread(target=call, args=(count, (1, 1, 1)))
        thread.start()
        number = 0
        while thread.is_alive():
            number += 1
            call(0, (2 + number % 9, 2 + number // 9 % 99, 2 + number // 891))
        # With another look at its shape, the kernel would run twice.
        print(number > 4200, len(seen))
    """
    run_new_script((OPS, script), "True 1")


@pytest.mark.parametrize("compiled_first", [False, True], ids=["plain first", "compiled first"])
def test_a_call_while_another_thread_registers_a_kernel_of_the_other_kind(compiled_first: bool) -> None:
    script = f"""
        def declare(name, compiled):
            @onnx_op(name, compile=compiled)
            def reverse(x: F32) -> F32:
                return x[::-1]

            reverse.register_shape_inference(lambda x: x)
            return reverse

        op = declare("hazards::Op", {compiled_first})
        other = declare("hazards::Other", not {compiled_first})
        session = pyops.InferenceSession(chain("hazards::Op"), options)
        sizes = [4, 4, 5, 5, 4]
        results = [session.run(None, {{"x": np.arange(n, dtype=np.float32)}})[0].tolist() for n in sizes[:2]]
        op.kernels.update(other.kernels)  # as in register_kernel, which counts the revision after that
        results += [session.run(None, {{"x": np.arange(n, dtype=np.float32)}})[0].tolist() for n in sizes[2:]]
        print([list(map(int, reversed(result))) == list(range(n)) for result, n in zip(results, sizes)])
    """
    run_new_script((OPS, script), "[True, True, True, True, True]")


def test_a_handler_that_calls_often_just_before_a_call_has_returned():
    script = """
        session = create()
        session.run(None, {"x": x})
        entered = []

        def profile(frame, event, argument):
            # Where a signal's handler may be called too: the call is over, and has not returned to C.
            if event == "c_return" and argument.__name__ == "appendleft" and not entered:
                entered.extend(session.run(None, {"x": x})[0].tolist() for _ in range(40))

        sys.setprofile(profile)
        result = session.run(None, {"x": x})[0].tolist()
        sys.setprofile(None)
        print(result, len(entered), session.run(None, {"x": x})[0].tolist())
        print(set(map(tuple, entered)))
    """
    expected = "[1.0, 2.0, 3.0] 40 [1.0, 2.0, 3.0]\n{(1.0, 2.0, 3.0)}"
    run_new_script((PYTHON_CALLS, OPS, script), expected)


def test_an_interrupt_while_an_exception_is_described_is_what_another_session_reports() -> None:
    script = """
        class Failure(Exception):
            def __str__(self):
                if not sent:
                    sent.append(True)
                    os.kill(os.getpid(), signal.SIGINT)
                return "mine"

        sent = []

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            raise Failure

        options = pyops.register_custom_ops(onnxruntime.SessionOptions())
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(chain("hazards::Op").SerializeToString(), options)
        try:
            session.run(None, {"x": x})
        except Exception as error:
            print(*[word in str(error) for word in ("KeyboardInterrupt", "Failure: mine", "pyops exception")])
        print(repr(pyops.last_exception()))
    """
    run_script(script, "True True False\nKeyboardInterrupt()")


@needs_signals
def test_an_exception_of_a_handler_while_hints_are_evaluated_is_raised() -> None:
    script = """
        def interrupt(number, frame):
            raise RuntimeError("mine")

        def signalling(hint):
            os.kill(os.getpid(), signal.SIGUSR1)
            return hint

        def declare():
            @onnx_op("hazards::Op")
            def op(x: signalling(F32)) -> F32:
                return x

        signal.signal(signal.SIGUSR1, interrupt)
        attempt(declare)
    """
    run_script(script, "RuntimeError mine")


@needs_signals
@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_a_handler_runs_a_session_where_the_first_array_leaves_onnxruntime(engine: str) -> None:
    script = f"""
        sys.modules["torch"] = None
        import builtins

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            if len(x) == 1:
                raise ValueError("no")
            return x + 1

        session = pyops.InferenceSession(chain("hazards::Op"), engine="{engine}")
        attempt(lambda: session.run(None, {{"x": x[:1]}}))
        results = []
        signal.signal(signal.SIGALRM, lambda *_: results.extend(session.run(None, {{"x": x}})))
        imported = builtins.__import__

        def interrupted(name, *others, **keywords):
            if name.startswith("numpy"):
                signal.raise_signal(signal.SIGALRM)
            return imported(name, *others, **keywords)

        builtins.__import__ = interrupted
        results.extend(session.run(None, {{"x": x}}))
        print({{tuple(result.tolist()) for result in results}})
    """
    run_new_script(script, "ValueError no\n{(1.0, 2.0, 3.0)}")
