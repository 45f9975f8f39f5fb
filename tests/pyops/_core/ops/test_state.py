"""State of nodes: made by the function of register_setup, once for each node of a session."""

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import pyops
from pyops import onnx_op
from pyops._core.ops.node_state import States
from pyops.errors import DeclarationError, EngineError, InputError
from pyops.testing import CheckError, check, isolated_declarations

WORDS = np.array(["b", "a", "b"])


class Table(dict[str, int]):
    """A state that can be referred to weakly."""


def declare_index(name: str = "state::Index") -> tuple[Any, list[list[str]]]:
    """Declare an op that looks words up, and return it with the attributes of each call of its setup function."""
    made: list[list[str]] = []

    @onnx_op(name)
    def index(word: NDArray[np.str_], *, known: list[str], state: Any = None) -> NDArray[np.int64]:
        return np.array([state[key] for key in word.flat], np.int64).reshape(word.shape)

    @index.register_shape_inference
    def _(word, *, known):
        return word.like(dtype=np.int64)

    @index.register_setup
    def _(*, known):
        made.append(list(known))
        if not known:
            raise LookupError("no words")
        return Table((word, number) for number, word in enumerate(known))

    return index, made


@pytest.fixture(autouse=True)
def own_declarations():
    with isolated_declarations():
        yield


def two_nodes() -> onnx.ModelProto:
    return onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20, "state" : 1]>
    main (string[n] x) => (int64[n] y, int64[n] z) {
        [first] y = state.Index <known = ["a", "b"]> (x)
        [second] z = state.Index <known = ["c", "b", "a"]> (x)
    }""")


def test_a_session_makes_one_state_for_each_node_and_keeps_it():
    _, made = declare_index()
    session = pyops.InferenceSession(two_nodes())
    assert sorted(made) == [["a", "b"], ["c", "b", "a"]]
    for _ in range(3):
        first, second = session.run(None, {"x": WORDS})
    assert (first.tolist(), second.tolist()) == ([1, 0, 1], [1, 2, 1])
    assert len(made) == 2


def test_plain_onnxruntime_sessions_make_it_too():
    import onnxruntime

    _, made = declare_index()
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    session = onnxruntime.InferenceSession(two_nodes().SerializeToString(), options)
    assert session.run(["z"], {"x": WORDS})[0].tolist() == [1, 2, 1]
    assert len(made) == 2


def test_the_reference_engine_makes_one_state_for_each_node():
    _, made = declare_index()
    model = two_nodes()
    evaluator = ReferenceEvaluator(model, new_ops=pyops.reference_ops(model))
    assert len(made) == 2
    for _ in range(2):
        first, second = evaluator.run(None, {"x": WORDS})
    assert (first.tolist(), second.tolist()) == ([1, 0, 1], [1, 2, 1])
    assert len(made) == 2


def test_a_plain_call_makes_one_per_call():
    index, made = declare_index()
    for _ in range(2):
        assert index(WORDS, known=["a", "b"]).tolist() == [1, 0, 1]
    assert made == [["a", "b"]] * 2


def test_a_state_goes_with_its_session():
    index, _ = declare_index()
    states = []
    setup = index.setup
    index.register_setup(lambda *, known: states.append(weakref.ref(state := setup(known=known))) or state)
    session = pyops.InferenceSession(two_nodes())
    assert all(state() is not None for state in states)
    del session
    gc.collect()
    assert all(state() is None for state in states)


def test_redeclaring_makes_new_states_in_new_sessions():
    declare_index()
    old = pyops.InferenceSession(two_nodes())
    index, _ = declare_index()
    index.register_setup(lambda *, known: dict.fromkeys(known, 7))
    assert pyops.InferenceSession(two_nodes()).run(["y"], {"x": WORDS})[0].tolist() == [7, 7, 7]
    assert old.run(["y"], {"x": WORDS})[0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "make",
    [
        pyops.InferenceSession,
        lambda model: ReferenceEvaluator(model, new_ops=pyops.reference_ops(model)),
    ],
    ids=["session", "reference"],
)
def test_an_exception_in_setup_is_raised_as_itself_with_the_node(make):
    declare_index()
    model = two_nodes()
    model.graph.node[1].attribute[0].ClearField("strings")
    with pytest.raises(LookupError, match="no words") as raised:
        make(model)
    assert "'second'" in "".join(raised.value.__notes__)
    assert raised.traceback[-1].name == "_"


def test_check_passes_what_shares_its_state_safely_and_finds_what_does_not():
    index, _ = declare_index()
    result = check(index, WORDS, known=["a", "b"])
    assert result.ok, result
    assert "does not support its state" in str(result)

    @onnx_op("state::Counter")
    def counter(x: NDArray[np.float32], *, state: Any = None) -> NDArray[np.float32]:
        state.append(None)
        return x + np.float32(len(state))

    counter.register_setup(lambda: [])
    with pytest.raises(CheckError, match="repeatable"):
        check(counter, np.ones(2, np.float32))


def test_the_extensions_engine_says_that_it_has_no_state():
    pytest.importorskip("onnxruntime_extensions")
    declare_index()
    with pytest.raises(EngineError, match=r"state::Index.*state.*the native engine does"):
        pyops.InferenceSession(two_nodes(), engine="extensions")


def test_a_model_function_gives_its_attribute_to_the_setup_function():
    _, made = declare_index()
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20, "state" : 1, "local" : 1]>
    main (string[n] x) => (int64[n] y) { y = local.Look <words = ["b", "a"]> (x) }
    <domain: "local", opset_import: ["" : 20, "state" : 1]>
    Look <words> (word) => (number) { number = state.Index <known: strings = @words> (word) }""")
    assert pyops.InferenceSession(model).run(None, {"x": WORDS})[0].tolist() == [0, 1, 0]
    evaluator = ReferenceEvaluator(model.functions[0], new_ops=pyops.reference_ops())
    for _ in range(2):
        assert evaluator.run(None, {"word": WORDS}, {"words": ["b", "a"]})[0].tolist() == [0, 1, 0]
    assert made == [["b", "a"]] * 2


