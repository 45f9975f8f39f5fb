"""Two models that should compute the same: the first wrong node is named, whatever the mistake."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import pyops
from pyops import onnx_op
from pyops.errors import InputError, ModelError
from pyops.testing import isolated_declarations

BLOCKS = 12
SIZE = 8


def long_model(prefix: str = "") -> onnx.ModelProto:
    """Return a model of more than a hundred nodes: blocks like those of a transformer."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    initializers = []

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{prefix}v{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], name=f"node_{name}", **attributes))
        return name

    def constant(array: Any) -> str:
        name = f"{prefix}c{len(initializers)}"
        initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    x = "x"
    for _ in range(BLOCKS):
        mean = add("ReduceMean", x, constant(np.array([-1])), keepdims=1)
        centred = add("Sub", x, mean)
        squares = add("ReduceMean", add("Mul", centred, centred), constant(np.array([-1])), keepdims=1)
        scale = add("Sqrt", add("Add", squares, constant(np.float32(1e-2))))
        normal = add("Div", centred, scale)
        product = add("MatMul", normal, constant(random.standard_normal((SIZE, SIZE)).astype(np.float32) / SIZE))
        gated = add("Mul", product, add("Sigmoid", product))
        x = add("Add", x, gated)
    nodes.append(helper.make_node("Softmax", [x], ["y"], name="node_y", axis=-1))
    value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", SIZE]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "long", value[:1], value[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def node(model: onnx.ModelProto, op: str, block: int) -> onnx.NodeProto:
    return [item for item in model.graph.node if item.op_type == op][block]


def change_constant(model: onnx.ModelProto, op: str, block: int) -> str:
    changed = node(model, op, block)
    tensor = next(item for item in model.graph.initializer if item.name == changed.input[1])
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 3, tensor.name))
    return changed.name


def swap_operands(model: onnx.ModelProto, op: str, block: int) -> str:
    changed = node(model, op, block)
    changed.input[:] = list(reversed(changed.input))
    return changed.name


def change_operator(model: onnx.ModelProto, op: str, block: int, into: str = "Tanh") -> str:
    changed = node(model, op, block)
    changed.op_type = into
    return changed.name


def remove_node(model: onnx.ModelProto, op: str, block: int) -> str:
    removed = node(model, op, block)
    reader = next(item for item in model.graph.node if removed.output[0] in item.input)
    reader.input[list(reader.input).index(removed.output[0])] = removed.input[0]
    model.graph.node.remove(removed)
    return reader.name


def change_axis(model: onnx.ModelProto, op: str, block: int) -> str:
    changed = node(model, op, block)
    tensor = next(item for item in model.graph.initializer if item.name == changed.input[1])
    tensor.CopyFrom(numpy_helper.from_array(np.array([0]), tensor.name))
    return changed.name


Mistake = Callable[[onnx.ModelProto], str]
MISTAKES: dict[str, Mistake] = {
    **{f"epsilon {i}": lambda model, i=i: change_constant(model, "Add", 2 * i) for i in (0, 5, 11)},
    "weight": lambda model: change_constant(model, "MatMul", 6),
    "swapped difference": lambda model: swap_operands(model, "Sub", 4),
    "swapped quotient": lambda model: swap_operands(model, "Div", 7),
    "another function": lambda model: change_operator(model, "Sigmoid", 3),
    **{f"missing root {i}": lambda model, i=i: remove_node(model, "Sqrt", i) for i in (0, 11)},
    "missing gate": lambda model: remove_node(model, "Sigmoid", 8),
    "axis": lambda model: change_axis(model, "ReduceMean", 18),
}


@pytest.mark.parametrize("renamed", [False, True], ids=["same names", "other names"])
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_the_first_wrong_node_is_named(mistake, renamed):
    right, wrong = long_model(), long_model("other_" if renamed else "")
    assert len(right.graph.node) > 100
    planted = mistake(wrong)
    x = np.random.default_rng(1).standard_normal((5, SIZE)).astype(np.float32)
    found = pyops.compare_models(right, wrong, {"x": x})
    assert not found.ok
    assert found.first is not None
    assert planted in found.first.nodes
    assert len(found.first.nodes) <= (1 if not renamed and "missing" not in planted else 5)
    assert str(found).startswith("the first wrong node is ")
    assert planted in str(found).splitlines()[0]


