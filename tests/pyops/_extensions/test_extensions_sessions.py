"""Sessions with the extensions engine: what their kernels raise, and what they share through their library."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from pyops.errors import EngineError
from tests.helpers.models import chain, make_model
from tests.helpers.scripts import PREAMBLE, WITHOUT_TORCH, run_plain_script, run_script

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions does not support.
pytestmark = pytest.mark.filterwarnings("ignore:skipped ops")

F32, I64, Str = NDArray[np.float32], NDArray[np.int64], NDArray[np.str_]
x = np.arange(3, dtype=np.float32)


def session(model, options=None):
    return pyops.InferenceSession(model, options, engine="extensions")


def one_node(name, outputs):
    node = helper.make_node(name, ["x"], outputs, domain="ext")
    return make_model([node], [("x", np.float32, None)], [("y", np.float32, None)], {"ext": 1})


def test_what_a_kernel_raises_while_the_session_is_created_is_raised_as_itself():
    @onnx_op("ext::Fold")
    def fold(x: F32) -> F32:
        raise KeyError("folded")

    nodes = [
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(x)),
        helper.make_node("Fold", ["c"], ["t"], domain="ext"),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"ext": 1})
    with pytest.raises(KeyError, match="folded") as caught:
        session(model).run(None, {"x": x})
    assert caught.value is pyops.last_exception()
    assert caught.value.__context__ is None


def test_a_run_stops_where_a_kernel_fails_and_the_exception_has_the_node_and_no_context():
    calls = []

    @onnx_op("ext::Fail")
    def fail(x: F32) -> F32:
        raise ZeroDivisionError("here")

    @onnx_op("ext::After")
    def after(x: F32) -> F32:
        calls.append(x)
        return x

    model = chain("ext::Fail", "Neg", "ext::After")
    for run_options in (None, onnxruntime.RunOptions()):
        with pytest.raises(ZeroDivisionError, match="here") as caught:
            session(model).run(None, {"x": x}, run_options)
        assert caught.value.__notes__ == ["in node 'node0' (ext::Fail), inputs x: float32[3]"]
        assert caught.value.__context__ is None
        assert caught.traceback[-1].name == "fail"
    assert not calls


def test_where_the_next_node_stumbles_over_the_missing_output_the_kernels_exception_counts():
    @onnx_op("ext::Fail")
    def fail(x: F32) -> F32:
        raise ZeroDivisionError("here")

    nodes = [helper.make_node("Fail", ["x"], ["t"], domain="ext"), helper.make_node("MatMul", ["t", "x"], ["y"])]
    model = make_model(nodes, [("x", np.float32, [3])], [("y", np.float32, None)], {"ext": 1})
    with pytest.raises(ZeroDivisionError) as caught:
        session(model).run(None, {"x": x}, onnxruntime.RunOptions())
    assert caught.value.__context__ is None


def test_what_would_run_kernels_in_threads_of_onnxruntime_is_refused():
    @onnx_op("ext::Same")
    def same(x: F32) -> F32:
        return x

    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    with pytest.raises(EngineError, match="set execution_mode to ORT_SEQUENTIAL, or use engine='native'"):
        session(chain("ext::Same"), options)
    with pytest.raises(EngineError, match="has no run_async; call run in a thread of your own"):
        session(chain("ext::Same")).run_async(None, {"x": x}, print, None)


def test_each_thread_gets_the_exception_of_its_own_run():
    @onnx_op("ext::Odd")
    def odd(x: F32) -> F32:
        if x[0] % 2:
            raise LookupError(int(x[0]))
        return x

    living = session(chain("ext::Odd"))

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


def test_session_options_serve_several_sessions():
    @onnx_op("ext::One")
    def one(x: F32) -> F32:
        return x + 1

    @onnx_op("ext::Two")
    def two(x: F32) -> tuple[F32, F32]:
        return x + 2, x

    options = onnxruntime.SessionOptions()
    for _ in range(2):
        assert session(chain("ext::One"), options).run(None, {"x": x})[0].tolist() == [1, 2, 3]
        assert session(one_node("Two", ["y", "z"]), options).run(None, {"x": x})[0].tolist() == [2, 3, 4]

    @onnx_op("ext::Later")
    def later(x: F32) -> tuple[F32, F32, F32, I64, F32]:
        return x, x, x, x.astype(np.int64), x

    model = one_node("Later", ["y", "a", "b", "c", "d"])
    with pytest.raises(EngineError, match="pass new SessionOptions"):
        session(model, options)
    session(model)


def test_options_that_hold_the_library_from_before_are_an_error_that_says_so():
    # A library that has no place for the op yet, whichever ops other tests have declared.
    import onnxruntime_extensions

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())

    @onnx_op("ext::Rare")
    def rare(x: F32, i: I64, s: Str) -> tuple[I64, Str, F32]:
        return i, s, x

    node = helper.make_node("Rare", ["x", "i", "s"], ["a", "b", "y"], domain="ext")
    inputs = [("x", np.float32, None), ("i", np.int64, None), ("s", np.object_, None)]
    with pytest.raises(EngineError, match=r"register pyops\.get_library_path"):
        session(make_model([node], inputs, [("y", np.float32, None)], {"ext": 1}), options)


def test_of_a_model_that_onnxruntime_refuses_its_own_error_comes_where_options_hold_the_library_already():
    @onnx_op("ext::Same")
    def same(x: F32) -> F32:
        return x

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(pyops.get_library_path())
    model = chain("ext::Same", "Neg")
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    with pytest.raises(Exception, match=r"(?s)Type Error.*tensor\(int64\)"):
        session(model, options)


def test_models_in_ort_format_are_refused():
    with pytest.raises(EngineError, match="use engine='native'"):
        session(b"\0\0\0\0ORTM" + bytes(20))


def test_functions_declared_with_onnxruntime_extensions_run_by_it_too():
    script = """
