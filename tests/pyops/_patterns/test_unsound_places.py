"""Models at which a search by formulas goes wrong: they stay right, without the comparison of numbers too."""

import contextlib
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import InputError, ModelError

T = TypeVar("T", np.float16, np.float32, np.float64)
GATED = "(float[3,8] x, float[3,8] z) => (float[3,8] y)"
ONE = "(float[3,8] x) => (float[3,8] y)"
CONSTANT = torch.arange(128.0).reshape(1, 128)


def parse(text: str, functions: str = "", imports: str = "") -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["": 20{imports}]> main '
    return onnx.parser.parse_model(head + text + functions)


def outputs(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def array(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.fixture
def declare():
    """Return what makes an op of one or two inputs whose kernel calls its decomposition, which is in torch."""
    with pyops.testing.isolated_declarations():

        def made(decomposition, count=1, **settings):
            def compute(*arrays):
                return decomposition(*(torch.tensor(item) for item in arrays)).numpy()

            def one(x: NDArray[T]) -> NDArray[T]:
                return compute(x)

            def two(x: NDArray[T], z: NDArray[T]) -> NDArray[T]:
                return compute(x, z)

            op = onnx_op(settings.pop("name", "unsound::Op"), **settings)(one if count == 1 else two)
            op.register_decomposition(decomposition)
            return op

        yield made


# By what is odd: the decomposition, how many inputs it has, and a model that computes something else.
OTHERS = {
    "a logarithm of a square": (
        lambda x, z: 2 * torch.log(x) + z,
        2,
        parse(GATED + "{ e = Mul(x, x) l = Log(e) y = Add(l, z) }"),
    ),
    "an axis counted from the first": (
        lambda x: x - x.mean(1, keepdim=True),
        1,
        parse(ONE + "<int64[1] first = {0}> { m = ReduceMean(x, first) y = Sub(x, m) }"),
    ),
    "a branch on a size": (
        lambda x: x * x if x.shape[-1] > 7 else x * 2,
        1,
        parse("(float[3,4] x) => (float[3,4] y) { y = Mul(x, x) }"),
    ),
    "a branch on a dynamic size": (
        lambda x: x * x if x.shape[-1] < 16 else x * x * 2,
        1,
        parse("(float[n,d] x) => (float[n,d] y) { y = Mul(x, x) }"),
    ),
    "a branch on a dynamic size of 1": (
        lambda x: x * x * 2 if x.shape[0] == 1 else x * x,
        1,
        parse("(float[n,d] x) => (float[n,d] y) { y = Mul(x, x) }"),
    ),
    "parts of rows of another length": (
        lambda x: torch.sigmoid(x[..., 0:2]) * x[..., 2:4],
        1,
        parse(
            "(float[n,6] x) => (float[m,2] y) <int64[3] sizes = {-1,2,2}, int64 zero = {0}, int64 one = {1}> "
            "{ r = Reshape(x, sizes) p = Gather<axis=1>(r, zero) q = Gather<axis=1>(r, one) s = Sigmoid(p) "
            "y = Mul(s, q) }"
        ),
    ),
    "a number that is drawn": (
        lambda x: torch.abs(x) + 1,
        1,
        parse(ONE + "<float p = {0.999}> { b = Bernoulli(p) a = Abs(x) y = Add(a, b) }"),
    ),
    "a size that equals a constant": (
        lambda x, z: x.shape[-1] // 4 * torch.abs(x) + 2 * torch.exp(z),
        2,
        parse(
            "(float[3,16] x, float[3,16] z) => (float[3,16] y) <float two = {2.0}> "
            "{ t = Abs(x) e = Exp(z) a = Mul(two, t) b = Mul(e, two) y = Add(a, b) }"
        ),
    ),
    "a size in the factor of all": (
        lambda x, z: torch.cos(x).sum(-1, keepdim=True) * z,
        2,
        parse(
            "(float[3,64] x, float[3,64] z) => (float[3,64] y) <int64[1] last = {-1}, float eight = {8.0}> "
            "{ r = Cos(x) m = ReduceMean(r, last) s = Mul(m, eight) y = Mul(s, z) }"
        ),
    ),
    "a large constant": (
        lambda x: x * CONSTANT.to(x.dtype),
        1,
        parse("(float[3,128] x, float[3,128] k) => (float[3,128] y) { y = Mul(x, k) }"),
    ),
    "dots in an Einsum": (
        lambda x, z: (torch.exp(x) @ z).transpose(-1, -2),
        2,
        parse(
            "(float[2,4,4] x, float[2,4,4] z) => (float[2,4,4] y) { e = Exp(x) "
            'k = Einsum<equation="...ij,...jk->...ki">(e, z) y = Transpose<perm=[0,2,1]>(k) }'
        ),
    ),
    "the mean of a layer norm": (
        lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]) * 3,
        1,
        parse(
            "(float[3,8] x) => (float[3,1] y) <float[8] w = {1,1,1,1,1,1,1,1}, float three = {3.0}> "
            "{ n, m = LayerNormalization(x, w) y = Mul(m, three) }"
        ),
    ),
}


