"""What the extensions engine supports, and how: the table of sample ops and the hazards are tested elsewhere."""

from typing import TypeVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from pyops.errors import EngineError, InputError, ModelError, OutputError
from tests.helpers.models import chain, make_model

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions does not support.
pytestmark = pytest.mark.filterwarnings("ignore:skipped ops")

F32, Str = NDArray[np.float32], NDArray[np.str_]
Half = TypeVar("Half", np.float16, np.float32)
x = np.arange(3, dtype=np.float32)


def session(model):
    return pyops.InferenceSession(model, engine="extensions")


def test_what_it_cannot_carry_is_one_line_per_op_that_names_the_native_engine():
    @onnx_op("ext::Optional")
    def optional(x: F32, y: F32 | None = None) -> F32:
        return x

    @onnx_op("ext::Variadic")
    def variadic(*xs: F32) -> F32:
        return xs[0]

    @onnx_op("ext::Half")
    def half(x: NDArray[np.float16]) -> F32:
        return x.astype(np.float32)

    @onnx_op("ext::Many")
    def many(x: F32) -> tuple[F32, ...]:
        return (x,)

    cast = helper.make_node("Cast", ["a"], ["h"], to=onnx.TensorProto.FLOAT16)
    nodes = [
        helper.make_node("Optional", ["x"], ["a"], domain="ext"),
        cast,
        helper.make_node("Half", ["h"], ["b"], domain="ext"),
        helper.make_node("Variadic", ["b"], ["c"], domain="ext"),
        helper.make_node("Many", ["c"], ["y"], domain="ext"),
    ]
    model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"ext": 1})
    with pytest.raises(EngineError) as caught:
        session(model)
    assert str(caught.value).splitlines() == [
        "the extensions engine cannot host the model's ops:",
        "  - ext::Optional: onnxruntime-extensions does not support its optional input 'y'; the native engine does",
        "  - ext::Half: onnxruntime-extensions does not support its type float16; the native engine does",
        "  - ext::Variadic: onnxruntime-extensions does not support its variadic input 'xs'; the native engine does",
        "  - ext::Many: onnxruntime-extensions does not support its variadic output 'outputs'; the native engine does",
    ]
    pyops.InferenceSession(model, engine="native").run(None, {"x": x})


def test_so_are_more_outputs_and_choices_of_types_than_it_has_room_for():
    @onnx_op("ext::Outputs")
    def outputs(x: F32) -> tuple[(F32,) * 257]:
        return (x,) * 257

    @onnx_op("ext::Choices")
    def choices(x: NDArray[np.number], y: NDArray[np.number], z: NDArray[np.number]) -> F32:
        return x

    nodes = [
        helper.make_node("Outputs", ["x"], [f"a{index}" for index in range(257)], domain="ext"),
        helper.make_node("Choices", ["a0", "a1", "a2"], ["y"], domain="ext"),
    ]
    model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"ext": 1})
    with pytest.raises(EngineError) as caught:
        session(model)
    assert str(caught.value).splitlines()[1:] == [
        "  - ext::Outputs: onnxruntime-extensions does not support its 257 outputs (256 at most); the native engine "
        "does",
        "  - ext::Choices: onnxruntime-extensions does not support its type parameters, which have more than "
        "256 combinations of types; the native engine does",
    ]


def test_of_an_op_of_several_types_it_carries_those_it_can():
    @onnx_op("ext::Same")
    def same(x: NDArray[Half]) -> NDArray[Half]:
        return x

    assert session(chain("ext::Same")).run(None, {"x": x})[0].tolist() == x.tolist()
    with pytest.raises(ModelError, match="the extensions engine does not support float16"):
        session(chain("ext::Same", dtype=np.float16))
    with pytest.raises(ModelError, match=r"ext::Same\(x: Half \(one of float16, float32\)\).* is declared"):
        session(chain("ext::Same", dtype=np.float64))


def test_attributes_of_all_kinds_arrive_exactly():
    @onnx_op("ext::Scale")
    def scale(x: F32, *, by: float, powers: list[int] = [1]) -> F32:  # noqa: B006
        powers.append(0)
        return sum((x * by) ** power for power in powers[:-1]).astype(np.float32)

    node = helper.make_node("Scale", ["x"], ["y"], domain="ext", by=0.123456789, powers=[1, 2])
    model = make_model([node], [("x", np.float32, None)], [("y", np.float32, None)], {"ext": 1})
    for _ in range(2):
        assert session(model).run(None, {"x": x})[0].tolist() == scale(x, by=0.123456789, powers=[1, 2]).tolist()


