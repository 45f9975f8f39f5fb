"""Sessions that are ONNX Runtime's own: what ends the process, and what nearly does."""

import pytest

from tests.plain_sessions import run_plain_sessions as run

pytest.importorskip("onnxruntime_extensions")


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