@pytest.mark.parametrize("odd", OTHERS)
@pytest.mark.parametrize("verify", [True, False])
def test_what_computes_something_else_is_not_replaced(declare, odd, verify):
    decomposition, count, model = OTHERS[odd]
    assert not pyops.replace(model, [declare(decomposition, count)], verify=verify).places


def test_the_reason_names_the_line_that_depends_on_a_dynamic_size(declare):
    op = declare(lambda x: x * x if x.shape[-1] < 16 else x * 2)
    (near,) = pyops.replace(parse("(float[n,d] x) => (float[n,d] y) { y = Mul(x, x) }"), [op]).near
    assert "depends on a size that is dynamic in the model: " in near.reason
    assert "x.shape[-1] < 16" in near.reason
    assert pyops.replace(parse("(float[n,8] x) => (float[n,8] y) { y = Mul(x, x) }"), [op]).places


def test_places_are_found_for_axes_counted_from_the_first_one_and_factors_of_all(declare):
    centered = declare(lambda x: x - x.mean(1, keepdim=True))
    for shape in ("3,8", "3,8,5", "3,8,5,2"):
        model = parse(
            f"(float[{shape}] x) => (float[{shape}] y) <int64[1] axis = {{1}}> "
            "{ m = ReduceMean(x, axis) y = Sub(x, m) }"
        )
        assert len(pyops.replace(model, [centered]).places) == 1
    summed = declare(lambda x, z: torch.cos(x).sum(-1, keepdim=True) * z, 2, name="unsound::Sum")
    for size in (8, 64):
        shape = f"float[3,{size}]"
        model = parse(
            f"({shape} x, {shape} z) => ({shape} y) <int64[1] last = {{-1}}> "
            "{ r = Cos(x) s = ReduceSum(r, last) y = Mul(s, z) }"
        )
        assert len(pyops.replace(model, [summed]).places) == 1


def test_an_input_that_a_number_makes_a_tensor_of_another_rank(declare):
    model = parse(
        "(float[4,1] a, float[1] v, float[4,5,1] q, float[5,4] x) => (float[4,1] y, float[4,5,5] z) "
        "<float[1,1] one = {1.0}, float[1,1,1] two = {2.0}> { m = Mul(v, one) e = Exp(a) y = MatMul(e, m) "
        "k = Mul(x, two) t = Transpose<perm=[2,0,1]>(k) z = MatMul(q, t) }"
    )
    feed = {"a": array(4, 1), "v": array(1), "q": array(4, 5, 1), "x": array(5, 4)}
    ops = [
        declare(lambda x, z: torch.exp(x) @ z, 2),
        declare(lambda x, z: x @ z.transpose(-1, -2), 2, name="unsound::Turned"),
    ]
    replaced = pyops.replace(model, ops, verify=False).model
    for own, right in zip(outputs(replaced, feed), outputs(model, feed), strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-5)


