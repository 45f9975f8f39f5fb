"""What ONNX Runtime knows of a session's shapes from shape functions, and that kernels keep to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._core.runtime.native import node_info
from pyops._support.tested_releases import is_older
from pyops.errors import OutputError
from pyops.shapes import broadcast, new_dim

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]


def session_for(text: str, make: Any = pyops.InferenceSession) -> Any:
    model = f'<ir_version: 8, opset_import: ["" : 17, "inferred" : 1]> g {text}'
    return make(onnx.parser.parse_model(model))


def plain_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


@pytest.mark.parametrize("make", [pyops.InferenceSession, plain_session])
def test_what_a_shape_function_raises_leaves_shapes_open_and_is_no_kernels_exception(make: Any) -> None:
    @onnx_op("inferred::Failing")
    def failing(x: F32) -> F32:
        return x

    @failing.register_shape_inference
    def _(x: Any) -> Any:
        return x.like(shape=(x.shape[0] if isinstance(x.shape[0], int) else {}[x.shape[0]],))

    before = pyops.last_exception()
    session = session_for("(float[n] x) => (float[m] y) { y = inferred.Failing(x) }", make)
    assert pyops.last_exception() is before
    assert session.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [1, 1]


@pytest.mark.parametrize("make", [pyops.InferenceSession, plain_session])
@pytest.mark.parametrize(
    ("given", "inferred"),
    [("2, 3", [6, 3]), ("batch, 3", ["batch*3", 3]), ("2, width", [6, "width"])],
)
def test_outputs_have_the_shapes_of_the_shape_function(make: Any, given: str, inferred: list[Any]) -> None:
    @onnx_op("inferred::Repeat")
    def repeat(x: F32, *, times: int, label: str = "none") -> F32:
        return np.repeat(x, times, axis=0)

    @repeat.register_shape_inference
    def _(x: Any, *, times: int, label: str = "none") -> Any:
        assert label == "é"
        return x.like(shape=(x.shape[0] * times, *x.shape[1:]))

    repeated = 'inferred.Repeat <times = 3, label = "é"> (x)'
    for body in (f"y = {repeated}", f"t = {repeated}  y = Neg(t)"):
        assert session_for(f"(float[{given}] x) => (y) {{ {body} }}", make).get_outputs()[0].shape == inferred


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_dimension_of_every_rank_arrives(rank: int) -> None:
    @onnx_op("inferred::Same")
    def same(x: F32) -> F32:
        return x

    @same.register_shape_inference
    def _(x: Any) -> Any:
        return x

    sizes = ["batch", *range(2, rank + 1)]
    text = f"(float[{', '.join(map(str, sizes))}] x) => (y) {{ y = inferred.Same(x) }}"
    for _ in range(5):
        assert session_for(text).get_outputs()[0].shape == sizes


@pytest.mark.skipif(is_older(onnxruntime.__version__, "1.28"), reason="ONNX Runtime 1.27 infers one output alone")
def test_named_dimensions_survive_and_run_time_ones_get_names_of_their_own() -> None:
    @onnx_op("inferred::Both")
    def both(x: F32, y: F32) -> tuple[F32, F32]:
        return x + y, np.unique(x)

    @both.register_shape_inference
    def _(x: Any, y: Any) -> Any:
        return x.like(shape=broadcast(x, y)), x.like(shape=(new_dim(),))

    session = session_for("(float[n, 1] x, float[3] y) => (a, b) { a, b = inferred.Both(x, y) }")
    first, second = (item.shape for item in session.get_outputs())
    assert first == ["n", 3]
    assert isinstance(second[0], str)
    assert second != ["n"]


def test_before_1_28_nothing_is_inferred_of_ops_whose_nodes_may_leave_something_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_info, "_infers_absent", lambda: False)

    @onnx_op("inferred::Two")
    def two(x: F32) -> tuple[F32, F32]:
        return x, x

    @onnx_op("inferred::Optional")
    def optional(x: F32, y: F32 | None = None) -> F32:
        return x

    @onnx_op("inferred::One")
    def one(x: F32) -> F32:
        return x

    two.register_shape_inference(lambda x: (x, x))
    optional.register_shape_inference(lambda x, y=None: x)
    one.register_shape_inference(lambda x: x)
    x = np.ones(2, np.float32)
    for node, shape in (("y, z = inferred.Two", []), ("y = inferred.Optional", []), ("y = inferred.One", ["n"])):
        session = session_for(f"(float[n] x) => (y) {{ {node}(x) }}")
        assert session.get_outputs()[0].shape == shape
        assert session.run(["y"], {"x": x})[0].tolist() == [1, 1]


def test_other_element_types_are_inferred_too() -> None:
    @onnx_op("inferred::Half")
    def half(x: F32) -> F16:
        return x.astype(np.float16)

    @half.register_shape_inference
    def _(x: Any) -> Any:
        return x.like(dtype=np.float16)

    session = session_for("(float[n] x) => (y) { y = inferred.Half(x) }")
    assert (session.get_outputs()[0].type, session.get_outputs()[0].shape) == ("tensor(float16)", ["n"])


def test_where_the_rank_is_not_known_nothing_is_inferred_and_the_op_runs() -> None:
    @onnx_op("inferred::Twice")
    def twice(x: F32) -> F32:
        return x + x

    @twice.register_shape_inference
    def _(x: Any) -> Any:
        return x

    session = session_for("(float x_scalar, float[] x) => (float[] y) { y = inferred.Twice(x) }")
    feed = {"x_scalar": np.zeros((), np.float32), "x": np.ones((2, 2), np.float32)}
    assert session.run(["y"], feed)[0].tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("rows", [1, 4])
def test_a_shape_function_that_compares_a_symbol_with_a_number_leaves_the_shape_open(rows: int) -> None:
    @onnx_op("inferred::PairOrSame")
    def pair(x: F32) -> F32:
        return x if len(x) == 1 else np.stack([x.min(0), x.max(0)])

    @pair.register_shape_inference
    def _(x: Any) -> Any:
        return x if x.shape[0] == 1 else x.like(shape=(2, *x.shape[1:]))

    session = session_for("(float[n, 3] x) => (y, z) { y = inferred.PairOrSame(x)  z = Shape(y) }")
    assert session.get_outputs()[0].shape != [2, 3]
    y, shape = session.run(None, {"x": np.ones((rows, 3), np.float32)})
    assert list(y.shape) == shape.tolist()


def test_a_kernel_that_disagrees_with_its_shape_function_is_an_error_that_shows_both() -> None:
    @onnx_op("inferred::Wrong")
    def wrong(x: F32) -> F32:
        return x[:-1]

    @wrong.register_shape_inference
    def _(x: Any) -> Any:
        return x

    session = session_for("(float[n] x) => (float[m] y) { y = inferred.Wrong(x) }")
    x = np.ones(3, np.float32)
    for call in (lambda: session.run(None, {"x": x}), lambda: wrong(x)):
        with pytest.raises(OutputError, match=r"inferred::Wrong.*float32\[3\].*\[2\].*\[3\]"):
            call()