def test_models_that_compute_the_same_agree():
    found = pyops.compare_models(long_model(), long_model("other_"))
    assert found.ok
    assert found.first is None
    assert str(found).splitlines()[:2] == ["the models agree", "the inputs were generated"]
    assert json.loads(json.dumps(found.to_dict()))["ok"]


def test_a_difference_that_grows_is_told_from_one_that_jumps():
    """Each of these factors is allowed to differ by itself; many of them are not."""

    def model(factor: float) -> onnx.ModelProto:
        nodes = [helper.make_node("Mul", [f"v{i}", "c"], [f"v{i + 1}"], name=f"n{i}") for i in range(200)]
        value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("v0", "v200")]
        constant = numpy_helper.from_array(np.float32(factor), "c")
        graph = helper.make_graph(nodes, "g", value[:1], value[1:], [constant])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    found = pyops.compare_models(model(1), model(1 + 2e-6), {"v0": np.ones(4, np.float32)})
    assert not found.ok
    assert found.first is None
    assert "the difference grows from value to value, as rounding does" in str(found)


def test_custom_ops_run_and_are_named():
    with isolated_declarations():

        @onnx_op("compared::Scale")
        def scale(x: NDArray[np.float32], *, by: float = 1.0) -> NDArray[np.float32]:
            return x * np.float32(by)

        text = """<ir_version: 10, opset_import: ["": 20, "compared": 1]>
        main (float[n] x) => (float[n] y) { a = Abs(x)  b = compared.Scale <by = %s> (a)  y = Exp(b) }"""
        models = [onnx.parser.parse_model(text % factor) for factor in ("2.0", "2.5")]
        found = pyops.compare_models(*models)
        assert found.first is not None
        assert (found.first.op, found.first.value) == ("compared::Scale", "b")
        html = found._repr_html_()
        assert "compared::Scale" in html


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("z = Identity(c)  y = If (z) <then_branch = g () => (float[n] t) { t = Exp(x) }, "
         "else_branch = h () => (float[n] e) { e = Neg(x) }>", "If"),
        ("s = SequenceConstruct(x, x)  y = ConcatFromSequence <axis = 0> (s)", "ConcatFromSequence"),
    ],
    ids=["branches", "sequences"],
)  # fmt: skip
def test_nodes_with_graphs_and_sequences(body, op):
    text = """<ir_version: 10, opset_import: ["": 20]>
    main (float[n] x, bool c) => (float[m] y) { %s }"""
    mistaken = body.replace("Neg", "Abs").replace("(x, x)", "(x, x, x)")
    right, wrong = onnx.parser.parse_model(text % body), onnx.parser.parse_model(text % mistaken)
    feed = {"x": np.array([1, -2], np.float32), "c": np.array(False)}
    found = pyops.compare_models(right, wrong, feed)
    assert found.first is not None
    assert found.first.op == op
    assert pyops.compare_models(right, right, feed).ok


def test_a_sequence_that_is_an_input():
    text = """<ir_version: 10, opset_import: ["": 20]>
    main (seq(float[n]) s) => (float[m] y) { a = ConcatFromSequence <axis = 0> (s)  y = %s(a) }"""
    feed = {"s": [np.ones(2, np.float32), np.full(3, 2, np.float32)]}
    models = [onnx.parser.parse_model(text % body) for body in ("Exp", "Log")]
    models.append(
        onnx.parser.parse_model(
            (text % "Exp")
            .replace("axis = 0> (s)", "axis = 0, new_axis = 0> (t)")
            .replace("{ a", "{ t = SequenceInsert (s, o) a")
            .replace("{ t", "<float[1] o = {5}> { t")
        )
    )
    found = [pyops.compare_models(models[0], model, feed).first for model in models[1:]]
    assert [item and item.op for item in found] == ["Log", "ConcatFromSequence"]


def test_an_output_that_is_a_constant_of_one_model():
    text = '<ir_version: 10, opset_import: ["": 20]> main (float[1] x) => (float[1] y, float[1] z) %s'
    nodes = onnx.parser.parse_model(text % "<float[1] c = {2}> { y = Neg(c)  z = Exp(x) }")
    folded = onnx.parser.parse_model(text % "<float[1] y = {-3}> { z = Exp(x) }")
    assert not pyops.compare_models(nodes, folded).ok
    assert pyops.compare_models(nodes, nodes).ok