sys.modules["torch"] = None
import onnxruntime_extensions as theirs

@theirs.onnx_op(op_type="adopted::Op", attrs={"k": theirs.PyCustomOpDef.dt_float})
def op(x, k):
    if x[0] < 0:
        raise ValueError("negative")
    return x + np.float32(k)

@onnx_op("adopted::Ours")
def ours(x: F32) -> F32:
    return x * 10

model = chain("adopted::Op", "adopted::Ours")
model.graph.node[0].attribute.append(onnx.helper.make_attribute("k", 0.123456789))
for with_library in (False, True):
    options = onnxruntime.SessionOptions()
    if with_library:
        pyops.get_library_path()
        options.register_custom_ops_library(theirs.get_library_path())
    session = pyops.InferenceSession(model, options, engine="extensions")
    print(session.run(None, {"x": x})[0].tolist() == (10 * (x + np.float32(0.123456789))).tolist())
    attempt(session.run, None, {"x": x - 1})
"""
    run_plain_script(PREAMBLE + script, "True\nValueError negative\n" * 2)


@pytest.mark.stress
def test_thousands_of_redeclarations_leave_the_registry_small():
    from pyops._extensions import operator_registry as extensions_registry

    def declare(with_attribute):
        if with_attribute:

            @onnx_op("ext::Changing")
            def changing(x: F32, *, k: int = 1) -> F32:
                return x + np.float32(k)
        else:

            @onnx_op("ext::Changing")
            def changing(x: F32) -> F32:
                return x

    declare(False)
    session(chain("ext::Changing"))
    before = extensions_registry.sizes.total()
    for number in range(300):
        declare(number % 2)
        y = session(chain("ext::Changing")).run(None, {"x": x})[0]
        assert y.tolist() == (x + number % 2).tolist()
    assert extensions_registry.sizes.total() == before


def test_warnings_are_not_raised_by_what_works():
    @onnx_op("ext::Quiet")
    def quiet(x: F32) -> F32:
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(chain("ext::Quiet")).run(None, {"x": x})


BRANCH = """y = If (c) <then_branch = yes () => (float[3] a) { a = ext.Op(x) },
                        else_branch = no () => (float[3] b) { b = Neg(x) }>"""
REUSED = "a = Sin(x)  b = Cos(a)  d = ext.Op(b)  e = Sin(d)  y = ext.Op(e)"
# Where ONNX Runtime has memory ready for the output of a kernel.
READY = {
    "bound": ("y = ext.Op(x)", "", True),
    "bound-and-used": ("y = ext.Op(x)  z = Neg(y)", "", True),
    "branch": (BRANCH, "", False),
    "used-again": (REUSED, "<float[3] a, float[3] b, float[3] d, float[3] e>", False),
    "function": ("y = local.Call(x)", "", True),
}


@pytest.mark.parametrize(("body", "values", "bound"), READY.values(), ids=READY.keys())
def test_an_output_of_another_shape_than_onnxruntime_has_memory_for_is_an_error(body, values, bound):
    script = f'''
Mood = ["raise"]

@onnx_op("ext::Op")
def op(x: F32) -> F32:
    if Mood[0] == "raise":
        raise ValueError("no")
    return np.ones(Mood[0], np.float32)

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "ext": 1, "local": 1]>
    main (float[3] x, bool c) => (float[3] y) {values} {{ {body} }}
    <domain: "local", opset_import: ["ext": 1]> Call (x) => (y) {{ y = ext.Op(x) }}""")
session = pyops.InferenceSession(model, engine="extensions")

def run():
    if not {bound}:
        return session.run(None, {{"x": x, "c": np.array(True)}})
    output = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    binding = session.io_binding()
    for name, value in [("x", x), ("c", np.array(True))]:
        binding.bind_cpu_input(name, value)
    binding.bind_ortvalue_output("y", output)
    session.run_with_iobinding(binding)
    return [output.numpy()]

attempt(run)
Mood[0] = 100000
try:
    run()
except Exception as error:
    print("shape" in str(error).lower())
Mood[0] = 3
attempt(run)
'''
    run_script((WITHOUT_TORCH, script), "ValueError no\nTrue\n[[1.0, 1.0, 1.0]]")
