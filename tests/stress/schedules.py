"""A random schedule of threads, sessions, redeclarations, signals and asynchronous exceptions, in one process.

``python tests/stress/schedules.py SEED [ENGINE]`` prints what it did. It exits with 1 if a run gave a wrong number, or
raised something other than what its kernel, the handler of a signal or another thread raised in it, or if it hangs.
What is expected follows from Python alone: a number is the input plus one, and an exception has the number that it
was raised with.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import pyops
from pyops import onnx_op

F32 = NDArray[np.float32]
SEED = int(sys.argv[1]) if __name__ == "__main__" else 0
ENGINE: Any = sys.argv[2] if __name__ == "__main__" and len(sys.argv) > 2 else "native"
SECONDS = 0.5
LONGEST = 60  # until a schedule counts as hanging

choice = random.Random(SEED)
OPTIONS = onnxruntime.SessionOptions()
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1


class KernelError(Exception):
    """Raised by a kernel, with the number that it was given."""


class SpeakingError(KernelError):
    """Runs a session when it is asked for its text."""

    def __str__(self) -> str:
        return str(run("Plain", 1.0))


class SignalError(Exception):
    """Raised by the handler of a signal."""


class ThreadError(Exception):
    """Set in a thread by another one."""


def declare() -> None:
    """Declare all ops, or redeclare them, each as another function that computes the same."""

    @onnx_op("schedule::Plain")
    def plain(x: F32) -> F32:
        return x + np.float32(1)

    @onnx_op("schedule::Shaped")
    def shaped(x: F32, *, out: F32 | None = None) -> F32:
        return np.add(x, np.float32(1), out=out)

    shaped.register_shape_inference(lambda x: x)

    @onnx_op("schedule::Nested")
    def nested(x: F32) -> F32:
        return np.full(x.shape, run("Plain", float(x[0])), np.float32)

    @onnx_op("schedule::Failing")
    def failing(x: F32) -> F32:
        raise (SpeakingError if x[0] % 2 else KernelError)(float(x[0]))


def declare_once() -> None:
    """Declare the ops that are complete only once a second function is registered, or machine code is compiled."""

    @onnx_op("schedule::Stateful")
    def stateful(x: F32, *, state: Any = None) -> F32:
        return x + state

    stateful.register_setup(lambda: np.float32(1))

    @onnx_op("schedule::Loading")
    def loading(x: F32, *, state: Any = None) -> F32:
        return state.run(None, {"x": x})[0]

    loading.register_setup(lambda: create("Plain"))

    @onnx_op("schedule::Waiting")
    def waiting(x: F32, *, state: Any = None) -> F32:
        return state.run(None, {"x": x})[0]

    waiting.register_setup(load_in_another_thread)

    # numba takes an exception that comes while it compiles for a failure of its own.
    if "compiled" in FEATURES:

        @onnx_op("schedule::Compiled", compile=True)
        def compiled(x: F32) -> F32:
            if x[0] < 0:
                raise ValueError("negative")
            return x + np.float32(1)


def load_in_another_thread() -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(create, "Plain").result()


def model(name: str, length: int = 1) -> bytes:
    nodes = "".join(f"v{i + 1} = schedule.{name}(v{i}) " for i in range(length))
    text = f"""<ir_version: 10, opset_import: ["" : 20, "schedule" : 1]>
    g (float[n] v0) => (float[n] y) {{ {nodes} y = Identity(v{length}) }}"""
    return onnx.parser.parse_model(text.replace("v0", "x")).SerializeToString()


def create(name: str) -> pyops.InferenceSession:
    options = OPTIONS if random.random() < 0.7 else None
    return pyops.InferenceSession(MODELS[name], options, engine=ENGINE)


def run(name: str, value: float) -> float:
    size = random.randrange(1, 400)
    (y,) = sessions[name].run(None, {"x": np.full(size, value, np.float32)})
    assert y.tolist() == [y[0]] * size, f"{name} of {size} times {value} is {y}"
    return float(y[0])


def run_rightly(name: str) -> None:
    value = float(random.randrange(1000))
    found = run(name, value)
    assert found == value + 1, f"{name} of {value} is {found}"


def create_and_run() -> None:
    # Python's own threads do not survive an exception in the middle of their start.
    name = random.choice([name for name in GOOD if name != "Waiting" or not FEATURES & {"signals", "async"}])
    sessions[name] = create(name)
    run_rightly(name)


def fail() -> None:
    number = float(random.randrange(1 << 20))
    expect(KernelError, number, lambda: run("Failing", number))


def fail_compiled() -> None:
    expect(ValueError, "negative", lambda: run("Compiled", -1.0))


def expect(kind: type[Exception], argument: object, function: Callable[[], object]) -> None:
    """Call a function that must raise an exception with this argument."""
    try:
        found = function()
    except kind as error:
        if error.args == (argument,):
            return
        found = error.args
    raise AssertionError(f"expected {kind.__name__}({argument}), got {found}")


def act() -> None:
    """Do one thing at random."""
    random.choice(ACTIONS)()


# What raises in a thread is counted where it is raised, and where it arrives.
raised: Counter[str] = Counter()
arrived: Counter[str] = Counter()
done: Counter[str] = Counter()
problems: list[str] = []
stopping = threading.Event()


def attempt(kind: type[BaseException], function: Callable[[], object]) -> None:
    """Call a function in which exceptions of a kind may come at any instant; note any other."""
    try:
        function()
        done["actions"] += 1
    except BaseException as error:
        if is_due_to(error, kind):
            arrived[kind.__name__] += 1
            return
        problems.append("".join(traceback.format_exception(error)))
        stopping.set()


def is_due_to(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Return whether an exception is of a kind, or was raised in its place, as a declaration whose hint fails does."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


def on_unraisable(unraisable: Any) -> None:
    """Count what arrived where Python cannot raise it: in a finalizer of its own, but never in one of pyops."""
    of_python = "_weakrefset", "asyncio.base_events", "threading"
    # Of the callback of a weak reference, Python 3.14 gives no object.
    frame = unraisable.exc_traceback and unraisable.exc_traceback.tb_frame
    name = getattr(unraisable.object, "__module__", None) or (frame and frame.f_globals.get("__name__"))
    arrived_in_python = name in of_python
    error, thread = unraisable.exc_value, threading.current_thread()
    if not arrived_in_python:
        problems.append(f"{unraisable.err_msg} {unraisable.object}: {''.join(traceback.format_exception(error))}")
    elif is_due_to(error, SignalError):
        arrived["SignalError"] += 1
    elif isinstance(thread, Worker):
        thread.received += 1
        thread.is_ready = True


class Worker(threading.Thread):
    """A thread that acts, and receives exceptions from another one."""

    def __init__(self) -> None:
        super().__init__(daemon="exit" not in FEATURES)
        self.received = self.sent = 0
        self.is_ready = False

    def run(self) -> None:
        while not stopping.is_set():
            try:
                self.is_ready = True
                while not stopping.is_set():
                    act()
                    done["in threads"] += 1
            except BaseException as error:
                if is_due_to(error, ThreadError):
                    self.received += 1
                    continue
                problems.append("".join(traceback.format_exception(error)))
                stopping.set()


def send_exceptions(workers: list[Worker]) -> None:
    """Set one exception at a time in each worker; one that has not arrived at last is lost."""
    while not stopping.wait(random.random() * 0.01):
        worker = random.choice(workers)
        if worker.is_ready:
            worker.is_ready = False
            worker.sent += 1
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident or 0), ctypes.py_object(ThreadError))


budget = 0


def on_signal(number: int, frame: object) -> None:
    """Raise, run or create a session, or do nothing, as the schedule says."""
    global budget
    done["handlers"] += 1
    kind = random.choice(HANDLERS)
    if kind == "raise":
        if budget:
            budget -= 1
            raised["SignalError"] += 1
            raise SignalError
    elif len(depth) < 3:  # or a timer that is faster than the handler would nest without end
        depth.append(1)
        try:
            {"run": lambda: run_rightly("Plain"), "fail": fail, "create": create_and_run}[kind]()
        finally:
            depth.pop()


depth: list[int] = []


def act_under_fire() -> None:
    """Act while signals come, of which at most one raises."""
    global budget

    def armed() -> None:
        global budget
        budget = 1
        try:
            act()
        finally:
            budget = 0

    attempt(SignalError, armed)


async def act_in_loop() -> None:
    """Act within an event loop, which must see each of its signals once."""
    calls: list[int] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, calls.append, 1)
    for sent in range(1, 6):
        timer = threading.Timer(random.random() * 0.01, os.kill, (os.getpid(), signal.SIGUSR2))
        timer.start()
        while timer.is_alive():
            attempt(SignalError, act)
        timer.join()
        await asyncio.sleep(0.01)
        if len(calls) != sent:
            problems.append(f"{sent} signals called the event loop's handler {len(calls)} times")
            break
    loop.remove_signal_handler(signal.SIGUSR2)


def fork() -> None:
    """Run a session in a child process."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            run_rightly("Plain")
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        problems.append(f"a forked child ended with {status}")