@onnx_op("ext::Scaled")
def scaled(x: F32, *, by: float = 1.0) -> F32:
    return x * np.float32(by)


FUNCTIONS = """
    <domain: "local", opset_import: ["ext": 1]> Scaled <by: float = 2.0> (x) => (y) {
        y = ext.Scaled <by: float = @by> (x)
    }
    <domain: "local", opset_import: ["local": 1]> Through <by> (x) => (y) { y = local.Scaled <by: float = @by> (x) }
    <domain: "local", opset_import: ["": 18, "ext": 1]> Older <by: float = 5.0> (x) => (y) {
        n = Neg(x)  y = ext.Scaled <by: float = @by> (n)
    }"""


@pytest.mark.parametrize(
    ("call", "factor"),
    [("Scaled", 2), ("Scaled <by = 3.0>", 3), ("Through", 2), ("Through <by = 3.0>", 3), ("Older", -5)],
)
def test_an_attribute_of_a_function_has_the_caller_s_value_or_its_default_on_native_alone(call, factor):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20, "ext": 1, "local": 1]>
        graph (float[n] x) => (float[n] y) <float[n] t> {{ t = local.{call} (x)  y = local.Scaled <by = 10.0> (t) }}
        {FUNCTIONS}""")
    result = pyops.InferenceSession(model).run(None, {"x": x})
    assert result[0].tolist() == (x * factor * 10).tolist()
    with pytest.raises(EngineError, match=r"attributes of the function that its node is in; use engine='native', or"):
        session(model)


def test_a_node_may_leave_out_outputs_and_stand_in_a_branch():
    @onnx_op("ext::Parts")
    def parts(x: F32) -> tuple[F32, F32, F32]:
        return x, x + 1, x + 2

    def branch(*outputs):
        node = helper.make_node("Parts", ["x"], outputs, domain="ext")
        return helper.make_graph(
            [node], "branch", [], [helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None)]
        )

    nodes = [
        helper.make_node("Constant", [], ["yes"], value=onnx.numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch("", "b"), else_branch=branch("b")),
    ]
    model = make_model(nodes, [("x", np.float32, None)], [("y", np.float32, None)], {"ext": 1})
    assert session(model).run(None, {"x": x})[0].tolist() == [1, 2, 3]


def test_versions_and_overrides_of_built_in_operators():
    for version in (1, 3):

        @onnx_op("ext::Versioned", version=version)
        def versioned(x: F32, *, version: int = version) -> F32:
            return x * np.float32(version)

    @onnx_op("ai.onnx::Gelu", override=True)
    def gelu(x: F32) -> F32:
        return x + 5

    for opset, factor in [(1, 1), (2, 1), (3, 3), (4, 3)]:
        node = helper.make_node("Versioned", ["x"], ["y"], domain="ext")
        model = make_model([node], [("x", np.float32, None)], [("y", np.float32, None)], {"ext": opset})
        assert session(model).run(None, {"x": x})[0].tolist() == (x * factor).tolist()
    assert session(chain("Gelu")).run(None, {"x": x})[0].tolist() == [5, 6, 7]


def test_a_model_of_an_opset_without_sequences_is_refused():
    model = chain("ext::Scaled")
    model.opset_import[0].version = 10
    with pytest.raises(EngineError, match=r"ONNX opset 11 or later, and this one imports opset 10; convert it .*"):
        session(model)
    model.opset_import[0].version = 11
    assert session(model).run(None, {"x": x})[0].tolist() == x.tolist()


STRINGS = {
    "nul": (np.array(["a\0b"], object), r"input 'x' contains 'a\\x00b', which has a NUL character"),
    "in-a-list": (["a", "b\0"], r"input 'x' contains 'b\\x00', which has a NUL character"),
    "not-utf-8": (np.array([b"\xff"]), r"input 'x' contains b'\\xff', .* not UTF-8"),
}


@pytest.mark.parametrize(("value", "message"), STRINGS.values(), ids=STRINGS.keys())
def test_strings_that_it_would_cut_off_or_end_the_process_for_are_refused(value, message):
    @onnx_op("ext::Text")
    def text(x: Str) -> Str:
        return x

    with pytest.raises(InputError, match=message):
        session(chain("ext::Text", dtype=np.object_)).run(None, {"x": value})


def test_a_kernel_cannot_return_a_string_that_would_be_cut_off():
    @onnx_op("ext::Text")
    def text(x: Str) -> Str:
        return np.array(["a\0b"], object)

    with pytest.raises(OutputError, match=r"'output' contains .* a NUL character"):
        session(chain("ext::Text", dtype=np.object_)).run(None, {"x": np.array(["a"], object)})
