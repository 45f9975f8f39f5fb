"""Sessions that fill nodes for which ONNX Runtime has no kernel."""

import pickle
import warnings
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import errors, onnx_op
from pyops._core.runtime import inference_session as session_module
from pyops._display.inspection import inspect
from pyops._filling import filling
from pyops._filling.typed_nodes import newest_ir_version, newest_opset
from pyops._support.element_types import from_type_str

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HEADER = '<ir_version: 10, opset_import: ["": 22, "fill": 1]>'


def parsed(text: str, header: str = HEADER) -> onnx.ModelProto:
    return onnx.parser.parse_model(header + text)


def filled(model: Any, **arguments: Any) -> tuple[Any, str]:
    """Return a session that fills, and what it said."""
    with pytest.warns(errors.FilledNodeWarning) as caught:
        session = pyops.InferenceSession(model, fill_missing=True, **arguments)
    return session, str(caught[0].message)


@pytest.fixture
def x() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((3, 3), np.float32).astype(BFLOAT16)


PRODUCT = "main (bfloat16[n, n] x) => (bfloat16[n, n] y) { y = MatMul(x, x) }"
DETERMINANT = "main (double[n, n] x) => (double y) { y = Det(x) }"


def product(x: NDArray[Any]) -> NDArray[Any]:
    return (x.astype(np.float32) @ x.astype(np.float32)).astype(BFLOAT16)


def test_a_kernel_of_a_wider_type_runs_between_casts(x: NDArray[Any]) -> None:
    session, message = filled(parsed(PRODUCT))
    assert "MatMul-13(bfloat16, bfloat16), by ONNX Runtime, between Cast nodes: 1 without a name" in message
    (y,) = session.run(None, {"x": x})
    assert y.dtype == BFLOAT16
    np.testing.assert_array_equal(y, product(x))


def test_the_reference_implementation_computes_what_no_kernel_does(x: NDArray[Any]) -> None:
    session, message = filled(parsed(DETERMINANT))
    assert "Det-22(float64), by onnx's reference implementation" in message
    wide = x.astype(np.float64)
    np.testing.assert_allclose(session.run(None, {"x": wide})[0], np.linalg.det(wide))


def test_its_exception_reaches_the_caller() -> None:
    session, _ = filled(parsed(DETERMINANT))
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        session.run(None, {"x": np.ones((2, 3))})


@pytest.mark.parametrize(
    "text",
    [
        "main (bool c, bfloat16[n, n] x) => (bfloat16[n, n] y) { y = If (c) <"
        "then_branch = a () => (bfloat16[n, n] u) { u = MatMul(x, x) },"
        "else_branch = b () => (bfloat16[n, n] v) { v = Identity(x) }> }",
        "main (bool c, bfloat16[n, n] x) => (bfloat16[n, n] y) { one = Constant <value = int64 {1}> () "
        "y = Loop (one, c, x) <"
        "body = a (int64 i, bool go, bfloat16[n, n] s) => (bool on, bfloat16[n, n] t) "
        "{ on = Identity(go) t = MatMul(s, s) }> }",
        "main (bool c, bfloat16[n, n] x) => (bfloat16[n, n] y) { y = fill.square (x) }"
        '<domain: "fill", opset_import: ["": 22]> square (u) => (v) { v = MatMul(u, u) }',
    ],
    ids=["If", "Loop", "function"],
)
def test_bodies_and_functions_are_filled(text: str, x: NDArray[Any]) -> None:
    model = parsed(text)
    session, message = filled(model)
    assert "MatMul-13(bfloat16, bfloat16)" in message
    feeds = {"c": np.array(True), "x": x}
    (y,) = session.run(None, {item.name: feeds[item.name] for item in session.get_inputs()})
    np.testing.assert_array_equal(y, product(x))


def test_attributes_of_functions_have_their_defaults() -> None:
    functions = (
        '<domain: "fill", opset_import: ["": 22, "fill": 1]> Outer (u) => (v) { v = fill.Leaky (u) }'
        '<domain: "fill", opset_import: ["": 22]> Leaky <slope: float = 2.0> (u) => (v) '
        "{ v = LeakyRelu <alpha: float = @slope> (u) }"
    )
    text = "main (float[n] x, double[k, k] m) => (float[n] y, float[n] z, double d) {"
    text += "y = fill.Outer (x) z = fill.Leaky <slope = 3.0> (x) d = Det(m) }" + functions
    session, _ = filled(parsed(text))
    y, z, _ = session.run(None, {"x": np.full(1, -1, np.float32), "m": np.eye(2)})
    assert (y, z) == (-2, -3)