def test_a_model_with_external_data(tmp_path):
    right, wrong = long_model(), long_model()
    planted = change_constant(wrong, "MatMul", 3)
    for name, model in (("a", right), ("b", wrong)):
        onnx.save_model(
            model, tmp_path / f"{name}.onnx", save_as_external_data=True, location=f"{name}.data", size_threshold=100
        )
    found = pyops.compare_models(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert found.first is not None
    assert found.first.nodes == (planted,)


def test_other_tolerances_and_other_interfaces():
    text = '<ir_version: 10, opset_import: ["": 20]> main (float[n] x) => (float[n] y) { y = Mul(x, c) }'
    models = []
    for factor in (1.0, 1.01):
        models.append(onnx.parser.parse_model(text.replace("{ y", f"<float c = {{{factor}}}> {{ y")))
    assert not pyops.compare_models(*models).ok
    assert pyops.compare_models(*models, tolerances={"float32": (0.1, 0.1)}).ok
    renamed = onnx.parser.parse_model(text.replace("float[n] x", "float[n] z").replace("Mul(x, c)", "Neg(z)"))
    with pytest.raises(InputError, match="the inputs of the models have different names: x and z"):
        pyops.compare_models(models[0], renamed)
    huge = onnx.parser.parse_model(text.replace("float[n] x", f"float[3, {2**40}] x").replace("Mul(x, c)", "Neg(x)"))
    with pytest.raises(InputError, match=rf"input 'x' is tensor\(float\) of shape \[3, {2**40}\], .*; pass inputs"):
        pyops.compare_models(huge, huge)
    sequence = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> main (seq(float[n]) x) => (int64 y) { y = SequenceLength(x) }'
    )
    with pytest.raises(InputError, match=r"input 'x' is seq\(tensor\(float\)\), for which no value is generated"):
        pyops.compare_models(sequence, sequence)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([np.nan, np.nan], "no number was compared of output 'y' (NaN everywhere)"),
        ([], "'y' (empty)"),
        ([np.nan, 1], None),
    ],
    ids=["NaN", "empty", "NaN and a number"],
)
def test_it_says_where_nothing_could_differ(x, words):
    text = '<ir_version: 10, opset_import: ["": 20]> main (float[n] x) => (float[n] y) { y = %s(x) }'
    models = [onnx.parser.parse_model(text % op) for op in ("Tanh", "Tanh" if len(x) and words is None else "Exp")]
    found = pyops.compare_models(*models, {"x": np.array(x, np.float32)})
    assert found.ok
    assert str(found).startswith("the models agree\n")
    assert (words in str(found)) if words else not found.note


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"inputs": [np.ones(3)]}, r"inputs is list; expected arrays by the names .* inputs=\{"),
        ({"inputs": np.ones(3)}, r"inputs is float64\[3\]; expected arrays by the names"),
        ({"inputs": {"x": [1.0, 2.0]}}, r"input 'x' is list; pass an array, for example np\.asarray"),
        ({"tolerances": 1e-3}, "tolerances is 0.001; expected .* such as tolerances="),
        ({"tolerances": {"float32": 1e-3}}, r"tolerances\['float32'\] is 0.001; expected \(rtol, atol\)"),
        ({"tolerances": {"float32": (1e-3, "1e-5")}}, "the atol of .* is '1e-5'; expected a number of at least 0"),
        ({"tolerances": {"float": (1, 1)}}, "'float', which is none of the dtypes float16, float32"),
        ({"libraries": "custom.so"}, r"libraries is a list of paths: pass libraries=\['custom.so'\]"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(InputError, match=words):
        pyops.compare_models(long_model(), long_model(), **arguments)


def test_a_model_in_ort_format_is_refused(tmp_path):
    (tmp_path / "model.ort").write_bytes(b"0000ORTM")
    with pytest.raises(ModelError, match="in ORT format cannot be compared; pass the model that it was made from"):
        pyops.compare_models(tmp_path / "model.ort", tmp_path / "model.ort")
