"""Models that disagree with the declared ops: every message, raised before anything runs."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf.message import EncodeError
from numpy.typing import NDArray
from onnx import NodeProto, helper

import pyops
from pyops import onnx_op
from pyops._display.inspection import inspect
from pyops.errors import ModelError
from tests.helpers.models import chain, make_model, opset_imports, value_info

F32 = NDArray[np.float32]
T = TypeVar("T", np.float32, np.float64)


@pytest.fixture(autouse=True)
def ops() -> None:
    @onnx_op("problems::RoundTwice")
    def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
        return np.round(x + x, decimals)

    @onnx_op("problems::Scale")
    def scale(x: F32, y: F32 | None = None, *, factor: float, mode: str = "") -> tuple[F32, F32]:
        return x, x

    @onnx_op("problems::Total")
    def total(x: F32, *rest: F32) -> F32:
        return x

    @onnx_op("problems::Late", version=3)
    def late(x: F32) -> F32:
        return x


def node(name: str, inputs: str = "x", outputs: str = "y", domain: str = "problems", **attributes: Any) -> NodeProto:
    def split(names: str) -> list[str]:
        return ["" if name == "_" else name for name in names.split()]

    return helper.make_node(name, split(inputs), split(outputs), domain=domain, name="the_node", **attributes)


def in_graph(node: NodeProto, dtype: Any) -> onnx.ModelProto:
    outputs = [(name, dtype, None) for name in node.output]
    return make_model([node], [("x", dtype, None)], outputs, {node.domain: 1})


def in_subgraph(node: NodeProto, dtype: Any) -> onnx.ModelProto:
    branch = helper.make_graph([node], "branch", [], [value_info(node.output[0], dtype)])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "other", [], [value_info("o", dtype)])
    choose = helper.make_node("If", ["condition"], ["result"], then_branch=branch, else_branch=other)
    inputs = [("x", dtype, None), ("condition", np.bool_, ())]
    return make_model([choose], inputs, [("result", dtype, None)], {node.domain: 1})


def in_function(node: NodeProto, dtype: Any) -> onnx.ModelProto:
    function = helper.make_function("local", "F", ["x"], [node.output[0]], [node], opset_imports({node.domain: 1}))
    call = helper.make_node("F", ["x"], ["result"], domain="local")
    domains = {"local": 1, node.domain: 1}
    return make_model([call], [("x", dtype, None)], [("result", dtype, None)], domains, functions=[function])


INSIDE = (in_subgraph, in_function)
PROBLEMS: Mapping[str, tuple[NodeProto, list[str]]] = {
    "missing": (
        node("Entirely"),
        ["problems::Entirely is not declared", "import the module that declares it", "(1 node)"],
    ),
    "near-name": (
        node("RoundTwise"),
        ["problems::RoundTwise is not declared; did you mean problems::RoundTwice? (1 node)"],
    ),
    "wrong-domain": (
        node("RoundTwice", domain="other.domain"),
        ["other.domain::RoundTwice is not declared; did you mean problems::RoundTwice?"],
    ),
    "version-too-high": (
        node("Late"),
        [
            "problems::Late is declared from version 3 on; the model imports version 1 of 'problems'",
            "declare the op with version=1",
        ],
    ),
    "unknown-attribute": (
        node("RoundTwice", places=2),
        ["node 'the_node' (problems::RoundTwice): unknown attribute 'places'", "declares: decimals"],
    ),
    "near-attribute": (
        node("RoundTwice", decimal=2),
        ["node 'the_node' (problems::RoundTwice): unknown attribute 'decimal' (did you mean 'decimals'?); problems::"],
    ),
    "missing-attribute": (node("Scale", outputs="y z"), ["the_node", "attribute 'factor' is missing"]),
    "mistyped-attribute": (
        node("RoundTwice", decimals=1.5),
        ["the_node", "attribute 'decimals' is FLOAT in the model; it is declared int"],
    ),
    "list-for-a-number": (node("RoundTwice", decimals=[1, 2]), ["attribute 'decimals' is INTS", "declared int"]),
    "too-many-inputs": (node("RoundTwice", "x x"), ["the_node", "got 2 inputs", "takes 1"]),
    "too-few-inputs": (node("RoundTwice", ""), ["the_node", "got 0 inputs", "takes 1"]),
    "too-many-optional-inputs": (
        node("Scale", "x x x", "y z", factor=1.0),
        ["the_node", "got 3 inputs", "takes 1 to 2"],
    ),
    "too-few-before-a-variadic-input": (node("Total", ""), ["the_node", "0 inputs"]),
    "required-input-absent": (node("Total", "_ x"), ["the_node", "input 'x' is absent"]),
    "too-many-outputs": (node("RoundTwice", outputs="y z"), ["the_node", "it has 2 outputs", "has 1"]),
}


@pytest.mark.parametrize(
    ("problem", "place"),
    [
        *((problem, in_graph) for problem in PROBLEMS),
        *itertools.product(("missing", "version-too-high", "mistyped-attribute", "too-many-inputs"), INSIDE),
    ],
)
def test_a_problem_is_said_when_the_session_is_created(
    problem: str, place: Callable[[NodeProto, Any], onnx.ModelProto]
) -> None:
    wrong, texts = PROBLEMS[problem]
    with pytest.raises(ModelError) as caught:
        pyops.InferenceSession(place(wrong, np.float32))
    for text in texts:
        assert text in str(caught.value)


@pytest.mark.parametrize("place", [in_graph, *INSIDE])
@pytest.mark.parametrize(
    ("name", "given", "declared"),
    [("RoundTwice", np.int8, "float32, float64"), ("Total", np.float64, "float32")],
    ids=["type-parameter", "one-type"],
)
def test_an_input_of_another_element_type_is_an_error_that_says_both(
    name: str, given: Any, declared: str, place: Callable[[NodeProto, Any], onnx.ModelProto]
) -> None:
    with pytest.raises(Exception, match=name) as caught:
        pyops.InferenceSession(place(node(name), given))
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "x" in text
    assert declared in text
    assert np.dtype(given).name in text or "tensor(double)" in text  # which is ONNX Runtime's word


def test_inputs_of_one_type_parameter_that_differ_are_an_error_that_names_both() -> None:
    @onnx_op("problems::Pair")
    def pair(x: NDArray[T], y: NDArray[T]) -> NDArray[T]:
        return x

    inputs = [("a", np.float32, None), ("b", np.float64, None)]
    model = make_model([node("Pair", "a b")], inputs, [("y", np.float32, None)], {"problems": 1})
    with pytest.raises(Exception, match="Pair") as caught:
        pyops.InferenceSession(model)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    for part in ("float32", "float64"):
        assert part in text


def test_all_problems_are_said_at_once_and_equal_ones_counted() -> None:
    nodes = [node("RoundTwise", outputs="a"), node("RoundTwise", outputs="b"), node("RoundTwice", "x x", "c")]
    model = make_model(nodes, [("x", np.float32, None)], [("c", np.float32, None)], {"problems": 1})
    with pytest.raises(ModelError) as caught:
        pyops.InferenceSession(model)
    headline, *lines = str(caught.value).splitlines()
    assert headline == "the model and the declared ops disagree:"
    assert [line.startswith("  - ") for line in lines] == [True, True]
    assert "problems::RoundTwise is not declared; did you mean problems::RoundTwice? (2 nodes)" in str(caught.value)


@pytest.mark.parametrize(("name", "given"), [("decimals", 0.5), ("decimals", [1]), ("places", 1), ("places", ["one"])])
def test_a_session_of_onnxruntime_refuses_an_attribute_of_another_type(name: str, given: Any) -> None:
    @onnx_op("problems::RoundPlaces")
    def round_places(x: F32, *, decimals: int = 0, places: list[int] = [0]) -> F32:  # noqa: B006
        return x

    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    options.log_severity_level = 4
    model = in_graph(node("RoundPlaces", **{name: given}), np.float32)
    with pytest.raises(Exception, match="the model has another type") as caught:
        onnxruntime.InferenceSession(model.SerializeToString(), options)
    declared = {"decimals": "int", "places": "list[int]"}[name]
    assert f"attribute {name!r} is declared {declared};" in str(caught.value)
    assert "in node 'the_node' (problems::RoundPlaces)" in str(caught.value)


@pytest.mark.parametrize(
    "attribute",
    [
        onnx.AttributeProto(name="mode", type=onnx.AttributeProto.STRING, s=b"\xff"),
        onnx.AttributeProto(name="modes", type=onnx.AttributeProto.STRINGS, strings=[b"\xff"]),
        onnx.AttributeProto(name="table", type=onnx.AttributeProto.TENSOR, t=onnx.TensorProto(data_type=1, dims=[3])),
        onnx.AttributeProto(name="table", type=onnx.AttributeProto.TENSOR, t=onnx.TensorProto(data_type=77)),
    ],
    ids=["string", "strings", "too-short", "no-type"],
)
def test_an_attribute_of_bytes_that_mean_nothing_is_said(attribute: onnx.AttributeProto) -> None:
    broken = node("Scale", factor=1.0)
    broken.attribute.append(attribute)
    with pytest.raises(ModelError, match=f"the_node.*attribute '{attribute.name}' cannot be read: "):
        pyops.InferenceSession(in_graph(broken, np.float32))


def test_an_attribute_that_onnxruntime_would_cut_off_is_said() -> None:
    broken = node("Scale", factor=1.0)
    broken.attribute.append(onnx.AttributeProto(name="modes", type=onnx.AttributeProto.STRINGS, strings=[b"a\0b"]))
    with pytest.raises(ModelError, match="attribute 'modes' contains a NUL character"):
        pyops.InferenceSession(in_graph(broken, np.float32))


TEXTS = (b"the_producer", b"a_key", b"a_value", b"an_input", b"a_name", b"a_node", b"an_attribute", b"inner", b"a_size")


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_is_not_utf_8_is_said(text: bytes) -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 10, producer_name: "the_producer", opset_import: ["" : 20, "problems" : 1, "inner": 1]>
    a_name (float[a_size] an_input) => (float[a_size] y) {
        [a_node] y = problems.RoundTwice <an_attribute = 1> (an_input)
    }""")
    model.metadata_props.add(key="a_key", value="a_value")
    data = model.SerializeToString()
    with pytest.raises(ModelError, match=r"the model has the text b'\\x80.*, which is not UTF-8, as all text"):
        inspect(data.replace(text, b"\x80" + text[1:]))


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 25, reason="onnx 1.19 takes the last of two functions")
def test_a_function_that_a_model_has_twice_is_said() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 22, "local" : 1]> g (bfloat16[n, n] x) => (bfloat16[n, n] y) {
        a = MatMul(x, x)  y = local.F(a)
    }
    <domain: "local", opset_import: ["" : 22]> F (u) => (v) { v = Relu(u) }""")
    model.functions.append(model.functions[0])
    with pytest.raises(ModelError, match=r"functions cannot be inlined: .* the same implementation id 'local::F'"):
        inspect(model)


def test_a_model_that_protobuf_cannot_serialize_is_said_with_the_fix() -> None:
    class TooLarge:
        graph = None

        def SerializeToString(self) -> bytes:
            raise EncodeError("Failed to serialize proto")

    with pytest.raises(
        ModelError, match=r"\(Failed to serialize proto\); protobuf's limit is 2 GB: .* and pass the path"
    ):
        pyops.InferenceSession(TooLarge())  # type: ignore[arg-type] # in the place of gigabytes


def test_a_node_without_a_name_is_named_by_its_output() -> None:
    wrong = helper.make_node("RoundTwice", ["x"], ["the_output"], domain="problems", decimals=0.5)
    with pytest.raises(ModelError, match="the node that outputs 'the_output'"):
        pyops.InferenceSession(in_graph(wrong, np.float32))


def test_a_domain_without_any_declared_op_is_explained_with_the_refusal_of_onnxruntime() -> None:
    with pytest.raises(ModelError, match="ONNX Runtime rejects the model") as caught:
        pyops.InferenceSession(in_graph(node("Something", domain="elsewhere"), np.float32))
    assert "elsewhere::Something is not declared; import the module" in str(caught.value)
    assert type(caught.value.__cause__).__module__.startswith("onnxruntime")


@pytest.mark.parametrize("domain", ["ai.onnx", "com.microsoft"])
@pytest.mark.parametrize("unknown", ["{domain}::Geluu", "elsewhere::Gelu"])
def test_an_op_in_place_of_onnxruntimes_own_changes_no_message(domain: str, unknown: str) -> None:
    model = chain(unknown.format(domain=domain))
    with pytest.raises(ModelError, match="ONNX Runtime rejects the model") as before:
        pyops.InferenceSession(model)
    onnx_op(f"{domain}::Gelu", override=True)(_relu)
    with pytest.raises(ModelError) as after:
        pyops.InferenceSession(model)
    assert str(after.value) == str(before.value)


def _relu(x: F32) -> F32:
    return np.maximum(x, 0)


def test_a_model_without_declared_ops_is_left_to_onnxruntime() -> None:
    x = np.ones(2, np.float32)
    model = in_graph(node("Gelu", domain="com.microsoft"), np.float32)
    assert pyops.InferenceSession(model).run(None, {"x": x})[0].shape == (2,)


@pytest.mark.parametrize(("domain", "known"), [("com.microsoft", 1), ("ai.onnx.ml", 5)])
def test_a_version_that_onnxruntime_does_not_know_is_said_before_it_fails(domain: str, known: int) -> None:
    model = in_graph(node("Gelu", domain=domain), np.float32)
    next(entry for entry in model.opset_import if entry.domain == domain).version = known + 4
    message = f"ONNX Runtime supports '{domain}' up to version {known}, not {known + 4}; import version {known} of it"
    with pytest.raises(ModelError, match=message) as caught:
        pyops.InferenceSession(model)
    assert caught.value.__cause__ is None
    assert message in inspect(model).problems


def test_declared_ops_bring_newer_versions_of_onnxruntimes_domains() -> None:
    @onnx_op("com.microsoft::DeclaredHere", version=5)
    def declared(x: F32) -> F32:
        return x * 2

    model = make_model(
        [node("DeclaredHere", domain="com.microsoft")],
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"com.microsoft": 5},
    )
    assert pyops.InferenceSession(model).run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [2, 2]