@pytest.mark.parametrize("keep_shared", [True, False])
def test_nodes_of_a_place_that_is_refused_stay(declare, keep_shared):
    refused = declare(lambda x, z: torch.cos(x) * torch.cos(z), 2, name="unsound::Refused", version=2)
    kept = declare(lambda x: torch.exp(torch.cos(x)))
    model = parse(
        "(float[3,8] x, float[3,8] u) => (float[3,8] y, float[3,8] z) "
        "{ c = Cos(x) y = Exp(c) d = Cos(u) z = Mul(c, d) }",
        imports=', "unsound": 1',
    )
    replaced = pyops.replace(model, [refused, kept], keep_shared=keep_shared)
    if keep_shared:
        assert [(place.nodes, place.shared) for place in replaced.places] == [(("Exp of y",), ("c (Cos)",))]
    else:
        assert [item.output for item in replaced.refused] == ["z", "y"]


def test_a_kernel_that_overflows_where_the_nodes_do_not():
    with pyops.testing.isolated_declarations():

        @onnx_op("unsound::Norm")
        def rms_norm(x: NDArray[T]) -> NDArray[T]:
            with np.errstate(all="ignore"):
                return (x / np.sqrt(np.mean(x * x, -1, keepdims=True, dtype=x.dtype))).astype(x.dtype)

        @rms_norm.register_decomposition
        def _(x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))

        model = parse(
            "(float16[3,8] x) => (float16[3,8] y) <int64[1] last = {-1}> "
            "{ f = Cast<to=1>(x) s = Mul(f, f) m = ReduceMean(s, last) r = Sqrt(m) q = Div(f, r) y = Cast<to=10>(q) }"
        )
        replaced = pyops.replace(model, [rms_norm])
    assert not replaced.places
    assert "differs by up to" in replaced.refused[0].reason


def test_functions_of_the_model_are_not_overwritten(declare):
    op = declare(lambda x: torch.exp(x * x))
    function = '<domain: "unsound", opset_import: ["": 20]> Op (x) => (y) { y = Relu(x) }'
    model = parse(
        "(float[3,8] x) => (float[3,8] y, float[3,8] z) { y = unsound.Op(x) s = Mul(x, x) z = Exp(s) }",
        function,
        ', "unsound": 1',
    )
    replaced = pyops.replace(model, [op])
    assert replaced.refused[0].reason.startswith("the model has another function of that name")
    x = {"x": array(3, 8)}
    assert all(map(np.array_equal, outputs(replaced.model, x), outputs(model, x)))


def test_a_model_is_searched_again(declare):
    op = declare(lambda x: torch.exp(x * x))
    model = parse(ONE + "{ s = Mul(x, x) y = Exp(s) }")
    once = pyops.replace(model, [op]).model
    more = onnx.helper.make_node("Mul", ["y", "y"], ["t"]), onnx.helper.make_node("Exp", ["t"], ["u"])
    once.graph.node.extend(more)
    once.graph.output.append(onnx.helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, [3, 8]))
    again = pyops.replace(once, [op])
    assert [place.output for place in again.places] == ["u"]
    x = {"x": array(3, 8) / 2}
    np.testing.assert_allclose(outputs(again.model, x)[1], outputs(once, x)[1], rtol=1e-5)


def test_names_of_the_model_stay_its_own(declare):
    op = declare(lambda x: torch.sigmoid(x) * x)
    model = parse(
        "(float[3,8] x, float[3,8] y_replaced) => (float[3,8] z, bool[3,8] mask) "
        "{ s = Sigmoid(x) k = Mul(s, x) y, mask = Dropout(k) z = Add(y, y_replaced) }"
    )
    replaced = pyops.replace(model, [op])
    assert replaced.counts == {"unsound::Op": 1}
    onnx.checker.check_model(replaced.model, full_check=True)
    product = declare(lambda x, z: x @ z.transpose(-1, -2), 2, name="unsound::Product")
    turned = parse(
        "(float[2,5,4] q, float[3,2,4] k, float[2,5,3] y_input_1) => (float[2,5,3] z) "
        "{ t = Transpose<perm=[1,2,0]>(k) y = MatMul(q, t) z = Add(y, y_input_1) }"
    )
    onnx.checker.check_model(pyops.replace(turned, [product]).model, full_check=True)


