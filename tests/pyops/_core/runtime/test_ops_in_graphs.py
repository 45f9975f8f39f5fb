"""An op in every place of a model where a node can be."""

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper

import pyops
from pyops import onnx_op
from pyops._display.inspection import inspect
from tests.helpers.models import FLOAT, chain, make_model, opset_imports, value_info

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)


@pytest.fixture(autouse=True)
def add() -> None:
    @onnx_op("tests::Plus")
    def add(x: F32, *, amount: float = 1.0) -> F32:
        return x + np.float32(amount)


def add_node(source: str, target: str, amount: float, name: str = "") -> object:
    return helper.make_node("Plus", [source], [target], domain="tests", amount=float(amount), name=name)


def branching_model() -> ModelProto:
    """If x[0] > 0 add 10, else 20; the condition itself is computed from x."""
    branches = {
        f"{which}_branch": helper.make_graph(
            [add_node("x", f"{which}_y", amount, f"add_{which}")], which, [], [value_info(f"{which}_y", np.float32)]
        )
        for which, amount in (("then", 10.0), ("else", 20.0))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["condition"]),
        helper.make_node("If", ["condition"], ["y"], **branches),
    ]
    return make_model(
        nodes,
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"tests": 1},
        {"zero": np.array(0, np.float32)},
    )


def function_model(call_amount: float | None = None) -> ModelProto:
    """``local::Twice`` adds twice; its attribute `amount` is passed on to both."""
    nodes = []
    for source, target in (("a", "b"), ("b", "c")):
        node = helper.make_node("Plus", [source], [target], domain="tests")
        node.attribute.add(name="amount", ref_attr_name="amount", type=1)
        nodes.append(node)
    twice = helper.make_function(
        "local", "Twice", ["a"], ["c"], nodes, opset_imports({"tests": 1}), attributes=["amount"]
    )
    attributes = {} if call_amount is None else {"amount": call_amount}
    call = helper.make_node("Twice", ["x"], ["y"], domain="local", **attributes)
    return make_model(
        [call],
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"tests": 1, "local": 1},
        functions=[twice],
    )


def sessions(model: ModelProto) -> list[onnxruntime.InferenceSession]:
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    return [
        pyops.InferenceSession(model),
        onnxruntime.InferenceSession(model.SerializeToString(), options),
    ]


def test_several_nodes_of_one_op_have_attributes_of_their_own() -> None:
    nodes = [add_node("x", "a", 1), add_node("a", "b", 10), add_node("x", "c", 100), add_node("b", "d", 1000)]
    nodes.append(helper.make_node("Sub", ["d", "c"], ["y"]))
    model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"tests": 1})
    for session in sessions(model):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.full(3, 911, np.float32))


def test_an_op_runs_in_a_subgraph() -> None:
    for session in sessions(branching_model()):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 10)
        np.testing.assert_array_equal(session.run(None, {"x": -X})[0], -X + 20)


def test_an_op_runs_in_a_loop() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["still"]),
            helper.make_node("Plus", ["carried"], ["next"], domain="tests"),
        ],
        "body",
        [
            value_info("i", np.int64, ()),
            value_info("go_on", np.bool_, ()),
            value_info("carried", np.float32),
        ],
        [value_info("still", np.bool_, ()), value_info("next", np.float32)],
    )
    model = make_model(
        [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)],
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"tests": 1},
        {"count": np.array(50)},
    )
    for session in sessions(model):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 50)


def test_an_op_runs_in_a_function_of_the_model_which_passes_attributes_on() -> None:
    for session in sessions(function_model(5.0)):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 10)


def test_an_attribute_that_a_function_s_caller_leaves_out_has_its_default() -> None:
    for session in sessions(function_model()):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 2)


def test_a_declared_op_wins_over_a_function_of_the_model_of_its_name() -> None:
    negate = helper.make_function(
        "tests", "Plus", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opset_imports({})
    )
    model = chain("tests::Plus")
    model.functions.append(negate)
    for session in sessions(model):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)
    (node,) = inspect(model).nodes
    assert (node.domain, node.version, node.problems) == ("tests", 1, ())


def test_a_declared_op_wins_over_its_function_where_another_node_is_filled() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20, "tests": 1]>
        main (double[n, n] d, float[n] x) => (double e, float[n] y) { e = Det(d) y = tests.Plus(x) }
        <domain: "tests", opset_import: ["": 20]>
        Plus (a) => (b) { b = Neg(a) }
    """)
    with pytest.warns(pyops.errors.FilledNodeWarning):
        session = pyops.InferenceSession(model, fill_missing=True)
    np.testing.assert_array_equal(session.run(["y"], {"d": np.eye(2), "x": X})[0], X + 1)


def test_an_op_whose_inputs_are_constants_gives_its_result() -> None:
    model = make_model(
        [add_node("c", "t", 1), helper.make_node("Mul", ["t", "x"], ["y"])],
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"tests": 1},
        {"c": X},
    )
    for session in sessions(model):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], (X + 1) * X)


def test_an_op_without_inputs_runs_at_each_call() -> None:
    numbers = iter(range(100))

    @onnx_op("tests::Count")
    def count() -> NDArray[np.int64]:
        return np.array(next(numbers))

    model = make_model(
        [helper.make_node("Count", [], ["y"], domain="tests")], [], [("y", np.int64, None)], {"tests": 1}
    )
    session = pyops.InferenceSession(model)
    first = session.run(None, {})[0]
    assert session.run(None, {})[0] == first + 1


def test_a_value_that_is_input_twice_arrives_twice() -> None:
    @onnx_op("tests::Both")
    def both(x: F32, y: F32) -> F32:
        return x * 10 + y

    node = helper.make_node("Both", ["x", "x"], ["y"], domain="tests")
    model = make_model([node], [("x", np.float32, None)], [("y", np.float32, None)], {"tests": 1})
    for session in sessions(model):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * 11)


def test_declared_element_types_decide_which_kernel_a_node_gets() -> None:
    assert FLOAT == 1

    @onnx_op("tests::Kind")
    def kind(x: NDArray[np.number]) -> NDArray[np.str_]:
        return np.array([x.dtype.name], object)

    nodes = [
        helper.make_node("Kind", ["x"], ["y0"], domain="tests"),
        helper.make_node("Cast", ["x"], ["half"], to=10),
        helper.make_node("Kind", ["half"], ["y1"], domain="tests"),
        helper.make_node("Cast", ["x"], ["long"], to=7),
        helper.make_node("Kind", ["long"], ["y2"], domain="tests"),
    ]
    model = make_model(nodes, [("x", np.float32, None)], [(f"y{i}", np.object_, None) for i in range(3)], {"tests": 1})
    for session in sessions(model):
        assert [y.item() for y in session.run(None, {"x": X})] == ["float32", "float16", "int64"]
