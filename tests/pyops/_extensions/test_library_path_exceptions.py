"""ONNX Runtime's own sessions: exceptions of kernels, which these sessions cannot raise."""

import logging

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from tests.helpers.models import chain, make_model
from tests.helpers.plain_sessions import run_plain_sessions as run
from tests.helpers.plain_sessions import session

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions does not support.
pytestmark = pytest.mark.filterwarnings("ignore:skipped ops")

F32 = NDArray[np.float32]
x = np.arange(3, dtype=np.float32)


def test_whatever_a_kernel_does_the_outputs_have_no_elements_and_the_session_goes_on():
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

session = plain(chain("Neg", "plain::Moody", "Neg"))
big = np.arange(5000, dtype=np.float32)
for Mood.result in (
    ValueError("boom"), KeyboardInterrupt("mine"), SystemExit(3), GeneratorExit(), MemoryError(), None, [1.0], 1.5,
    x.astype(np.float16), x.astype(np.float64), x.astype(np.int32), (x, x), lambda x: x[0][0], lambda x: x * 0,
):
    for given in (x, big):
        (y,) = session.run(None, {"x": given})
        print(y.shape, "-" if y.size else type(pyops.last_exception()).__name__)
del session
gc.collect()
print(len(kept), kept[0].tolist())
"""
    names = ["ValueError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "MemoryError"]
    failures = [f"(0,) {name}" for name in [*names, *["OutputError"] * 7, "IndexError"] for _ in range(2)]
    told = run(script, "\n".join([*failures, "(3,) -", "(5000,) -", "28 [-0.0, -1.0, -2.0]"]))
    assert told.count("an op failed in a session that cannot raise its exception") == 26
    for name in (*names, "OutputError", "IndexError"):
        assert f"{name}" in told


def test_the_log_has_the_exception_with_its_note_and_the_kernels_line(caplog):
    @onnx_op("plain::Fail")
    def fail(x: F32) -> F32:
        raise ZeroDivisionError("here")

    living = session(chain("plain::Fail"))
    for _ in range(2):
        caplog.clear()
        assert living.run(None, {"x": x})[0].tolist() == []
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("pyops", logging.ERROR)
        assert record.exc_info[1] is pyops.last_exception()
        assert 'raise ZeroDivisionError("here")' in caplog.text
        assert "in a node without a name (plain::Fail), inputs x: float32[3]" in caplog.text


def test_where_the_next_node_stumbles_over_the_missing_elements_onnxruntime_raises(caplog):
    @onnx_op("plain::Fail")
    def fail(x: F32) -> F32:
        raise ZeroDivisionError("here")

    nodes = [helper.make_node("Fail", ["x"], ["t"], domain="plain"), helper.make_node("MatMul", ["t", "x"], ["y"])]
    model = make_model(nodes, [("x", np.float32, [3])], [("y", np.float32, None)], {"plain": 1})
    with pytest.raises(Exception, match="MatMul"):
        session(model).run(None, {"x": x})
    assert "ZeroDivisionError" in caplog.text


def test_a_session_of_ours_does_not_raise_what_one_inside_its_kernel_only_logs(caplog):
    @onnx_op("plain::Inner")
    def inner(x: F32) -> F32:
        raise LookupError("inner")

    @onnx_op("plain::Outer")
    def outer(x: F32) -> F32:
        assert nested.run(None, {"x": x})[0].size == 0
        return x + 1

    nested = session(chain("plain::Inner"))
    for engine in ("native", "extensions"):
        around = pyops.InferenceSession(chain("plain::Outer", "Neg"), engine=engine)
        assert around.run(None, {"x": x})[0].tolist() == [-1, -2, -3]
    assert caplog.text.count("LookupError: inner") == 2


def test_what_a_kernel_raises_for_a_constant_is_logged_too(caplog):
    @onnx_op("plain::Fold")
    def fold(x: F32) -> F32:
        raise KeyError("folded")

    nodes = [
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(x)),
        helper.make_node("Fold", ["c"], ["t"], domain="plain"),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"plain": 1})
    with pytest.raises(Exception, match="Add"):  # of shapes 3 and 0
        session(model).run(None, {"x": x})
    assert "KeyError: 'folded'" in caplog.text


def test_failures_in_threads_of_onnxruntime_are_survived():
    script = """
options = onnxruntime.SessionOptions()
options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
options.inter_op_num_threads = 4
nodes = [helper.make_node("Op", ["x"], [f"t{i}"], domain="plain") for i in range(4)]
nodes.append(helper.make_node("Concat", [f"t{i}" for i in range(4)], ["y"], axis=0))
model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"plain": 1})
session = plain(model, options)
others = pyops.InferenceSession(chain("plain::Op"), engine="extensions")
threading.Thread(target=lambda: [others.run(None, {"x": x}) for _ in range(1000)]).start()
for _ in range(20):
    print(session.run(None, {"x": x})[0].size, session.run(None, {"x": x - 1})[0].size)
"""
    assert "ValueError: negative" in run(script, "12 0\n" * 20)


def test_an_interrupt_at_any_instant_is_survived():
    script = """
@onnx_op("plain::Fail")
def fail(x: F32) -> F32:
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    raise ValueError("no")

signal.signal(signal.SIGINT, signal.default_int_handler)
session = plain(chain("plain::Fail", *["Neg"] * 50))
for _ in range(100):
    try:
        session.run(None, {"x": x})
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        pass
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(type(pyops.last_exception()).__name__ in ("ValueError", "KeyboardInterrupt"))
"""
    run(script, "True")


def test_exceptions_of_functions_declared_with_onnxruntime_extensions_are_logged_too():
    script = """
@theirs.onnx_op(op_type="own::Op")
def own(x):
    raise ValueError("theirs")

attempt(plain(chain("own::Op")).run, None, {"x": x})
"""
    assert "ValueError: theirs" in run(script, "[[]]")
