"""ONNX Runtime's own sessions: which ops they see."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import onnx_op
from tests.helpers.models import chain
from tests.helpers.plain_sessions import run_plain_sessions as run
from tests.helpers.plain_sessions import session

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions does not support.
pytestmark = pytest.mark.filterwarnings("ignore:skipped ops")

F32 = NDArray[np.float32]
x = np.arange(3, dtype=np.float32)


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
for i in range(1, 25):
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
try:
    plain(square)
except Exception as error:
    reason = "onnxruntime-extensions does not support its optional input 'y'; the native engine does"
    print(f"grow::Op0: {reason}" in str(error))
attempt(sessions[0].run, None, {"x": x + 1})
declare(0, second=True)
attempt(plain(square).run, None, {"x": x})
"""
    expected = """
        {0.0}
        [[0.0, 1.0, 4.0]]
        [[1.0, 2.0, 3.0]]
        True
        [[1.0, 2.0, 3.0]]
        [[0.0, 1.0, 4.0]]
    """
    run(script, expected)


@pytest.mark.exhaustive
def test_a_domain_without_room_is_an_error_and_its_sessions_live():
    script = """
session = plain(chain("plain::Op"))
try:
    for i in range(200):
        onnx_op(op_type=f"plain::Op{i}")(lambda x: x)
        pyops.get_library_path()
except pyops.errors.EngineError as error:
    print(i > 25, "has no room left for domain 'plain'" in str(error), "pyops.InferenceSession" in str(error))
attempt(session.run, None, {"x": x})
"""
    run(script, "True True True\n[[1.0, 2.0, 3.0]]")


def test_nothing_of_onnxruntime_is_replaced():
    script = """
before = dict(vars(onnxruntime.InferenceSession))
plain(chain("plain::Op")).run(None, {"x": x})
pyops.InferenceSession(chain("plain::Op"), engine="extensions").run(None, {"x": x})
pyops.testing.check(op, x)
print(dict(vars(onnxruntime.InferenceSession)) == before)
"""
    run(script, "True")


def test_a_domain_in_which_others_declare_by_their_own_onnx_op_is_left_out_and_runs_in_a_session_of_ours():
    script = """
theirs.onnx_op(op_type="half::Theirs")(lambda x: x * 2)
theirs.onnx_op(op_type="half::Theirs2")(lambda x: x * 2)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(theirs.get_library_path())
living = onnxruntime.InferenceSession(chain("half::Theirs").SerializeToString(), options)

@onnx_op("half::Ours")
def ours(x: F32) -> F32:
    return x + 1

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pyops.get_library_path()
print(caught[0].message)
attempt(living.run, None, {"x": x})
attempt(onnxruntime.InferenceSession(chain("half::Theirs").SerializeToString(), options).run, None, {"x": x})
attempt(pyops.InferenceSession(chain("half::Theirs", "half::Ours")).run, None, {"x": x})
"""
    expected = """
skipped ops:
  - half::Ours: onnxruntime-extensions does not support its domain 'half', which has functions declared with \
onnxruntime-extensions' own onnx_op (declare those with pyops.onnx_op too); the native engine does
[[0.0, 2.0, 4.0]]
[[0.0, 2.0, 4.0]]
[[1.0, 3.0, 5.0]]
"""
    run(script, expected)


def test_what_is_left_out_is_said_once_with_the_reason():
    script = """
@onnx_op("left::Out")
def out(x: F32, y: F32 | None = None, *, rate: float = 0.5, table: list[int] = [1]) -> F32:
    return x

@onnx_op("left::Add")
def add(x: F32) -> F32:
    return x

@onnx_op("com.microsoft.extensions::Op")
def op(x: F32) -> F32:
    return x

for _ in range(2):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pyops.get_library_path()
    print(*(warning.message for warning in caught), sep="\\n")
print(caught == [])
"""
    expected = """
skipped ops:
  - left::Out: onnxruntime-extensions does not support its optional input 'y', float attribute 'rate', \
ints attribute 'table'; the native engine does
  - left::Add: onnxruntime-extensions does not support its name 'Add', which ONNX Runtime's optimizers take for ONNX's \
operator; the native engine does
  - com.microsoft.extensions::Op: onnxruntime-extensions does not support its domain 'com.microsoft.extensions', which \
belongs to another library; the native engine does

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
