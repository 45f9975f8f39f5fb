"""Sessions that are ONNX Runtime's own, with the library at `pyops.get_library_path`: what lives, and what does not."""

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
from tests.scripts import PREAMBLE, run_plain_script

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions cannot carry.
pytestmark = pytest.mark.filterwarnings("ignore:left out")

F32 = NDArray[np.float32]
x = np.arange(3, dtype=np.float32)

SETUP = """
sys.modules["torch"] = None  # which onnxruntime-extensions imports if it is there, and that takes long
import onnxruntime_extensions as theirs
from onnx import helper

def plain(model, options=None):
    options = options or onnxruntime.SessionOptions()
    options.register_custom_ops_library(pyops.get_library_path())
    return onnxruntime.InferenceSession(model.SerializeToString(), options)

@onnx_op("plain::Op")
def op(x: F32) -> F32:
    if x[0] < 0:
        raise ValueError("negative")
    return x + 1

@onnx_op("plain::Text")
def text(x: Str) -> Str:
    return x
"""


def run(script: str, expected: str, code: int = 0) -> str:
    return run_plain_script(PREAMBLE + SETUP + script, expected, code)


def session(model):
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(pyops.get_library_path())
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


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


def test_ops_declared_while_sessions_live_and_redeclared_ones():
    script = """
def declare(i, second=False):
    if second:
        @onnx_op(f"grow::Op{i}")
        def op(x: F32, y: F32) -> F32:
            return x * y
    else:
        @onnx_op(f"grow::Op{i}")
        def op(x: F32) -> F32:
            return x + np.float32(i)

declare(0)
sessions = [plain(chain("grow::Op0"))]
for i in range(1, 40):
    declare(i)
    sessions.append(plain(chain(f"grow::Op{i}", "grow::Op0")))
print({float(session.run(None, {"x": x - i})[0][0]) for i, session in enumerate(sessions)})
declare(0, second=True)
node = helper.make_node("Op0", ["x", "x"], ["y"], domain="grow")
square = make_model([node], [("x", np.float32, None)], [("y", np.float32, None)], {"grow": 1})
attempt(plain(square).run, None, {"x": x})
attempt(sessions[0].run, None, {"x": x + 1})
@onnx_op("grow::Op0")
def op(x: F32, y: F32 | None = None) -> F32:
    return x
warnings.simplefilter("ignore")
attempt(plain(square).run, None, {"x": x})
attempt(sessions[0].run, None, {"x": x + 1})
"""
    expected = """
        {0.0}
        [[0.0, 1.0, 4.0]]
        [[1.0, 2.0, 3.0]]
        EngineError grow::Op0: onnxruntime-extensions cannot carry its optional input 'y'; the native engine can
        [[1.0, 2.0, 3.0]]
    """
    run(script, expected)


def test_a_domain_without_room_is_an_error_and_its_sessions_live():
    script = """
session = plain(chain("plain::Op"))
try:
    for i in range(200):
        onnx_op(op_type=f"plain::Op{i}")(lambda x: x)
        pyops.get_library_path()
except pyops.errors.EngineError as error:
    print(i > 50, "has no room left for domain 'plain'" in str(error), "pyops.InferenceSession" in str(error))
attempt(session.run, None, {"x": x})
"""
    run(script, "True True True\n[[1.0, 2.0, 3.0]]")


THEIRS = """
for i in range(4):
    theirs.onnx_op(op_type=f"half::Theirs{i}")(lambda x: x * 2)

def theirs_alone():
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(theirs.get_library_path())
    return onnxruntime.InferenceSession(chain("half::Theirs0").SerializeToString(), options)

def declare(count):
    for i in range(count):
        @onnx_op(f"half::Ours{i}")
        def ours(x: F32) -> F32:
            return x + 1
"""


def test_a_domain_that_was_moved_over_by_half_runs():
    script = """
session = theirs_alone()
attempt(session.run, None, {"x": x})
del session
unrelated = onnxruntime.InferenceSession(chain("Neg").SerializeToString())
declare(10)
attempt(plain(chain("half::Theirs3", "half::Ours9")).run, None, {"x": x})
living = plain(chain("half::Theirs0"))
declare(40)
attempt(plain(chain("half::Ours39")).run, None, {"x": x})
attempt(living.run, None, {"x": x})
"""
    expected = "[[0.0, 2.0, 4.0]]\n[[1.0, 3.0, 5.0]]\n[[1.0, 2.0, 3.0]]\n[[0.0, 2.0, 4.0]]"
    run(THEIRS + script, expected)


def test_while_sessions_live_a_domain_of_others_does_not_grow():
    script = """
ours = pyops.InferenceSession(chain("half::Theirs1"))
session = theirs_alone()
declare(1)
try:
    pyops.get_library_path()
except pyops.errors.EngineError as error:
    print("domain 'half' holds functions declared with onnxruntime-extensions' own" in str(error))
block = [bytearray(100) for _ in range(100000)]
attempt(session.run, None, {"x": x})
attempt(pyops.InferenceSession(chain("half::Theirs1", "half::Ours0")).run, None, {"x": x})
del session
attempt(plain(chain("half::Theirs1", "half::Ours0")).run, None, {"x": x})
attempt(ours.run, None, {"x": x})
"""
    expected = "True\n[[0.0, 2.0, 4.0]]\n[[1.0, 3.0, 5.0]]\n[[1.0, 3.0, 5.0]]\n[[0.0, 2.0, 4.0]]"
    run(THEIRS + script, expected)