def test_the_text_of_an_output_and_a_version_that_is_imported(declare):
    model = parse(ONE + "{ s = Mul(x, x) y = Exp(s) }", imports=', "unsound": 1')
    model.graph.output[0].doc_string = "the result"
    assert pyops.replace(model, [declare(lambda x: torch.exp(x * x))]).model.graph.output[0].doc_string == "the result"
    refused = pyops.replace(model, [declare(lambda x: torch.exp(x * x), version=3)]).refused
    assert refused[0].reason == "the model imports version 1 of unsound, and the op is of version 3"


def test_other_names_of_domains_defaults_that_are_fed_and_scalars(declare):
    op = declare(lambda x, z: torch.cos(x) * torch.cos(z), 2)
    model = parse(
        "(float[3,8] x, float[8] w) => (float[3,8] y) <float[8] w = {1,2,3,4,5,6,7,8}> "
        "{ c = Cos(x) d = Cos(w) y = Mul(c, d) }"
    )
    model.opset_import[0].domain = "ai.onnx"
    assert len(pyops.replace(model, [op], inputs={"x": array(3, 8), "w": array(8)}).places) == 1
    scalars = parse("(float x, float z) => (float y) { c = Cos(x) d = Cos(z) y = Mul(c, d) }")
    assert len(pyops.replace(scalars, [op]).places) == 1


def test_numbers_that_are_odd(declare):
    cube = declare(lambda x: x * x * x)
    small = parse(
        "(double[3,8] x) => (double[3,8] y) <double t = {1e-120}> { a = Mul(x, t) b = Mul(a, a) y = Mul(b, a) }"
    )
    assert not pyops.replace(small, [cube]).places
    power = parse(ONE + "<float q = {0.0}> { y = Pow(x, q) }")
    power.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(np.nan, np.float32), "q"))
    assert not pyops.replace(power, [cube]).places
    chain = " ".join(f"v{number + 1} = Neg(v{number})" for number in range(1500))
    deep = parse(f"(float[3] v0) => (float16[3] y) {{ {chain} y = Cast<to=10>(v1500) }}")
    assert not pyops.replace(deep, [cube], verify=False).places


def test_an_op_that_returns_float8():
    with pyops.testing.isolated_declarations():

        @onnx_op("unsound::Narrow")
        def narrow(x: NDArray[np.float32]) -> NDArray[ml_dtypes.float8_e4m3fn]:
            return np.exp(x).astype(ml_dtypes.float8_e4m3fn)

        @narrow.register_decomposition
        def _(x):
            return torch.exp(x).to(torch.float8_e4m3fn)

        model = parse("(float[3,8] x) => (float8e4m3fn[3,8] y) { k = Exp(x) y = Cast<to=17>(k) }")
        pyops.replace(model, [narrow])


@pytest.mark.parametrize("inputs", [{}, {"x": np.zeros((2, 8), np.float32)}, {"x": np.zeros((3, 8))}, {"x": None}])
def test_inputs_with_which_the_model_does_not_run(declare, inputs):
    model = parse(ONE + "{ s = Mul(x, x) y = Exp(s) }")
    with pytest.raises(InputError, match="the model does not run with these inputs: "):
        pyops.replace(model, [declare(lambda x: torch.exp(x * x))], inputs=inputs)


def test_generated_inputs_with_which_the_model_does_not_run(declare):
    model = parse(
        "(int64[n] i, float[n,8] x) => (float[n,8] y) <int64 two = {2}, float[1,8] t = {1,2,3,4,5,6,7,8}> "
        "{ j = Add(i, two) k = Gather(t, j) s = Mul(x, x) e = Exp(s) y = Mul(k, e) }"
    )
    with pytest.raises(InputError, match="pass inputs= with which it does"):
        pyops.replace(model, [declare(lambda x: torch.exp(x * x))])