def test_a_type_of_a_newer_definition_is_filled() -> None:
    text = "main (bfloat16[1, 1, n] x, bfloat16[1, 1, 2] w) => (bfloat16[1, 1, k] y) { y = Conv (x, w) }"
    session, message = filled(parsed(text, HEADER.replace("22", "20")))
    assert "Conv-22(bfloat16, bfloat16), by ONNX Runtime, between Cast nodes" in message
    x, w = np.ones((1, 1, 3), BFLOAT16), np.ones((1, 1, 2), BFLOAT16)
    assert session.run(None, {"x": x, "w": w})[0].tolist() == [[[2, 2]]]


@pytest.mark.parametrize("opset", [11, 20])
def test_a_function_of_another_opset_is_filled_if_its_operators_are_the_same(opset: int) -> None:
    function = f'<domain: "fill", opset_import: ["": {opset}]> determinant (u) => (v) {{ v = Det (u) }}'
    session, message = filled(parsed("main (double[n, n] x) => (double y) { y = fill.determinant (x) }" + function))
    assert "Det-22(float64)" in message
    assert session.run(None, {"x": 2 * np.eye(2)})[0] == 4


@pytest.mark.filterwarnings("ignore::pyops.errors.FilledNodeWarning")
@pytest.mark.parametrize(
    ("text", "message"),
    [("y = If (c)", "'(else|then)_branch' is missing"), ("y = fill.F (x, x, x)", "functions cannot be inlined")],
)
def test_a_model_that_is_none_is_refused(text: str, message: str) -> None:
    function = '<domain: "fill", opset_import: ["": 22]> F (a) => (b) { b = Det (a) }'
    model = parsed(f"main (bool c, double[n, n] x) => (double y) {{ d = Det(x) {text} }}" + function)
    with pytest.raises(Exception, match=message):
        pyops.InferenceSession(model, fill_missing=True)


def test_types_come_from_declared_ops_too() -> None:
    @onnx_op("fill::Twice")
    def twice(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x + x

    session, message = filled(parsed("main (double[n, n] x) => (double y) { z = fill.Twice(x) y = Det(z) }"))
    assert "Det" in message
    assert "unknown" not in message
    assert session.run(None, {"x": np.eye(2)})[0] == 4


def test_types_come_from_operators_that_only_onnxruntime_defines_too() -> None:
    text = "main (double[n, n] x) => (double y) { z = com.microsoft.Inverse(x) y = Det(z) }"
    session, message = filled(parsed(text, '<ir_version: 10, opset_import: ["": 22, "com.microsoft": 1]>'))
    assert "Det-22(float64)" in message
    assert "unknown" not in message
    np.testing.assert_allclose(session.run(None, {"x": 2 * np.eye(2)})[0], 0.25)


def test_types_do_not_depend_on_values_in_other_files(tmp_path: Path) -> None:
    model = parsed("main (double[n] x) => (double y) { z = Reshape(x, s) y = Det(z) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 2]), "s"))
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="values", size_threshold=0)
    assert [node.kind for node in inspect(path).missing] == ["Det-22(float64)"]


def test_values_of_two_bodies_may_have_the_same_name() -> None:
    text = (
        "main (bool c, float[n, n] x) => (float y) { y = If (c) <"
        "then_branch = a () => (float y1) { t = Cast <to = 11> (x) d = Det (t) y1 = Cast <to = 1> (d) },"
        "else_branch = b () => (float y2) { t = Identity (x) d = Cast <to = 11> (t) e = Erf (d) "
        "y2 = ReduceSum <keepdims = 0> (t) }> }"
    )
    session, message = filled(parsed(text))
    assert "Det-22(float64)" in message
    assert "Erf-13(float64)" in message
    x = 2 * np.eye(2, dtype=np.float32)
    assert [float(session.run(None, {"c": np.array(c), "x": x})[0]) for c in (True, False)] == [4, 4]


def test_a_kernel_that_lacks_the_type_of_one_input_is_no_kernel() -> None:
    scales = "bfloat16 s, uint8 p"
    inputs = f"uint8[2, 2] a, {scales}, uint8[2, 2] b"
    text = f"main ({inputs}) => (uint8[2, 2] y) {{ y = QLinearMatMul (a, s, p, b, s, p, s, p) }}"
    session, message = filled(parsed(text))
    assert "between Cast nodes" in message
    a = np.array([[1, 2], [3, 4]], np.uint8)
    (y,) = session.run(None, {"a": a, "b": a, "s": np.array(1, BFLOAT16), "p": np.uint8(0)})
    np.testing.assert_array_equal(y, a @ a)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("Transpose <perm = [0, 0]>", "perm for Transpose has repeated value"),
        ("Transpose <perm = [1, 0], other = 3>", "Unrecognized attribute: other"),
        ("LpNormalization <p = 7>", "Exception during initialization"),
    ],
)
@pytest.mark.filterwarnings("ignore::pyops.errors.FilledNodeWarning")
def test_an_invalid_node_is_not_filled(node: str, message: str) -> None:
    text = "main (double[n, n] x) => (double[a, b] y, double d) { d = Det (x) y = %s (x) }"
    with pytest.raises(Exception, match=message):
        pyops.InferenceSession(parsed(text % node), fill_missing=True)