def test_an_op_without_setup_says_what_to_register():
    @onnx_op("state::Unset")
    def unset(x: NDArray[np.float32], *, state: Any = None) -> NDArray[np.float32]:
        return x

    with pytest.raises(DeclarationError, match=r"state::Unset takes `state`.*@unset.register_setup"):
        unset(np.ones(1, np.float32))


def test_tables_of_equal_bytes_and_other_types_have_states_of_their_own():
    @onnx_op("state::Table")
    def table(x: NDArray[np.float32], *, of: np.ndarray, state: Any = None) -> NDArray[np.float32]:
        return x + state

    table.register_setup(lambda *, of: of.astype(np.float32))
    states, numbers = States(), np.array([0x40, 0x48], np.uint8)
    tables = [numbers.view(dtype) for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz)]
    assert [states(table, {"of": of}).tolist() for of in tables] == [[2, 4], [1, 2]]


def test_state_is_no_argument_of_a_call():
    index, _ = declare_index()
    assert index.signature.attribute("state") is None
    assert index(WORDS, known=["a", "b"], state=None).tolist() == [1, 0, 1]
    with pytest.raises(InputError, match=r"state=.*leave it out"):
        index(WORDS, known=["a", "b"], state={})


def stateless(x: NDArray[np.float32], *, by: int = 1) -> NDArray[np.float32]:
    return x


def with_default(x: NDArray[np.float32], *, state: int = 3) -> NDArray[np.float32]:
    return x


def stateful(x: NDArray[np.float32], *, by: int = 1, state: Any = None) -> NDArray[np.float32]:
    return x


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: onnx_op("state::A")(stateless).register_setup(lambda *, by: by), "does not take.*`state=None`"),
        (lambda: onnx_op("state::B")(with_default), "'state'.*cannot default to 3"),
        (
            lambda: onnx_op("state::C")(stateful).register_setup(lambda: 1),
            r"nothing but the attributes.*def _\(\*, by\)",
        ),
        (lambda: onnx_op("state::D")(stateful).register_kernel("cuda")(stateless), "and state=None"),
        (lambda: onnx_op("state::E", compile=True)(stateful), "compiled kernels cannot take `state`"),
        (
            lambda: onnx_op("state::F")(stateful).register_kernel("cpu", compile="try")(stateful),
            "compiled kernels cannot take `state`",
        ),
    ],
)
def test_wrong_declarations_are_refused(declare, message):
    with pytest.raises(DeclarationError, match=message):
        declare()