def test_what_is_left_out_is_said_once_with_the_reason():
    script = """
@onnx_op("left::Out")
def out(x: F32, y: F32 | None = None, *, rate: float = 0.5, table: list[int] = [1]) -> F32:
    return x

@onnx_op("left::Add")
def add(x: F32) -> F32:
    return x

for _ in range(2):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pyops.get_library_path()
    print(*(warning.message for warning in caught), sep="\\n")
print(caught == [])
"""
    expected = """
left out:
  - left::Out: onnxruntime-extensions cannot carry its optional input 'y', float attribute 'rate', \
ints attribute 'table'; the native engine can
  - left::Add: onnxruntime-extensions cannot carry its name 'Add', which ONNX Runtime's optimizers take for ONNX's \
operator; the native engine can

True
"""
    run(script, expected)


def test_every_attribute_must_be_on_the_node():
    @onnx_op("plain::Shift")
    def shift(x: F32, *, by: int = 1, label: str = "é") -> F32:
        assert label == "ü"
        return x + np.float32(by)

    model = chain("plain::Shift")
    with pytest.raises(Exception, match="Unable to find attribute 'by'"):
        session(model)
    model.graph.node[0].attribute.add(name="by", type=2, i=-4)
    model.graph.node[0].attribute.add(name="label", type=3, s="ü".encode())
    assert session(model).run(None, {"x": x})[0].tolist() == [-4, -3, -2]


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
    for given, wanted in [(x, None), (x - 1, "ValueError: is negative")]:
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


def test_strings_are_cut_off_at_a_nul_character_before_the_kernel_sees_them():
    script = """
session = plain(chain("plain::Text", dtype=np.object_))
attempt(session.run, None, {"x": np.array(["a\\0b"], object)})
"""
    run(script, "[['a']]")


# What still ends the process, as docs/engines.md lists it: one for each line.
DEADLY = {
    "a-string-that-is-not-utf-8": """
plain(chain("plain::Text", dtype=np.object_)).run(None, {"x": np.array([b"\\xff"])})
""",
    "a-string-attribute-that-is-not-utf-8": """
@onnx_op("plain::Label")
def label(x: F32, *, s: str) -> F32:
    return x

model = chain("plain::Label")
model.graph.node[0].attribute.add(name="s", type=3, s=b"\\xff")
plain(model).run(None, {"x": x})
""",
    "another-hook": """
session = plain(chain("plain::Op"))
theirs.PyCustomOpDef.install_hooker(theirs._ocos._on_pyop_invocation)
session.run(None, {"x": x})
""",
    "float16-declared-there": """
@theirs.onnx_op(op_type="own::Half", inputs=[theirs.PyCustomOpDef.dt_float16])
def half(x):
    return x

node = helper.make_node("Half", ["x"], ["y"], domain="own")
model = make_model([node], [("x", np.float16, None)], [("y", np.float32, None)], {"own": 1})
plain(model).run(None, {"x": x.astype(np.float16)})
""",
    "options-from-before-their-domain-was-published-to": """
for i in range(4):
    theirs.onnx_op(op_type=f"own::Op{i}")(lambda x: x)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(theirs.get_library_path())

@onnx_op("own::Ours")
def ours(x: F32) -> F32:
    return x

pyops.get_library_path()
block = [bytearray(300) for _ in range(100000)]
session = onnxruntime.InferenceSession(chain("own::Op0").SerializeToString(), options)
session.run(None, {"x": x})
""",
    "more-functions-declared-there": """
@theirs.onnx_op(op_type="own::Op0")
def own(x):
    return x + 1

session = plain(chain("own::Op0"))
for i in range(1, 200):
    theirs.onnx_op(op_type=f"own::Op{i}")(lambda x: x)
block = [bytearray(100) for _ in range(100000)]
session.run(None, {"x": x})
""",
}


@pytest.mark.parametrize("script", DEADLY.values(), ids=DEADLY.keys())
def test_what_still_ends_the_process(script):
    with pytest.raises(AssertionError, match=r"exit code -(6|11)\n"):
        run(script + "\nprint('alive')", "")


def test_after_the_library_path_is_asked_for_again_our_hook_is_back():
    script = """
session = plain(chain("plain::Op"))
theirs.PyCustomOpDef.install_hooker(theirs._ocos._on_pyop_invocation)
pyops.get_library_path()
attempt(session.run, None, {"x": x})
"""
    run(script, "[[1.0, 2.0, 3.0]]")


def test_near_the_recursion_limit_the_process_lives():
    script = """
session = plain(chain("plain::Op"))

def at_depth(n):
    return at_depth(n - 1) if n else session.run(None, {"x": x})

outcomes = set()
for depth in range(sys.getrecursionlimit() - 60, sys.getrecursionlimit()):
    try:
        outcomes.add(at_depth(depth)[0].tolist() == [1, 2, 3])
    except RecursionError:
        outcomes.add(RecursionError)
print(outcomes == {True, RecursionError})
"""
    run(script, "True")