def test_a_node_without_inputs_may_lack_a_kernel() -> None:
    proto = parsed("main () => (float16[200] y) { y = RandomNormal <dtype = 10, shape = [200]> () }")
    with pytest.warns(errors.FilledNodeWarning, match="RandomNormal"):
        (y,) = pyops.InferenceSession(proto, fill_missing=True).run(None, {})
    assert y.dtype == np.float16
    assert 0.5 < np.std(y.astype(np.float32)) < 2


def test_a_model_that_lacks_nothing_stays_as_it_is() -> None:
    model = pyops._core.models.model.load_model(parsed("main (float[n] x) => (float[n] y) { y = Add(x, x) }"))
    assert filling.fill(model, {}).model is model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pyops.InferenceSession(model, fill_missing=True)


def test_without_it_the_refusal_names_it() -> None:
    with pytest.raises(errors.ModelError, match=r"let pyops compute it \(fill_missing=True\)"):
        pyops.InferenceSession(parsed(DETERMINANT))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(complex64[n] x) => (complex64[n] y) { y = Identity(x) }", r"'', Identity-21\(complex64\).* complex64"),
        (
            "(double[n, c, d] x) => (double[n, c, e] y) { y = AveragePool <kernel_shape = [2], ceil_mode = 1> (x) }",
            r"'', AveragePool-[0-9]+\(float64\)",
        ),
    ],
)
def test_what_nobody_computes_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(errors.ModelError, match=f"nothing can compute {message}"):
        pyops.InferenceSession(parsed(f"main {text}"), fill_missing=True)


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ("LRN <size = 3> (x)", "normalizes as many channels as the batch has items"),
        ("ConvTranspose <group = 2> (x, w)", "is wrong for groups"),
        ("ConvTranspose <output_shape = [5, 5]> (x, w)", "pads nothing for output_shape"),
        ("LpPool <kernel_shape = [2, 2], ceil_mode = 1> (x)", "is wrong for ceil_mode"),
        ("AveragePool <kernel_shape = [3, 3], strides = [3, 3], ceil_mode = 1> (x)", "is wrong for ceil_mode"),
        ('AveragePool <kernel_shape = [2, 2], auto_pad = "VALID", dilations = [2, 2]> (x)', "is wrong for auto_pad"),
        ('LpPool <kernel_shape = [1, 1], auto_pad = "SAME_UPPER", strides = [1, 2]> (x)', "is wrong for auto_pad"),
        (
            'ConvTranspose <kernel_shape = [1, 2], auto_pad = "SAME_LOWER", strides = [2, 3]> (x, w)',
            "is wrong for auto",
        ),
        ('ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)', "is wrong for auto_pad"),
        ("GlobalMaxPool (x)", "pools over two dimensions only"),
        (
            'Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, w, s)',
            "is wrong for tf_crop",
        ),
        ('Resize <mode = "linear"> (i, , s)', "interpolates between integers"),
        ("Gemm <alpha = 0.5> (i, i)", "drops the fractions"),
        ("Unique <sorted = 0> (n)", "fails for sorted=0"),
        ("RNN <hidden_size = 2, clip = 0.3> (x, x, x)", "ignores clip"),
        ("RNN <hidden_size = 2, clip = 0.3> (x, x, x, , n)", "ignores clip, sequence_lens"),
        ('RNN <hidden_size = 2, activations = ["Relu"]> (x, x, x)', "supports only the default activations"),
        ("LSTM <hidden_size = 2, layout = 1, input_forget = 1> (x, x, x)", "ignores input_forget"),
    ],
)
def test_what_the_reference_implementation_gets_wrong_is_refused(node: str, problem: str) -> None:
    inputs = "double[a, b, c, d] x, double[e, f, g, h] w, int64[p, q] i, float[r] s, int32[t] n"
    output = {"i": "int64", "n": "int32"}.get(node.partition("(")[2][0], "double")
    model = parsed(f"main ({inputs}) => ({output}[k, l, m, o] y) {{ y = {node} }}")
    with pytest.raises(errors.ModelError, match=f"nothing can compute.*onnx's reference implementation {problem}"):
        pyops.InferenceSession(model, fill_missing=True)


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        ("LSTM", "double[3, 2, 4] x, double[1, 8, 4] w, double[1, 8, 2] r"),
        ("GRU", "double[3, 2, 4] x, double[1, 6, 4] w, double[1, 6, 2] r"),
        ("RNN", "double[3, 2, 4] x, double[1, 2, 4] w, double[1, 2, 2] r"),
    ],
)
@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 25, reason="onnx 1.19 cannot compute layout = 1")
def test_default_activations_may_be_spelled(node: str, inputs: str) -> None:
    names = {"RNN": '["Tanh"]', "GRU": '["Sigmoid", "Tanh"]', "LSTM": '["Sigmoid", "Tanh", "Tanh"]'}[node]
    text = "main (%s) => (double[a, b, c, d] y) { y = %s <hidden_size = 2, layout = 1%s> (x, w, r) }"
    generator = np.random.default_rng(0)
    expected, found = (filled(parsed(text % (inputs, node, added)))[0] for added in ("", f", activations = {names}"))
    feed = {item.name: generator.standard_normal(item.shape) for item in expected.get_inputs()}
    np.testing.assert_array_equal(found.run(None, feed)[0], expected.run(None, feed)[0])


