"""Sessions that are ONNX Runtime's own: what a kernel raises there, and where it arrives."""

import queue
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from tests.models import chain, make_model
from tests.plain_sessions import run_plain_sessions as run
from tests.plain_sessions import session

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions cannot carry.
pytestmark = pytest.mark.filterwarnings("ignore:left out")

F32 = NDArray[np.float32]
x = np.arange(3, dtype=np.float32)


def test_whatever_a_kernel_does_is_raised_out_of_run_and_the_session_goes_on():
    script = """
kept = []

class Mood:
    result = None

@onnx_op("plain::Moody")
def moody(x: F32) -> F32:
    kept.append(x)
    if isinstance(Mood.result, BaseException):
        raise Mood.result
    if callable(Mood.result):
        return Mood.result(x)
    return Mood.result

session = plain(chain("Neg", "plain::Moody", "Neg", "plain::Moody"))
big = np.arange(5000, dtype=np.float32)
for Mood.result in (
    ValueError("boom"), KeyboardInterrupt("mine"), SystemExit(3), GeneratorExit(), MemoryError(), None, [1.0], 1.5,
    x.astype(np.float16), x.astype(np.float64), x.astype(np.int32), (x, x), lambda x: x[0][0], lambda x: x * 0,
):
    for given in (x, big):
        try:
            (y,) = session.run(None, {"x": given})
            print(y.shape, y.dtype)
        except BaseException as error:
            print(type(error).__name__, error is pyops.last_exception(), "plain::Moody" in error.__notes__[0])
del session
gc.collect()
print(len(kept), kept[0].tolist())
"""
    names = ["ValueError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "MemoryError"]
    failures = [f"{name} True True" for name in [*names, *["OutputError"] * 7, "IndexError"] for _ in range(2)]
    expected = [*failures, "(3,) float32", "(5000,) float32", "30 [-0.0, -1.0, -2.0]"]
    run(script, "\n".join(expected))


def test_an_exception_has_its_note_and_leads_to_the_kernels_line():
    @onnx_op("plain::Fail")
    def fail(x: F32) -> F32:
        raise ZeroDivisionError("here")

    living = session(chain("plain::Fail"))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            living.run(None, {"x": x})
        assert "in a node without a name (plain::Fail), inputs x: float32[3]" in caught.value.__notes__
        assert caught.traceback[-1].name == "fail"
        assert caught.value.__context__ is None


def test_no_node_of_ours_runs_after_one_that_failed():
    calls = []

    @onnx_op("plain::Fail")
    def fail(x: F32) -> F32:
        raise ZeroDivisionError("here")

    @onnx_op("plain::After")
    def after(x: F32) -> F32:
        calls.append(x)
        return x

    with pytest.raises(ZeroDivisionError):
        session(chain("plain::Fail", "Neg", "plain::After")).run(None, {"x": x})
    assert not calls


def test_where_the_next_node_stumbles_over_the_missing_output_the_kernels_exception_counts():
    @onnx_op("plain::Fail")
    def fail(x: F32) -> F32:
        raise ZeroDivisionError("here")

    nodes = [helper.make_node("Fail", ["x"], ["t"], domain="plain"), helper.make_node("MatMul", ["t", "x"], ["y"])]
    model = make_model(nodes, [("x", np.float32, [3])], [("y", np.float32, None)], {"plain": 1})
    with pytest.raises(ZeroDivisionError) as caught:
        session(model).run(None, {"x": x})
    assert caught.value.__context__ is None


def test_no_exception_is_lost_to_the_garbage_collector():
    script = """
class Garbage:
    def __del__(self):
        sum(range(3))

@onnx_op("plain::Fail")
def fail(x: F32) -> F32:
    garbage = Garbage()
    garbage.itself = garbage
    kept.extend([] for _ in range(count % 397))
    kept.clear()
    raise ValueError("no")

gc.set_threshold(300, 10, 10)
kept, raised = [], 0
session = plain(chain("plain::Fail"))
for count in range(3000):
    try:
        session.run(None, {"x": x})
    except ValueError:
        raised += 1
print(raised)
"""
    run(script, "3000")


def test_nothing_is_raised_in_the_blocks_that_clean_up_after_an_interrupt():
    script = """
@onnx_op("plain::Fail")
def fail(x: F32) -> F32:
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    raise ValueError("no")

signal.signal(signal.SIGINT, signal.default_int_handler)
session = plain(chain("plain::Fail", *["Neg"] * 50))
cleaned = []
for _ in range(100):
    try:
        try:
            session.run(None, {"x": x})
        finally:
            cleaned.append(sum(len(str(i)) for i in range(100)))
    except (ValueError, KeyboardInterrupt):
        pass
print(cleaned == [190] * 100)
"""
    run(script, "True")


def test_a_failure_leaves_sessions_inside_kernels_and_around_them_as_they_are():
    @onnx_op("plain::Inner")
    def inner(x: F32) -> F32:
        if x[0] > 0:
            raise LookupError("inner")
        return x - 1

    @onnx_op("plain::Outer")
    def outer(x: F32) -> F32:
        try:
            (y,) = nested.run(None, {"x": x})
        except LookupError:
            (y,) = nested.run(None, {"x": -x})
        return y

    nested, living = session(chain("plain::Inner")), session(chain("plain::Outer", "Neg"))
    ours = pyops.InferenceSession(chain("plain::Outer", "Neg"))
    for given in (x + 1, x + 2):
        for around in (living, ours):
            assert around.run(None, {"x": given})[0].tolist() == (given + 1).tolist()


def test_each_thread_gets_the_exception_of_its_own_run():
    @onnx_op("plain::Odd")
    def odd(x: F32) -> F32:
        if x[0] % 2:
            raise LookupError(int(x[0]))
        return x

    living = session(chain("plain::Odd"))

    def work(number):
        for _ in range(200):
            given = {"x": np.array([number], np.float32)}
            if number % 2:
                with pytest.raises(LookupError, match=rf"^{number}\b"):
                    living.run(None, given)
            else:
                assert living.run(None, given)[0].tolist() == [number]
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_what_a_kernel_raises_for_a_constant_is_raised_as_itself():
    @onnx_op("plain::Fold")
    def fold(x: F32) -> F32:
        raise KeyError("folded")

    nodes = [
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(x)),
        helper.make_node("Fold", ["c"], ["t"], domain="plain"),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    with pytest.raises(KeyError, match="folded") as caught:
        # ONNX Runtime folds constants then, or not.
        session(make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"plain": 1})).run(
            None, {"x": x}
        )
    assert caught.value.__context__ is None


