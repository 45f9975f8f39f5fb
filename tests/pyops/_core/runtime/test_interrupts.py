"""Signals at every instant: the process survives, the interrupt is raised, and no result is wrong."""

import signal

import pytest

from tests.helpers.scripts import run_new_script, run_script
from tests.helpers.systems import needs_signals

pytestmark = pytest.mark.usefixtures("engine_of_scripts")

# A handler that raises at most `RAISES` times while it is armed, so that as many nested handlers catch all.
TOOLS = """
        import random

        RAISES = 5
        budget = hits = 0
        random.seed(0)

        def interrupt(number, frame):
            global budget, hits
            if budget:
                budget -= 1
                hits += 1
                raise KeyboardInterrupt

        def under_fire(function, depth=RAISES + 1):
            '''Call a function while signals come in at random; None where it was interrupted.'''
            global budget
            # As many levels as there can be interrupts, and one more: none gets out, wherever it comes.
            try:
                if depth:
                    return under_fire(function, depth - 1)
                budget = RAISES
                return function()
            except KeyboardInterrupt:
                return None
            finally:
                budget = 0

        class Storm(threading.Thread):
            def __init__(self, number, longest):
                super().__init__(daemon=True)
                self.number, self.longest, self.stop = number, longest, threading.Event()
                self.start()

            def run(self):
                while not self.stop.wait(random.random() * self.longest):
                    os.kill(os.getpid(), self.number)

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return x + 1

        def heavy(count):
            from onnx import helper
            nodes = [helper.make_node("MatMul", ["x" if i == 0 else f"t{i}", "w"], [f"t{i + 1}"]) for i in range(count)]
            nodes += [
                helper.make_node("Op", [f"t{count}"], ["u"], domain="hazards"),
                helper.make_node("Op", ["u"], ["y"], domain="hazards"),
            ]
            return make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"hazards": 1},
                              {"w": np.eye(SIZE, dtype=np.float32)})

        SIZE = 256
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
"""


def test_an_interrupt_while_a_long_node_runs_just_before_a_kernel_is_a_keyboard_interrupt() -> None:
    script = """
        import time

        session = pyops.InferenceSession(heavy(20), options)
        big = np.ones((SIZE, SIZE), np.float32)
        begin = time.perf_counter()
        session.run(None, {"x": big})
        duration = time.perf_counter() - begin

        def send(delay):
            threading.Event().wait(delay)
            os.kill(os.getpid(), signal.SIGINT)

        interrupted = 0
        for _ in range(60):
            thread = threading.Thread(target=send, args=(random.random() * duration,))
            try:
                thread.start()
                result = session.run(None, {"x": big})
                assert (result[0] == 3).all()
                thread.join()
                threading.Event().wait(10)
            except KeyboardInterrupt:
                interrupted += 1
            thread.join()
        print(interrupted)
        print((session.run(None, {"x": big})[0] == 3).all())
    """
    run_script((TOOLS, script), "60\nTrue")


@pytest.mark.exhaustive
@pytest.mark.parametrize("nodes", [0, 3], ids=["short", "long"])
@pytest.mark.parametrize("session", ["pyops", "plain"])
def test_a_storm_of_interrupts_leaves_runs_right_or_interrupted(session: str, nodes: int) -> None:
    script = f"""
        model = heavy({nodes}) if {nodes} else chain("hazards::Op", "hazards::Op")
        if {session!r} == "pyops":
            session = pyops.InferenceSession(model, options)
        else:
            pyops.register_custom_ops(options)
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        big = np.ones((SIZE, SIZE), np.float32)

        def work():
            try:
                return session.run(None, {{"x": big}})
            except Exception as error:  # of ONNX Runtime's own session
                if {session!r} == "pyops" or "KeyboardInterrupt" not in str(error):
                    raise
                return None

        work()  # onnxruntime-extensions' first array is beyond help
        signal.signal(signal.SIGINT, interrupt)
        storm = Storm(signal.SIGINT, 0.0005)
        for _ in range(400 if {nodes} else 6000):
            result = under_fire(work)
            assert result is None or (result[0] == 3).all()
        storm.stop.set()
        storm.join()
        print(hits > 10)
        print((session.run(None, {{"x": big}})[0] == 3).all())
    """
    run_script((TOOLS, script), "True\nTrue")


def test_an_interrupt_while_an_exception_is_reported_comes_out_with_the_exception_as_its_context() -> None:
    script = """
        class Failure(Exception):
            def __setattr__(self, name, value):
                if not sent:
                    sent.append(True)
                    os.kill(os.getpid(), signal.SIGINT)
                return "mine"

        sent = []

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            raise Failure

        session = pyops.InferenceSession(chain("hazards::Op"))
        try:
            session.run(None, {"x": x})
        except KeyboardInterrupt as interrupt:
            print(type(interrupt.__context__).__name__)
        print(len(sent))
        try:
            session.run(None, {"x": x})
        except Failure as error:
            print(type(error).__name__)
    """
    run_script(script, "Failure\n1\nFailure")


