"""Sessions that are ONNX Runtime's own: which ops they see."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import onnx_op
from tests.models import chain
from tests.plain_sessions import run_plain_sessions as run
from tests.plain_sessions import session

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions cannot carry.
pytestmark = pytest.mark.filterwarnings("ignore:left out")

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

def theirs_alone(path=None):
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(theirs.get_library_path())
    model = chain("half::Theirs0")
    if path:
        onnx.save(model, path)
    return onnxruntime.InferenceSession(path or model.SerializeToString(), options)

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


def test_while_sessions_live_a_domain_of_others_does_not_grow(tmp_path, monkeypatch):
    script = """
ours = pyops.InferenceSession(chain("half::Theirs1"))
session = theirs_alone()
declare(1)
def refuse():
    try:
        pyops.get_library_path()
    except pyops.errors.EngineError as error:
        print("domain 'half' holds functions declared with onnxruntime-extensions' own" in str(error))
refuse()
session = theirs_alone("model.onnx")
refuse()
os.remove("model.onnx")
refuse()
attempt(session.run, None, {"x": x})
attempt(pyops.InferenceSession(chain("half::Theirs1", "half::Ours0")).run, None, {"x": x})
del session
attempt(plain(chain("half::Theirs1", "half::Ours0")).run, None, {"x": x})
attempt(ours.run, None, {"x": x})
"""
    expected = "True\n" * 3 + "[[0.0, 2.0, 4.0]]\n[[1.0, 3.0, 5.0]]\n[[1.0, 3.0, 5.0]]\n[[0.0, 2.0, 4.0]]"
    monkeypatch.chdir(tmp_path)
    run(THEIRS + script, expected)


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
left out:
  - left::Out: onnxruntime-extensions cannot carry its optional input 'y', float attribute 'rate', \
ints attribute 'table'; the native engine can
  - left::Add: onnxruntime-extensions cannot carry its name 'Add', which ONNX Runtime's optimizers take for ONNX's \
operator; the native engine can
  - com.microsoft.extensions::Op: onnxruntime-extensions cannot carry its domain 'com.microsoft.extensions', which is \
another library's; the native engine can

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