def test_in_the_parallel_execution_mode_exceptions_arrive_as_well():
    script = """
options = onnxruntime.SessionOptions()
options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
options.inter_op_num_threads = 4
nodes = [helper.make_node("Op", ["x"], [f"t{i}"], domain="plain") for i in range(4)]
nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(4)], ["s"]))
nodes.append(helper.make_node("ReduceSum", ["s"], ["y"]))
model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"plain": 1})
session = plain(model, options)
others = plain(chain("plain::Op"))
threading.Thread(target=lambda: [others.run(None, {"x": x}) for _ in range(1000)]).start()
for _ in range(20):
    print(session.run(None, {"x": x})[0].tolist())
    attempt(session.run, None, {"x": x - 1})
"""
    run(script, "[24.0]\nValueError negative\n" * 20)


@pytest.mark.parametrize("engine", ["plain", "extensions"])
def test_run_async_hands_the_exceptions_text_to_the_callback(engine):
    @onnx_op("plain::Negative")
    def negative(x: F32) -> F32:
        if x[0] < 0:
            raise ValueError("is negative")
        return x

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    model = chain("plain::Negative")
    if engine == "plain":
        options.register_custom_ops_library(pyops.get_library_path())
        living = onnxruntime.InferenceSession(model.SerializeToString(), options)
    else:
        living = pyops.InferenceSession(model, options, engine="extensions")
    with pytest.raises(ValueError, match="x"):  # a run that does not start, and leaves nothing of itself
        living.run_async(None, {}, print, None)
    for given, wanted in [(x, None), (x - 1, "ValueError: is negative"), (x, None)]:
        answers = queue.Queue()
        living.run_async(None, {"x": given}, lambda *answer, to=answers: to.put(answer), "mine")
        outputs, data, error = answers.get(timeout=30)
        assert data == "mine"
        assert [y.tolist() for y in outputs] == ([] if wanted else [given.tolist()])
        assert (wanted in error and "plain::Negative" in error) if wanted else error == ""


def test_where_onnxruntimes_own_class_is_gone_around_the_exception_is_printed():
    script = """
session = plain(chain("plain::Op"))
print(session._sess.run(["y"], {"x": x - 1}, None)[0].tolist())
print(type(pyops.last_exception()).__name__)
"""
    assert "ValueError: negative" in run(script, "[]\nValueError")


def test_exceptions_of_functions_declared_with_onnxruntime_extensions_are_raised_too():
    script = """
@theirs.onnx_op(op_type="own::Op")
def own(x):
    raise ValueError("theirs")

attempt(plain(chain("own::Op")).run, None, {"x": x})
"""
    run(script, "ValueError theirs")
