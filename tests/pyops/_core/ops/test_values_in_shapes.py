"""Shape functions that need the value of an input: where it is known, and where it is not."""

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import pyops
from pyops import onnx_op
from pyops.errors import OutputError
from pyops.shapes import RuntimeDim, SymbolicDim, TensorSpec, new_dim

F32, I64 = NDArray[np.float32], NDArray[np.int64]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def tiled(x: Any, repeats: Any) -> Any:
    counts = [new_dim() for _ in x.shape] if repeats.value is None else repeats.value.tolist()
    return x.like(shape=[size * count for size, count in zip(x.shape, counts, strict=True)])


@pytest.fixture
def tile() -> Any:
    @onnx_op("values::Tile")
    def tile(x: F32, repeats: I64) -> F32:
        return np.tile(x, repeats)

    tile.register_shape_inference(tiled)
    return tile


def repeats(*counts: int) -> Any:
    return np.array(counts, np.int64)


def inferred(model: onnx.ModelProto) -> list[Any]:
    with pyops.register_schemas():
        graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    return [dim.dim_value or dim.dim_param for dim in graph.output[0].type.tensor_type.shape.dim]


def model_of(nodes: str, given: str = "") -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["": 20, "values": 1]> main '
    return onnx.parser.parse_model(f"{head} (float[2,3] x{given}) => (float[a,b] y) {{ {nodes} }}")


def test_an_array_is_a_spec_with_its_value(tile: Any) -> None:
    n = SymbolicDim("n")
    assert tile.infer_shapes(X, repeats(2, 1))[0].shape == (4, 3)
    assert tile.infer_shapes(TensorSpec((n, 3), np.float32), repeats(2, 1))[0].shape == (n * 2, 3)
    unknown = tile.infer_shapes(X, TensorSpec((2,), np.int64))[0].shape
    assert [type(dim) for dim in unknown] == [RuntimeDim, RuntimeDim]


def test_a_value_is_small_cannot_be_changed_and_does_not_decide_whether_specs_are_equal() -> None:
    found = []

    @onnx_op("values::Seen")
    def seen(x: F32, words: NDArray[np.str_] | None = None) -> F32:
        return x

    @seen.register_shape_inference
    def _(x, words=None):
        found.append((x, words))
        return x

    x = np.zeros((8, 8), np.float32)
    seen.infer_shapes(x, np.array(["a", "bc"]))
    spec, words = found.pop()
    assert (spec.value.shape, words.value.tolist(), words.value.dtype) == ((8, 8), ["a", "bc"], object)
    assert not spec.value.flags.writeable
    x[:] = 1
    assert not spec.value.any()
    assert spec == TensorSpec((8, 8), np.float32)
    assert hash(spec) == hash(TensorSpec((8, 8), np.float32))
    assert spec.like(shape=(8, 8)).value is None
    seen.infer_shapes(np.zeros((13, 5), np.float32))
    assert found.pop()[0].value is None


def test_a_plain_call_knows_values(tile: Any) -> None:
    assert tile(X, repeats(2, 2)).shape == (4, 6)
    tile.register_shape_inference(lambda x, repeats: x if repeats.value is not None else tiled(x, repeats))
    with pytest.raises(OutputError, match=r"returned shapes \[4, 3\] and the shape function gives \[2, 3\]"):
        tile(X, repeats(2, 1))


@pytest.mark.parametrize("node", ["r = Constant<value_ints=[2, 1]>()", "r = Constant<value=int64[2] {2, 1}>()"])
def test_onnx_knows_constants(tile: Any, node: str) -> None:
    is_known = "value_ints" not in node or onnx.defs.onnx_opset_version() > 24  # onnx 1.19 loses their dimension
    assert inferred(model_of(f"{node} y = values.Tile(x, r)")) == ([4, 3] if is_known else ["a", "b"])


def test_onnx_knows_initializers_that_the_model_itself_holds(tile: Any) -> None:
    model = model_of("y = values.Tile(x, r)")
    model.graph.initializer.append(numpy_helper.from_array(repeats(2, 1), "r"))
    assert inferred(model) == [4, 3]
    external = model.graph.initializer[0]
    external.data_location = onnx.TensorProto.EXTERNAL
    external.external_data.add(key="location", value="absent.bin")
    external.ClearField("raw_data")
    assert inferred(model) == ["a", "b"]


def test_onnx_does_not_know_inputs(tile: Any) -> None:
    assert inferred(model_of("y = values.Tile(x, r)", ", int64[2] r")) == ["a", "b"]


@pytest.mark.parametrize("given", ["", ", int64[2] r"])
def test_sessions_take_sizes_from_the_kernel(tile: Any, given: str) -> None:
    constant = "" if given else "r = Constant<value_ints=[2, 1]>()"
    session = pyops.InferenceSession(model_of(f"{constant} y = values.Tile(x, r)", given))
    # The same shapes with other values: what a session keeps of the first call must not decide the next.
    for counts in [(2, 1), (1, 3), (2, 1)] if given else [(2, 1)] * 2:
        feed = {"x": X, "r": repeats(*counts)} if given else {"x": X}
        np.testing.assert_array_equal(session.run(None, feed)[0], np.tile(X, counts))


def test_compiled_kernels_are_the_same(tile: Any) -> None:
    pytest.importorskip("numba")

    @onnx_op("values::Repeat", compile=True)
    def repeat(x: F32, count: I64, *, out: F32 | None = None) -> F32:
        result = np.empty(len(x) * count[0], np.float32)
        for index in range(len(result)):
            result[index] = x[index // count[0]]
        return result

    @repeat.register_shape_inference
    def _(x, count):
        return x.like(shape=(new_dim() if count.value is None else x.shape[0] * int(count.value[0]),))

    repeat.compile(X[0], repeats(2))
    session = pyops.InferenceSession(pyops.testing.Sample(repeat, X[0], repeats(2)).model())
    names = [item.name for item in session.get_inputs()]
    for count in (2, 3, 1, 2):
        wanted = np.repeat(X[0], count)
        np.testing.assert_array_equal(repeat(X[0], repeats(count)), wanted)
        result = session.run(None, dict(zip(names, (X[0], repeats(count)), strict=True)))[0]
        np.testing.assert_array_equal(result, wanted)


def test_check_calls_a_shape_function_with_values_and_without(tile: Any) -> None:
    report = pyops.testing.check(tile, X, repeats(2, 1), raise_exception=False)
    assert report["shape_function"].status == "passed", report

    tile.register_shape_inference(lambda x, repeats: tiled(x, repeats) if repeats.value.size else x)
    report = pyops.testing.check(tile, X, repeats(2, 1), raise_exception=False)
    assert "AttributeError" in report["shape_function"].reason
    assert "where no value is known (spec.value is None)" in report["shape_function"].reason

    tile.register_shape_inference(lambda x, repeats: x if repeats.value is not None else tiled(x, repeats))
    report = pyops.testing.check(tile, X, repeats(2, 1), raise_exception=False)
    assert report["shape_function"].status == "failed"


def test_torch_takes_sizes_from_the_kernel(tile: Any) -> None:
    torch = pytest.importorskip("torch")
    exporters = pytest.importorskip("exporters")
    torch_tile = exporters.custom_op(tile, "values::tile")

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch_tile(x, torch.tensor([2, 1]))

    model, args = Model().eval(), (torch.from_numpy(X),)
    report = exporters.verify(model, args, exporters.export(model, args))
    assert report.ok, report