@pytest.mark.parametrize("name", ["float8e5m2", "float8e4m3fn", "float8e5m2fnuz", "float8e4m3fnuz"])
@pytest.mark.parametrize("node", ["Transpose (x)", "Flatten (x)", "Unsqueeze (x, i)", "Pad (x, p)", "Identity (x)"])
@pytest.mark.filterwarnings("ignore::pyops.errors.FilledNodeWarning")
def test_float8_keeps_what_is_not_finite(name: str, node: str) -> None:
    initializers = "<int64[4] p = {0, 0, 0, 0}, int64[1] i = {0}>"
    model = parsed(
        f"main ({name}[1, 4] x) => ({name}[a, b] y) {initializers} {{ y = {node} }}",
        '<ir_version: 10, opset_import: ["": 21]>',
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    session = pyops.InferenceSession(model, fill_missing=True)
    row = from_type_str(f"tensor({name})")
    assert row is not None
    x = np.array([[np.inf, -np.inf, 1.5, np.nan]]).astype(row.dtype)
    found = session.run(None, {"x": x})[0].astype(np.float32).ravel()[:4]
    np.testing.assert_array_equal(found, x.astype(np.float32).ravel())


@pytest.mark.parametrize(
    "text",
    [
        "main (bfloat16[n, n] x, bfloat16[n, n] t) => (bfloat16[n, n] y) { z = MatMul(x, x) y = Add(z, t) }",
        "main (bfloat16[n, n] x) => (bfloat16[n, n] y) <bfloat16[1] t = {0}> { z = MatMul(x, x) y = Add(z, t) }",
    ],
    ids=["input", "initializer"],
)
def test_new_values_get_names_that_the_model_has_not(text: str, x: NDArray[Any]) -> None:
    model = parsed(text)
    for item in (*model.graph.input, *model.graph.initializer):
        item.name = {"t": "pyops.filled_0"}.get(item.name, item.name)
    model.graph.node[1].input[1] = "pyops.filled_0"
    session, _ = filled(model)
    feeds = {"x": x, "pyops.filled_0": np.zeros_like(x)}
    (y,) = session.run(None, {item.name: feeds[item.name] for item in session.get_inputs()})
    np.testing.assert_array_equal(y, product(x))


def test_a_function_that_calls_itself_is_named() -> None:
    functions = "".join(
        f'<domain: "fill", opset_import: ["": 22, "fill": 1]> {name} (u) => (v) {{ v = fill.{other} (u) }}'
        for name, other in ("FG", "GF")
    )
    model = parsed("main (double[n] x) => (double[n] y) { y = fill.F (x) }" + functions)
    for use in (inspect, lambda model: pyops.InferenceSession(model, fill_missing=True)):
        with pytest.raises(errors.ModelError, match="function fill::F calls itself"):
            use(model)


def test_a_model_in_ort_format_is_refused(tmp_path: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    model = parsed("main (float[n] x) => (float[n] y) { y = Neg(x) }")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    with pytest.raises(errors.ModelError, match="ORT format cannot be changed"):
        pyops.InferenceSession(tmp_path / "model.ort", fill_missing=True)


def test_nodes_of_unknown_types_are_named() -> None:
    text = "main (float[n] x) => (float[n] y) { z = fill.Foreign(x) y = Relu(z) }"
    model = parsed(text)
    model.graph.node[1].name = "after"
    found = filling.fill(pyops._core.models.model.load_model(model), {})
    assert found.untyped == ["after"]
    assert "unknown types: 'after'" in found.message


def test_the_session_that_was_refused_is_destroyed_before_the_next_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[weakref.ref[Exception]] = []  # their tracebacks refer to the session
    living: list[int] = []
    host = session_module.native.SessionHost

    def remember(error: Exception) -> None:
        refusals.append(weakref.ref(error))

    def count(*arguments: Any, **options: Any) -> Any:
        living.append(sum(error() is not None for error in refusals))
        return host(*arguments, **options)

    monkeypatch.setattr(session_module.cuda_provider, "explained", remember)
    monkeypatch.setattr(session_module.native, "SessionHost", count)
    filled(parsed(DETERMINANT))
    assert len(refusals) == 1
    assert living == [0, 0]


def test_a_model_is_read_once_and_only_a_refusal_that_is_raised_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    load, loaded = session_module.model.load_model, []
    monkeypatch.setattr(session_module.model, "load_model", lambda source: loaded.append(source) or load(source))
    monkeypatch.setattr(session_module, "explained", lambda error, *rest: pytest.fail("explained"))
    model = parsed(DETERMINANT).SerializeToString()
    filled(model)
    assert loaded == [model]


def test_a_session_that_fills_is_pickled(x: NDArray[Any]) -> None:
    session, _ = filled(parsed(DETERMINANT))
    wide = x.astype(np.float64)
    other = pickle.loads(pickle.dumps(session))
    with pytest.warns(errors.FilledNodeWarning):  # as it is made when it is first used
        result = other.run(None, {"x": wide})
    assert result == session.run(None, {"x": wide})


def test_inspect_says_who_computes_what_is_missing() -> None:
    report = inspect(parsed(PRODUCT))
    assert [(node.op_type, node.by) for node in report.missing] == [("MatMul", "ONNX Runtime, between Cast nodes")]
    assert report.ok
    assert "MatMul-13(bfloat16, bfloat16)  ONNX Runtime, between Cast nodes" in str(report)
    unfilled = inspect(parsed("main (complex64[n] x) => (complex64[n] y) { y = Identity(x) }"))
    assert not unfilled.ok
    assert "nothing" in str(unfilled)


NEWEST = '<ir_version: 10, opset_import: ["": 28]>'


def test_versions_that_nobody_has_are_not_tried_one_by_one() -> None:
    model = parsed(DETERMINANT)
    model.ir_version, model.opset_import[0].version = 2**31 - 1, 2**40
    found = filling.fill(pyops._core.models.model.load_model(model), {})
    assert [node.by for node in found.nodes] == [filling.BY_REFERENCE]
    assert found.model.proto.ir_version == newest_ir_version(100)
    assert found.model.proto.opset_import[0].version == newest_opset(100)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="needs an onnx that knows opset 28")
@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("main (float[n] x) => (float[n] y) { y = Celu(x) }", ""),
        ("main (float16[n] x) => (float16[n] y) { y = Celu(x) }", filling.BETWEEN_CASTS),
        (
            "main (float[a, b, c, d] x) => (float[e, f, g, h] y) "
            "{ y = SpaceToDepth <blocksize = 2, mode = 'CRD'> (x) }",
            filling.BY_REFERENCE,
        ),
    ],
    ids=["same definition", "types alone", "changed"],
)
def test_an_opset_that_onnxruntime_does_not_know(text: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "newest_opset", lambda wanted: min(wanted, 26))
    found = filling.fill(pyops._core.models.model.load_model(parsed(text.replace("'", '"'), NEWEST)), {})
    assert {entry.version for entry in found.model.proto.opset_import if not entry.domain} == {26}
    assert [node.by for node in found.nodes] == [by] * bool(by)