@pytest.mark.exhaustive
def test_no_interrupt_is_lost_in_a_storm_where_every_kernel_raises() -> None:
    script = """
        RAISES = 1  # in a run; a second one would come out where the first is lost

        class Failure(ValueError):
            def __str__(self):
                return "mine" * len([None for _ in range(3000)])

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            raise Failure

        session = pyops.InferenceSession(chain("hazards::Op"), options)

        def work():
            try:
                session.run(None, {"x": x})
            except ValueError as error:
                return error

        def is_seen(error):
            while error is not None and not isinstance(error, KeyboardInterrupt):
                error = error.__context__
            return error is not None

        work()
        signal.signal(signal.SIGINT, interrupt)
        storm = Storm(signal.SIGINT, 0.0005)
        runs = raised = lost = 0
        while hits < 3000:
            before = hits
            error = under_fire(work)
            runs += 1
            if error is not None:  # the interrupts of this run came within it, or were lost
                raised += 1
                lost += hits > before and not is_seen(error)
        storm.stop.set()
        storm.join()
        print(raised > 100, lost)
    """
    run_script((TOOLS, script), "True 0")


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", ["SIGINT", pytest.param("SIGUSR1", marks=needs_signals)])
@pytest.mark.parametrize("session", ["pyops", "plain"])
def test_a_storm_of_signals_while_sessions_are_created_leaves_them_right_or_interrupted(
    session: str, number: str, engine_of_scripts: str
) -> None:
    # ONNX Runtime asks most about a variadic input, which onnxruntime-extensions does not support.
    rest, more = (", *rest: F32", ", may_inplace={'output': 'x'}") if engine_of_scripts == "native" else ("", "")
    script = f"""
        @onnx_op("hazards::Op"{more})
        def op(x: F32{rest}) -> F32:
            return x + 1

        model = chain(*["hazards::Op"] * 20)

        def work():
            if {session!r} == "pyops":
                return pyops.InferenceSession(model)
            options = pyops.register_custom_ops(onnxruntime.SessionOptions())
            options.log_severity_level = 4
            try:
                return onnxruntime.InferenceSession(model.SerializeToString(), options)
            except Exception as error:
                if "KeyboardInterrupt" not in str(error):
                    raise
                return None

        signal.signal(signal.{number}, interrupt)
        storm = Storm(signal.{number}, 0.001)
        for _ in range(500):
            session = under_fire(work)
            if session is not None:
                assert (session.run(None, {{"x": x}})[0] == x + 20).all()
        storm.stop.set()
        storm.join()
        print(hits > 10)
        print((pyops.InferenceSession(model).run(None, {{"x": x}})[0] == x + 20).all())
    """
    run_script((TOOLS, script), "True\nTrue")


def test_an_interrupt_reaches_a_kernel_that_runs_for_long() -> None:
    script = """
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(10)
            return x

        attempt(pyops.InferenceSession(chain("hazards::Op")).run, None, {"x": x})
    """
    run_script(script, "KeyboardInterrupt")


def test_the_handler_of_the_user_is_in_place_after_a_session_is_created() -> None:
    script = """
        calls = []
        signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
        before = signal.getsignal(signal.SIGINT)

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            os.kill(os.getpid(), signal.SIGINT)
            return x

        session = pyops.InferenceSession(chain("hazards::Op"))
        print(signal.getsignal(signal.SIGINT) is before)
        attempt(session.run, None, {"x": x})
        print(len(calls))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pyops.InferenceSession(chain("hazards::Op"))
        print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
    """
    run_script(script, "True\n[[0.0, 1.0, 2.0]]\n1\nTrue")


@pytest.mark.parametrize(
    ("handler", "printed", "code"),
    [
        ("SIG_IGN", "going on", 0),
        pytest.param("SIG_DFL", "", -signal.SIGINT, marks=needs_signals),
        ("default_int_handler", "KeyboardInterrupt", 0),
    ],
)
def test_an_interrupt_while_a_session_is_created_does_what_the_handler_says(
    handler: str, printed: str, code: int
) -> None:
    script = f"""
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return x

        def disabled():  # which ONNX Runtime asks while it creates the session
            os.kill(os.getpid(), signal.SIGINT)
            yield from ()

        signal.signal(signal.SIGINT, signal.{handler})
        attempt(lambda: pyops.InferenceSession(chain("hazards::Op"), disabled_optimizers=disabled()) and "going on")
    """
    run_new_script(script, printed, code)
