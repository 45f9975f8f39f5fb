"""`pyops.replace` on models written by hand; the decompositions are of torch, and of onnxscript."""

import json
import sys
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import opset20

import pyops
from pyops import onnx_op
from pyops.errors import InputError, MissingDependencyError, ModelError
from tests.helpers.scripts import run_plain_script

T = TypeVar("T", np.float16, np.float32, np.float64)

NORM = """<ir_version: 9, opset_import: ["": 18]>
main (float[n, 8] x, float[8] w) => (float[n, 8] y)
<int64[1] last = {{-1}}, float eps = {{{eps}}}, float two = {{2}}>
{{
    s = Pow(x, two)
    m = ReduceMean<keepdims=1>(s, last)
    e = Add(eps, m)
    r = Sqrt(e)
    i = Reciprocal(r)
    n_ = Mul(i, x)
    y = Mul(n_, w)
}}"""


@pytest.fixture
def rms_norm():
    with pyops.testing.isolated_declarations():

        @onnx_op("replaced::RmsNorm")
        def rms_norm(x: NDArray[T], w: NDArray[T], *, eps: float = 1e-6) -> NDArray[T]:
            return (w * x / np.sqrt(np.mean(x * x, -1, keepdims=True) + x.dtype.type(eps))).astype(x.dtype)

        @rms_norm.register_decomposition
        def _(x, w, *, eps):
            return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

        yield rms_norm


def model(text: str = NORM, **values: Any) -> onnx.ModelProto:
    return onnx.parser.parse_model(text.format(eps="1e-05", **values) if "{{" in text else text)


def outputs(proto: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


FEED = {"x": np.linspace(-2, 3, 24, dtype=np.float32).reshape(3, 8), "w": np.linspace(0.5, 1, 8, dtype=np.float32)}


def test_nodes_written_in_another_way_become_one_node_with_their_numbers(rms_norm):
    replaced = pyops.replace(model(), [rms_norm])
    (place,) = replaced.places
    assert (place.op, place.output) == ("replaced::RmsNorm", "y")
    assert place.attributes == {"eps": pytest.approx(1e-5)}
    assert place.difference < 1e-6
    assert len(place.nodes) == 7
    (node,) = replaced.model.graph.node
    assert (node.op_type, list(node.input)) == ("RmsNorm", ["x", "w"])
    assert replaced.counts == {"replaced::RmsNorm": 1}


def test_the_model_runs_by_the_body_and_inlined_it_is_the_first_model(rms_norm):
    replaced = pyops.replace(model(), [rms_norm]).model
    expected = outputs(model(), FEED)
    for other in (replaced, onnx.inliner.inline_local_functions(replaced)):
        pyops.testing.assert_close(outputs(other, FEED), expected)
    onnx.checker.check_model(replaced, full_check=True)
    pyops.testing.assert_close(pyops.InferenceSession(replaced).run(None, FEED), expected)


def test_without_bodies_the_kernel_runs(rms_norm):
    replaced = pyops.replace(model(), [rms_norm], bodies=False).model
    assert (list(replaced.functions), replaced.ir_version) == ([], 9)
    pyops.testing.assert_close(pyops.InferenceSession(replaced).run(None, FEED), outputs(model(), FEED))


@pytest.mark.parametrize("keep", [True, False])
def test_values_that_others_use_stay(rms_norm, keep):
    proto = model()
    proto.graph.output.append(onnx.helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, ["n", 1]))
    replaced = pyops.replace(proto, [rms_norm], keep_shared=keep)
    if not keep:
        (refusal,) = replaced.refused
        assert refusal.reason.startswith("m (ReduceMean) is used outside the place; ")
        return
    assert replaced.places[0].shared == ("m (ReduceMean)",)
    pyops.testing.assert_close(outputs(replaced.model, FEED), outputs(proto, FEED))
    assert "y: m (ReduceMean) stay, used elsewhere" in str(replaced)