def _duplicated(model):
    model.graph.node[1].output[0] = "s"


def _cyclic(model):
    model.graph.node[0].input[0] = "y"


def _of_three(model):
    model.graph.node[1].input.append("x")


def _without_equation(model):
    model.graph.node[0].op_type = "Einsum"


@pytest.mark.parametrize("damage", [_duplicated, _cyclic, _of_three, _without_equation])
def test_damaged_models_are_errors_or_have_no_place(declare, damage):
    model = parse(ONE + "{ s = Sigmoid(x) y = Mul(s, x) }")
    damage(model)
    with contextlib.suppress(ModelError):
        assert not pyops.replace(model, [declare(lambda x: torch.sigmoid(x) * x)], verify=False).places


def test_sparse_initializers_and_an_op_alone_are_refused(declare):
    op = declare(lambda x: torch.exp(x * x))
    model = parse(ONE + "{ s = Mul(x, x) y = Exp(s) }")
    with pytest.raises(InputError, match=r"pass ops=\[one\]"):
        pyops.replace(model, op)
    model.training_info.add()
    with pytest.raises(ModelError, match="training_info cannot be changed"):
        pyops.replace(model, [op])
    del model.training_info[:]
    sparse = model.graph.sparse_initializer.add()
    sparse.values.name = "unused"
    with pytest.raises(ModelError, match="sparse initializers or training_info cannot be changed"):
        pyops.replace(model, [op])


def test_the_quantization_of_the_value_stays(declare):
    model = parse(ONE + "{ s = Mul(x, x) y = Exp(s) }")
    model.graph.quantization_annotation.add(tensor_name="y").quant_parameter_tensor_names.add(key="SCALE", value="x")
    replaced = pyops.replace(model, [declare(lambda x: torch.exp(x * x))]).model
    assert list(replaced.graph.quantization_annotation) == list(model.graph.quantization_annotation)


def test_a_decomposition_that_returns_its_input_is_no_pattern(declare):
    replaced = pyops.replace(parse(ONE + "{ s = Mul(x, x) y = Exp(s) }"), [declare(lambda x: x)])
    assert "returns an input, for which a model needs no node" in replaced.notes[0]


def test_large_constants_are_not_printed(declare):
    row = ", ".join(["1.5"] * 99)
    model = parse(
        f"(float[3,99] x) => (float[3,99] y) {{ c = Constant<value = float[99] {{{row}}}>() k = Cos(c) y = Mul(k, x) }}"
    )
    (near,) = pyops.replace(model, [declare(lambda x: torch.exp(x) * torch.cos(x))]).near
    assert len(near.reason) < 200


def _repeated(x):
    for _ in range(14):
        x = torch.abs(x) + torch.cos(x) * torch.exp(x)
    return x


def test_a_step_that_is_repeated(declare):
    steps = " ".join(
        f"a{i} = Abs(v{i}) c{i} = Cos(v{i}) e{i} = Exp(v{i}) m{i} = Mul(e{i}, c{i}) v{i + 1} = Add(m{i}, a{i})"
        for i in range(14)
    )
    model = parse(f"(float[3,8] x) => (float[3,8] v14) {{ v0 = Neg(x) {steps} }}")
    (place,) = pyops.replace(model, [declare(_repeated)], verify=False).places
    assert len(place.nodes) == 5 * 14


@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_long_chains_of_additions_and_products(declare, operator):
    inputs = ", ".join(f"float[3] x{i}" for i in range(400))
    chain = " ".join(f"v{i + 1} = {operator}(v{i}, x{i})" for i in range(400))
    model = parse(f"({inputs}) => (float[3] y) {{ v0 = Neg(x0) {chain} s = Sigmoid(v400) y = Mul(s, v400) }}")
    assert pyops.replace(model, [declare(lambda x: torch.sigmoid(x) * x)], verify=False).places