FEATURES = {
    name
    for name, chance in {
        "threads": 0.7,
        "async": 0.5,
        "signals": 0.7,
        "loop": 0.2,
        "fork": 0.2,
        "exit": 0.2,
        "compiled": 0.15,
    }.items()
    if choice.random() < chance
}
HANDLERS = choice.sample(["raise", "run", "fail", "create"], choice.randint(1, 4))
GOOD = ["Plain", "Shaped", "Stateful", "Nested", "Loading", "Waiting"]
if ENGINE == "extensions":
    GOOD = ["Plain", "Shaped", "Nested"]
ACTIONS: list[Callable[[], object]] = [
    lambda: run_rightly(random.choice(GOOD)),
    lambda: run_rightly("Shaped"),
    create_and_run,
    declare,
    fail,
]
if "compiled" in FEATURES and ENGINE == "native":
    GOOD.append("Compiled")
    ACTIONS.append(fail_compiled)
ACTIONS = choice.choices(ACTIONS, k=choice.randint(1, 8))
MODELS = {name: model(name, choice.randint(1, 3)) if name == "Failing" else model(name) for name in [*GOOD, "Failing"]}
sessions: dict[str, pyops.InferenceSession] = {}


def main() -> None:
    random.seed(SEED)
    warnings.simplefilter("ignore")
    sys.unraisablehook = on_unraisable
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    declare()
    declare_once()
    for name in MODELS:
        sessions[name] = create(name)
    if "Compiled" in GOOD:
        run_rightly("Compiled")
    interval = choice.choice([1e-6, 1e-5, 1e-4, 5e-3])
    sys.setswitchinterval(interval)
    workers = [Worker() for _ in range(choice.randint(1, 6))] if "threads" in FEATURES else []
    for worker in workers:
        worker.start()
    if "async" in FEATURES and workers:
        threading.Thread(target=send_exceptions, args=(workers,), daemon=True).start()
    if "loop" in FEATURES:
        asyncio.run(act_in_loop())
    if "signals" in FEATURES:
        signal.signal(signal.SIGALRM, on_signal)
        period = choice.choice([0.002, 0.005, 0.02])
        signal.setitimer(signal.ITIMER_REAL, period, period)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not stopping.is_set():
        act_under_fire()
    if "fork" in FEATURES and not workers:
        fork()
    signal.setitimer(signal.ITIMER_REAL, 0)
    if "exit" in FEATURES:  # while threads run sessions
        atexit.register(run_rightly, "Plain")
        threading.Timer(0.1, stopping.set).start()
    else:
        finish(workers)
    print(
        f"{sorted(FEATURES)}, handlers {HANDLERS}, {len(workers)} threads, switching after {interval} s: {dict(done)}"
    )
    if raised != arrived:
        problems.append(f"raised: {dict(raised)}, arrived: {dict(arrived)}")
    if problems:
        print(f"{len(problems)} problems, the first:\n{problems[0]}")
    sys.stdout.flush()
    sys.exit(bool(problems))


def finish(workers: list[Worker]) -> None:
    """Stop the threads; each must have received what was sent to it."""
    deadline = time.monotonic() + LONGEST / 4
    for worker in workers:
        while worker.received < worker.sent and time.monotonic() < deadline and not stopping.is_set():
            time.sleep(0.001)
        if worker.received < worker.sent and not stopping.is_set():
            problems.append(f"a thread received {worker.received} of {worker.sent} exceptions")
    stopping.set()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