@pytest.mark.parametrize("keep", [True, False])
def test_a_value_that_another_place_reads_stays(rms_norm, keep):
    @onnx_op("replaced::Root")
    def root(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.sqrt(np.abs(x))

    @root.register_decomposition
    def _(x):
        return torch.sqrt(torch.abs(x))

    @onnx_op("replaced::Wave")
    def wave(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.cos(np.sin(x) * np.sin(x))

    @wave.register_decomposition
    def _(x):
        return torch.cos(torch.sin(x) * torch.sin(x))

    proto = model("""<ir_version: 10, opset_import: ["": 20]>
    main (float[n] x) => (float[n] y, float[n] z) {
        s = Sin(x)  q = Mul(s, s)  y = Cos(q)  a = Abs(q)  z = Sqrt(a)
    }""")
    replaced = pyops.replace(proto, [root, wave], keep_shared=keep)
    listed = sorted(name for place in replaced.places for name in place.nodes)
    left = [node.op_type for node in replaced.model.graph.node]
    assert "Sin" in left
    assert "Mul" in left
    assert not any("Sin" in name or "Mul" in name for name in listed)
    assert [place.shared for place in replaced.places if place.shared] == ([("q (Mul)",)] if keep else [])


def test_a_value_that_only_a_graph_within_a_node_uses_stays(rms_norm):
    text = NORM.replace("float[8] w) => (float[n, 8] y)", "float[8] w, bool c) => (float[n, 8] y, float[n, 1] z)")
    branches = (
        "then_branch = g () => (float[n, 1] a) {{ a = Abs(m) }}, else_branch = h () => (float[n, 1] b) {{ b = Neg(m) }}"
    )
    proto = model(text.replace("y = Mul(n_, w)", f"y = Mul(n_, w)\n    z = If (c) <{branches}>"))
    replaced = pyops.replace(proto, [rms_norm])
    assert replaced.places[0].shared == ("m (ReduceMean)",)
    feed = FEED | {"c": np.array(True)}
    pyops.testing.assert_close(outputs(replaced.model, feed), outputs(proto, feed))


TWO = NORM.replace(
    "y = Mul(n_, w)",
    """k = Mul(n_, w)
    z = Add(x, k)
    s2 = Mul(z, z)
    m2 = ReduceMean(s2, last)
    e2 = Add(m2, eps)
    r2 = Sqrt(e2)
    q = Div(z, r2)
    u = Mul(w, q)
    y = {rest}""",
)


@pytest.mark.parametrize(("rest", "left"), [("Identity(u)", []), ("Add(u, eps)", ["eps"])])
def test_initializers_stay_as_long_as_others_use_them(rms_norm, rest, left):
    proto = model(TWO, rest=rest)
    before = proto.SerializeToString()
    replaced = pyops.replace(proto, [rms_norm])
    assert replaced.counts == {"replaced::RmsNorm": 2}
    assert [item.name for item in replaced.model.graph.initializer] == left
    assert len(replaced.model.functions) == 1
    assert replaced.near == ()
    pyops.testing.assert_close(outputs(replaced.model, FEED), outputs(proto, FEED))
    assert proto.SerializeToString() == before


def test_an_initializer_that_may_be_fed_stays(rms_norm):
    proto = model()
    proto.graph.input.append(onnx.helper.make_tensor_value_info("two", onnx.TensorProto.FLOAT, []))
    replaced = pyops.replace(proto, [rms_norm]).model
    assert [item.name for item in replaced.graph.input] == ["x", "w", "two"]
    onnx.checker.check_model(replaced, full_check=True)


def test_places_do_not_overlap_and_the_later_value_decides(rms_norm):
    @onnx_op("replaced::Inverse")
    def inverse(x: NDArray[T], *, eps: float = 1e-6) -> NDArray[T]:
        return (1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + x.dtype.type(eps))).astype(x.dtype)

    @inverse.register_decomposition
    def _(x, *, eps):
        return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    for ops in ([rms_norm, inverse], [inverse, rms_norm]):
        assert pyops.replace(model(), ops).counts == {"replaced::RmsNorm": 1, "replaced::Inverse": 0}
    replaced = pyops.replace(model(), [inverse])
    assert [node.op_type for node in replaced.model.graph.node] == ["Inverse", "Mul", "Mul"]
    pyops.testing.assert_close(outputs(replaced.model, FEED), outputs(model(), FEED))


def test_a_kernel_that_computes_something_else_is_refused_with_the_difference(rms_norm):
    @rms_norm.register_kernel("cpu")
    def _(x, w, *, eps):
        return w * x / np.sqrt(np.mean(x * x, -1, keepdims=True) + x.dtype.type(1e-3))

    replaced = pyops.replace(model(), [rms_norm])
    assert not replaced.places
    assert replaced.refused[0].reason.startswith("for ")
    assert "the op differs by up to" in replaced.refused[0].reason
    assert len(pyops.replace(model(), [rms_norm], verify=False).places) == 1


def test_places_that_read_equal_values_are_found(rms_norm):
    text = NORM.replace("float[8] w)", "float[8] u)").replace("    s = Pow", "    w = Neg(u)\n    s = Pow")
    again = "    v = Neg(u)\n    s2 = Mul(y, y)\n    m2 = ReduceMean<keepdims=1>(s2, last)\n    e2 = Add(eps, m2)\n"
    again += "    r2 = Sqrt(e2)\n    d2 = Div(y, r2)\n    z = Mul(v, d2)\n}"
    proto = model(text.replace("(float[n, 8] y)", "(float[n, 8] z)")[:-2] + again.replace("}", "}}"))
    replaced = pyops.replace(proto, [rms_norm])
    assert replaced.counts == {"replaced::RmsNorm": 2}
    feed = {"x": FEED["x"], "u": FEED["w"]}
    pyops.testing.assert_close(outputs(replaced.model, feed), outputs(proto, feed))
    onnx.checker.check_model(replaced.model, full_check=True)


@pytest.mark.parametrize(
    ("size", "mean"),
    [
        ("d", "t = ReduceSum<keepdims=1>(s, last)  h = Shape(x)  g = Gather(h, one)  d = Cast<to=1>(g)  m = Div(t, d)"),
        ("d", "t = ReduceSum<keepdims=1>(s, last)  h = Shape<start=1>(x)  d = Cast<to=1>(h)  m = Div(t, d)"),
        ("8", "l = ReduceL2<keepdims=0>(x, last)  q = Mul(l, l)  k = Unsqueeze(q, last)  m = Div(k, eights)"),
        ("8", "p = Pow(x, twos)  m = ReduceMean<keepdims=1>(p, last)"),
    ],
    ids=["element of a shape", "end of a shape", "norm", "exponents"],
)
def test_means_and_constants_in_other_spellings(rms_norm, mean, size):
    text = NORM.replace("    m = ReduceMean<keepdims=1>(s, last)", f"    {mean}")
    text = text.replace("[8]", f"[{size}]").replace("n, 8]", f"n, {size}]")
    arrays = f"float[8] twos = {{{{{', '.join('2' * 8)}}}}}, float[1] eights = {{{{8}}}}, int64[1] one = {{{{1}}}}"
    proto = model(text.replace("<int64[1] last", f"<{arrays}, int64[1] last"))
    replaced = pyops.replace(proto, [rms_norm])
    assert replaced.counts == {"replaced::RmsNorm": 1}, replaced
    pyops.testing.assert_close(outputs(replaced.model, FEED), outputs(proto, FEED))


def test_weights_of_a_new_layer_are_weights(rms_norm):
    ones = f"float[8] w = {{{{{', '.join('1' * 8)}}}}}, "
    proto = model(NORM.replace(", float[8] w)", ")").replace("<int64[1] last", f"<{ones}int64[1] last"))
    assert list(pyops.replace(proto, [rms_norm]).model.graph.node[0].input) == ["x", "w"]


@pytest.mark.parametrize("twice", ["Div(n_, r)", "Mul(n_, i)", "Mul(n_, r)", "Mul(n_, x)"])
def test_a_factor_that_occurs_again_counts(rms_norm, twice):
    proto = model(NORM.replace("y = Mul(n_, w)", f"t = {twice}\n    y = Mul(t, w)"))
    replaced = pyops.replace(proto, [rms_norm], verify=False)
    pyops.testing.assert_close(outputs(replaced.model, FEED), outputs(proto, FEED))


def test_what_nearly_matches_says_what_differs(rms_norm):
    proto = model(NORM.replace("last = {{-1}}", "last = {{0}}"))
    replaced = pyops.replace(proto, [rms_norm])
    assert (replaced.places, replaced.counts) == ((), {"replaced::RmsNorm": 0})
    assert any("axes is (-2,) in the model and (-1,) in the pattern" in near.reason for near in replaced.near)
    assert [node.op_type for node in replaced.model.graph.node] == [node.op_type for node in proto.graph.node]


def test_a_fixed_number_that_differs_is_named():
    with pyops.testing.isolated_declarations():

        @onnx_op("replaced::Fixed")
        def fixed(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
            return w * x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(1e-6))

        @fixed.register_decomposition
        def _(x, w):
            return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

        (near, *_) = pyops.replace(model(), [fixed]).near
        assert "the constant is 9.99999975e-06 in the model and 9.99999997e-07 in the pattern" in near.reason
        assert near.agreeing < near.total


def test_what_comes_closest_is_reported(rms_norm):
    text = NORM.replace("n_ = Mul(i, x)\n    y = Mul(n_, w)", "y = Add(i, x)")
    near = pyops.replace(model(text), [rms_norm]).near
    assert any("of the product in the pattern is not in" in item.reason for item in near)
    assert max(item.agreeing for item in near) < near[0].total


def test_graphs_within_nodes_and_functions_are_named_as_not_searched(rms_norm):
    text = """<ir_version: 9, opset_import: ["": 18]>
    main (bool c, float[3] x) => (float[3] y) {
        y = If (c) <then_branch = g () => (float[3] a) { a = Abs(x) },
                    else_branch = h () => (float[3] b) { b = Neg(x) }>
    }"""
    proto = model(text)
    assert "the graphs within If are not searched" in pyops.replace(proto, [rms_norm]).notes
    replaced = pyops.replace(pyops.replace(model(), [rms_norm]).model, [rms_norm])
    assert "functions are not searched: replaced::RmsNorm" in replaced.notes


def test_an_op_of_several_outputs_is_named_as_not_searched():
    with pyops.testing.isolated_declarations():

        @onnx_op("replaced::Two")
        def two(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            return x, x

        @two.register_decomposition
        def _(x):
            return x, x

        (note, *_) = pyops.replace(model(), [two]).notes
        assert note == "replaced::Two has several outputs: such ops are not searched"


def test_a_transposed_input_gets_a_transpose_of_its_own():
    with pyops.testing.isolated_declarations():

        @onnx_op("replaced::Scores")
        def scores(q: NDArray[np.float32], k: NDArray[np.float32], *, scale: float = 1.0) -> NDArray[np.float32]:
            return q @ np.swapaxes(k, -1, -2) * np.float32(scale)

        @scores.register_decomposition
        def _(q, k, *, scale):
            return q @ k.transpose(-1, -2) * scale

        text = """<ir_version: 9, opset_import: ["": 18]>
        main (float[2, 3, 5, 4] q, float[2, 5, 3, 4] k) => (float[2, 3, 5, 5] y) <float s = {2}> {
            t = Transpose<perm=[0, 2, 3, 1]>(k)
            h = Div(q, s)
            y = MatMul(h, t)
        }"""
        replaced = pyops.replace(model(text), [scores])
        assert [node.op_type for node in replaced.model.graph.node] == ["Transpose", "Scores"]
        assert replaced.places[0].attributes == {"scale": 0.5}
        random = np.random.default_rng(0)
        feed = {
            name: random.standard_normal(shape, np.float32)
            for name, shape in (("q", (2, 3, 5, 4)), ("k", (2, 5, 3, 4)))
        }
        pyops.testing.assert_close(outputs(replaced.model, feed), outputs(model(text), feed))


def test_the_torch_call_and_line_stay_on_the_node(rms_norm):
    proto = model()
    proto.graph.node[-1].metadata_props.add(key="pkg.torch.onnx.stack_trace", value="File ...")
    (node,) = pyops.replace(proto, [rms_norm]).model.graph.node
    assert node.metadata_props[0].value == "File ..."


@pytest.mark.parametrize(
    ("ir_version", "opset", "reason"),
    [
        (7, 18, "a model of IR version 7 cannot have bodies; set ir_version to 8"),
        (9, 17, "torch's exporter makes a model of opset 18, which it cannot convert to opset 17"),
    ],
)
def test_where_no_body_is_possible_the_place_is_refused(rms_norm, ir_version, opset, reason):
    text = NORM.replace('"": 18', f'"": {opset}')
    if opset < 18:
        text = text.replace("<keepdims=1>(s, last)", "<axes=[-1]>(s)")
    proto = model(text)
    proto.ir_version = ir_version
    (refusal,) = pyops.replace(proto, [rms_norm]).refused
    assert reason in refusal.reason
    assert refusal.reason.endswith("; bodies=False replaces it without a body")
    replaced = pyops.replace(proto, [rms_norm], bodies=False).model
    assert (len(replaced.graph.node), replaced.ir_version) == (1, ir_version)
    pyops.testing.assert_close(pyops.InferenceSession(replaced).run(None, FEED), outputs(proto, FEED))


def test_weights_of_inner_graphs_move_along(rms_norm, tmp_path):
    proto = model(
        """<ir_version: 9, opset_import: ["": 18]>
        main (bool c, float[4] x) => (float[4] y) {
            y = If (c) <then_branch = g () => (float[4] a) <float[4] v = {1, 2, 3, 4}> { a = Mul(x, v) },
                        else_branch = h () => (float[4] b) { b = Neg(x) }>
        }"""
    )
    inner = proto.graph.node[0].attribute[0].g.initializer[0]
    inner.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(inner), "v"))
    onnx.save_model(proto, tmp_path / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    (tmp_path / "other").mkdir()
    pyops.replace(tmp_path / "a.onnx", [rms_norm]).save(tmp_path / "other" / "b.onnx")
    (tmp_path / "a.data").unlink()
    session = onnxruntime.InferenceSession(tmp_path / "other" / "b.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"c": np.array(True), "x": np.ones(4, np.float32)})
    assert found.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("other", [False, True])
def test_weights_in_a_file_stay_where_they_are_or_move_along(rms_norm, tmp_path, other, capfd):
    proto = model(
        NORM.replace(", float[8] w)", ")").replace("float two", "float[8] w = {{1,2,3,4,5,6,7,8}}, float two")
    )
    expected = outputs(proto, {"x": FEED["x"]})
    (weight,) = (item for item in proto.graph.initializer if item.name == "w")
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight), "w"))  # onnx moves this form only
    onnx.save_model(proto, tmp_path / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    capfd.readouterr()
    replaced = pyops.replace(tmp_path / "a.onnx", [rms_norm])
    assert len(replaced.places) == 1
    assert capfd.readouterr().err == ""
    folder = tmp_path / "other" if other else tmp_path
    folder.mkdir(exist_ok=True)
    replaced.save(folder / "b.onnx")
    stays = [
        item for item in onnx.load(folder / "b.onnx", load_external_data=False).graph.initializer if item.external_data
    ]
    assert bool(stays) is not other  # what is small moves into the model
    session = onnxruntime.InferenceSession(folder / "b.onnx", providers=["CPUExecutionProvider"])
    pyops.testing.assert_close(session.run(None, {"x": FEED["x"]}), expected)


def test_the_report_is_text_html_and_json(rms_norm):
    replaced = pyops.replace(model(), [rms_norm])
    assert str(replaced).splitlines()[0] == "replaced::RmsNorm: 1 place"
    assert "<td>replaced::RmsNorm</td>" in replaced._repr_html_()
    assert json.loads(json.dumps(replaced.to_dict()))["places"][0]["output"] == "y"
    assert "the inputs of the model were generated" in replaced.notes
    assert pyops.replace(model(), [rms_norm], inputs=FEED).notes == ()
    assert pyops.replace(model(), [rms_norm], verify=False).notes == ("numbers were not compared",)


def test_places_are_compared_on_the_inputs_given(rms_norm):
    @rms_norm.register_kernel("cpu")
    def _(x, w, *, eps):
        if np.any(x == 7):
            raise ValueError("seven")
        return w * x / np.sqrt(np.mean(x * x, -1, keepdims=True) + x.dtype.type(eps))

    assert len(pyops.replace(model(), [rms_norm], inputs=FEED).places) == 1
    (refusal,) = pyops.replace(model(), [rms_norm], inputs=FEED | {"x": np.full((1, 8), 7, np.float32)}).refused
    assert refusal.reason == "for the model's own values the op raises ValueError: seven"


def test_inputs_that_cannot_be_generated_must_be_given(rms_norm):
    text = NORM.replace("float[8] w)", "float[8] w, seq(float[n]) l)")
    text = text.replace("=> (float[n, 8] y)", "=> (float[n, 8] y, int64 z)")
    proto = model(text.replace("y = Mul(n_, w)", "y = Mul(n_, w)\n    z = SequenceLength(l)"))
    with pytest.raises(InputError, match=r"input 'l' is seq.*; pass inputs"):
        pyops.replace(proto, [rms_norm])
    assert len(pyops.replace(proto, [rms_norm], verify=False).places) == 1


def test_indices_are_generated_within_what_gather_reads(rms_norm):
    text = NORM.replace("float[n, 8] x,", "int64[n] ids,").replace(
        "float two", "float[2, 8] table = {{" + "1," * 15 + "1}}, float two"
    )
    proto = model(text.replace("    s = Pow", "    x = Gather(table, ids)\n    s = Pow"))
    assert len(pyops.replace(proto, [rms_norm]).places) == 1


def test_half_precision_computed_in_a_wider_type_is_the_same_op(rms_norm):
    text = NORM.replace("float[n, 8] x", "float16[n, 8] h").replace("(float[n, 8] y)", "(float16[n, 8] z)")
    text = text.replace("float[8] w", "float16[8] v").replace(
        "    s = Pow", "    x = Cast<to=1>(h)\n    w = Cast<to=1>(v)\n    s = Pow"
    )
    proto = model(text.replace("y = Mul(n_, w)", "y = Mul(n_, w)\n    z = Cast<to=10>(y)"))
    (place,) = pyops.replace(proto, [rms_norm], verify=False).places
    assert place.output == "z"


def test_an_epsilon_that_a_float32_cannot_hold_is_not_rounded(rms_norm):
    proto = model(
        NORM.replace("float[", "double[").replace("float eps", "double eps").replace("float two", "double two")
    )
    replaced = pyops.replace(proto, [rms_norm])
    assert not replaced.places
    assert any("which the attribute, a float32, cannot hold" in near.reason for near in replaced.near)


def test_a_node_that_a_shape_function_rejects_is_an_error_of_the_model(rms_norm):
    @onnx_op("replaced::Pair")
    def pair(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    @pair.register_shape_inference
    def _(x):
        if x.shape[0] != 2:
            raise pyops.errors.ShapeInferenceError("x must have two rows")
        return x

    text = """<ir_version: 9, opset_import: ["": 18, "replaced": 1]>
    main (float[3, 8] x) => (float[3, 8] y) { y = replaced.Pair(x) }"""
    with pytest.raises(ModelError, match=r"cannot be inferred.*replaced::Pair.*two rows"):
        pyops.replace(model(text), [rms_norm])


def test_a_shape_function_gets_the_strings_of_a_large_model(rms_norm):
    found = []

    @onnx_op("replaced::Find")
    def find(x: NDArray[np.float32], words: NDArray[np.str_]) -> NDArray[np.int64]:
        return np.zeros(len(words), np.int64)

    @find.register_shape_inference
    def _(x, words):
        found.append(words.value)
        return words.like(dtype=np.int64)

    words = [f"{n:080}" for n in range(60)]
    proto = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 20, "replaced": 1]>
    main (float[n] x) => (int64[60] y) { a = Add(x, w) y = replaced.Find(a, words) }""")
    large = onnx.numpy_helper.from_array(np.zeros(2**22, np.float32), "w")
    proto.graph.initializer.extend([large, onnx.helper.make_tensor("words", onnx.TensorProto.STRING, [60], words)])
    assert not pyops.replace(proto.SerializeToString(), [rms_norm]).places
    assert [value.tolist() for value in found if value is not None][:1] == [words]


def test_wrong_arguments(rms_norm, tmp_path):
    with pytest.raises(InputError, match="replace got no ops"):
        pyops.replace(model(), [])
    with pytest.raises(InputError, match="ops must be declared with onnx_op; got function"):
        pyops.replace(model(), [test_wrong_arguments])

    @onnx_op("replaced::Bare")
    def bare(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    with pytest.raises(InputError, match="has no decomposition, which says what it replaces"):
        pyops.replace(model(), [bare])
    with pytest.raises(InputError, match="inputs is list; expected arrays by the names"):
        pyops.replace(model(), [rms_norm], inputs=[1.0])  # type: ignore[arg-type]
    path = Path(tmp_path, "a.ort")
    path.write_bytes(b"1234ORTM")
    with pytest.raises(ModelError, match="a model in ORT format cannot be changed"):
        pyops.replace(path, [rms_norm])


def test_without_onnx_ir_the_error_says_what_to_install(rms_norm, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "onnx-pyops\[replace\]"'):
        pyops.replace(model(), [rms_norm])


WITHOUT_TORCH = """
import sys

sys.modules["torch"] = None

import numpy as np
import onnx
import onnxscript
from numpy.typing import NDArray
from onnxscript import opset18 as op

import pyops


@pyops.onnx_op("replaced::Scaled")
def scaled(x: NDArray[np.float32], *, beta: float = 1.0) -> NDArray[np.float32]:
    return np.tanh(x * np.float32(beta))


@scaled.register_decomposition
@onnxscript.script(onnxscript.values.Opset("replaced", 1))
def _scaled(x, beta: float = 1.0):
    return op.Tanh(x * beta)


head = '<ir_version: 9, opset_import: ["": 18]> main (float[n] x) => (float[n] y) <float c = {4}>'
model = onnx.parser.parse_model(head + "{ a = Div(x, c)  y = Tanh(a) }")
print(pyops.replace(model, [scaled]).places[0].attributes)
"""


def test_a_decomposition_of_onnxscript_needs_no_torch(tmp_path):
    path = tmp_path / "without_torch.py"  # onnxscript reads the function's source
    path.write_text(WITHOUT_TORCH)
    run_plain_script(f"import runpy; runpy.run_path({str(path)!r})", "{'beta': 0.25}")


@onnxscript.script(onnxscript.values.Opset("replaced", 1), default_opset=opset20)
def twice_in_onnx(x):
    return opset20.Mul(opset20.Exp(x), opset20.Constant(value_float=2.0))


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_a_decomposition_of_onnxscript_is_found_in_models_of_all_opsets(opset):
    with pyops.testing.isolated_declarations():

        @onnx_op("replaced::Twice")
        def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.exp(x) * 2

        twice.register_decomposition(twice_in_onnx)
        proto = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": {opset}]> a (float[3,8] x) => (float[3,8] y) '
            "<float two = {2.0}> { k = Exp(x) y = Mul(k, two) }"
        )
        assert pyops.replace(proto, [twice], bodies=opset == 20).places


@pytest.mark.parametrize("gather", ["Gather", "Gather<axis=0>"])
def test_an_attribute_with_its_default_is_one_that_is_left_out(gather):
    with pyops.testing.isolated_declarations():

        @onnx_op("replaced::Embedding")
        def embedding(i: NDArray[np.int64], t: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.exp(t[i])

        @embedding.register_decomposition
        def _(i, t):
            return torch.exp(torch.nn.functional.embedding(i, t))

        proto = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 20]> '
            f"a (int64[3] i, float[9,8] t) => (float[3,8] y) {{ k = {gather}(t, i) y = Exp(k) }}"
        )
        assert pyops.replace(proto, [embedding], verify=False).places
