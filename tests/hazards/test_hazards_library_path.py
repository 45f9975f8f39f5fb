"""ONNX Runtime's own sessions: what ends the process, and what nearly does."""

import sys

import pytest

from tests.helpers.plain_sessions import run_plain_sessions as run

pytest.importorskip("onnxruntime_extensions")
pytestmark = pytest.mark.exhaustive


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
    "a-bound-output-of-another-shape": """
session = plain(chain("plain::Op"))
binding = session.io_binding()
binding.bind_cpu_input("x", x)
binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(x[:2]))
session.run_with_iobinding(binding)
""",
    "a-failing-kernel-in-a-branch-of-known-shape": """
model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17, "plain": 1]>
    main (float[3] x, bool c) => (float[3] y) {
        y = If (c) <then_branch = yes () => (float[3] a) { a = plain.Op(x) },
                    else_branch = no () => (float[3] b) { b = Neg(x) }>
    }''')
plain(model).run(None, {"x": x - 1, "c": np.array(True)})
""",
    "more-than-the-model-says-where-memory-is-used-again": """
@onnx_op("plain::More")
def more(x: F32) -> F32:
    return np.ones(100000, np.float32)

model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17, "plain": 1]>
    main (float[3] x) => (float[k] y) <float[3] a, float[3] b, float[3] c, float[3] d> {
        a = Sin(x)  b = Cos(a)  c = plain.More(b)  d = Sin(c)  y = plain.Op(d)
    }''')
plain(model).run(None, {"x": x})
""",
    "an-interrupt-where-the-path-was-asked-for-in-another-thread-alone": """
asking = threading.Thread(target=pyops.get_library_path)
asking.start()
asking.join()
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(theirs.get_library_path())
nodes = [helper.make_node("MatMul", ["x", f"t{i}"], [f"t{i + 1}"]) for i in range(15)]  # seconds, in ONNX Runtime alone
nodes = [helper.make_node("Neg", ["x"], ["t0"]), *nodes, helper.make_node("Op", ["t15"], ["y"], domain="plain")]
model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"plain": 1})
session = onnxruntime.InferenceSession(model.SerializeToString(), options)
given = {"x": np.zeros((2000, 2000), np.float32)}
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
session.run(None, given)
""",
    "more-functions-declared-there": """
@theirs.onnx_op(op_type="own::Op0")
def own(x):
    return x + 1

session = plain(chain("own::Op0"))
for i in range(1, 200):
    theirs.onnx_op(op_type=f"own::Op{i}")(lambda x: x)
session.run(None, {"x": x})
""",
}


@pytest.mark.parametrize("script", DEADLY.values(), ids=DEADLY.keys())
def test_what_still_ends_the_process(script):
    with pytest.raises(AssertionError, match=r"exit code -(6|11)\n"):
        run(script + "\nprint('alive')", "")


def test_near_the_recursion_limit_python_3_11_ends_the_process_and_later_ones_raise():
    script = """
session = plain(chain("plain::Op"))

def at_depth(n):
    return at_depth(n - 1) if n else session.run(None, {"x": x})

for depth in range(sys.getrecursionlimit() - 60, sys.getrecursionlimit()):
    try:
        at_depth(depth)
    except RecursionError:
        pass
print("alive")
"""
    if sys.version_info >= (3, 12):
        run(script, "alive")
    else:
        with pytest.raises(AssertionError, match=r"exit code -(6|11)\n"):
            run(script, "alive")


def test_after_the_library_path_is_asked_for_again_our_hook_is_back():
    script = """
session = plain(chain("plain::Op"))
theirs.PyCustomOpDef.install_hooker(theirs._ocos._on_pyop_invocation)
pyops.get_library_path()
attempt(session.run, None, {"x": x})
"""
    run(script, "[[1.0, 2.0, 3.0]]")


def test_options_from_before_an_op_entered_their_own_domain_read_freed_memory():
    script = """
def shipped(x):  # as the one that it has where torch is installed
    return x

shipped.__module__ = "onnxruntime_extensions._cuops"
theirs.onnx_op(op_type="Shipped")(shipped)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(theirs.get_library_path())

@onnx_op("ai.onnx.contrib::Ours")
def ours(x: F32) -> F32:
    return x

pyops.get_library_path()
onnxruntime.InferenceSession(chain("Neg").SerializeToString(), options)
print("alive")
"""
    # It ends the process, or ONNX Runtime refuses what it reads there.
    with pytest.raises(AssertionError, match=r"exit code (-6|-11|1)\n"):
        run(script, "")
