"""Second kernels and shape functions: how they are registered, and what a shape function may return."""

from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from pyops import PyCustomOpDef, errors, onnx_op
from pyops.shapes import SymbolicDim, TensorSpec, broadcast, new_dim

T = TypeVar("T", np.float32, np.float64)
F32 = NDArray[np.float32]
N, M = SymbolicDim("n"), SymbolicDim("m")


@pytest.fixture
def op():
    @onnx_op("tests::Shaped")
    def shaped(x: NDArray[T], y: NDArray[T] | None = None, *, n: int = 1) -> NDArray[T]:
        return x

    return shaped


def spec(*shape, dtype=np.float32):
    return TensorSpec(shape, np.dtype(dtype))


@pytest.mark.parametrize("device", ["gpu", "CUDA", "", None])
def test_an_unknown_device_type_is_refused(op, device):
    with pytest.raises(errors.DeclarationError, match=r"register_kernel got .*; expected 'cpu' or 'cuda'"):
        op.register_kernel(device)


def test_a_registered_kernel_is_given_back_and_used(op):
    def other(x, y=None, *, n=1):
        return x * np.float32(n)

    assert op.register_kernel("cpu")(other) is other
    assert op(np.ones(1, np.float32), n=3).tolist() == [3]


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        lambda x: x,
        lambda x, y, *, n=1: x,
        lambda x, y=None: x,
        lambda x, y=None, *, n=1, more: x,
        lambda x, y, z, *, n: x,
        3,
    ],
    ids=["nothing", "no optional", "optional without a default", "no attribute", "one more", "third input", "int"],
)
def test_a_function_that_cannot_be_called_like_the_declared_one_is_refused(op, function):
    for register in (op.register_kernel("cuda"), op.register_shape_inference):
        with pytest.raises(
            errors.DeclarationError, match=r"cannot be called like the declared function .*tests::Shaped"
        ):
            register(function)


async def later(x, y=None, *, n=1): ...
async def yields_later(x, y=None, *, n=1):
    yield x


def yields(x, y=None, *, n=1):
    yield x


@pytest.mark.parametrize("function", [later, yields_later, yields])
def test_a_function_that_does_not_return_is_refused(op, function):
    @onnx_op("tests::Stateful")
    def stateful(*, x: int = 1, state: Any = None) -> F32:
        return state

    message = rf"tests::\w+: {function.__name__} is a generator or async, but it is called once and returns; write def"
    declare = onnx_op(op_type="tests::Later", inputs=[PyCustomOpDef.dt_float] * 2)
    for register in (
        op.register_kernel("cpu"),
        op.register_kernel("cuda"),
        op.register_shape_inference,
        stateful.register_setup,
        declare,
    ):
        with pytest.raises(errors.DeclarationError, match=message):
            register(function)


def test_a_function_for_a_variadic_input_takes_more_than_one():
    @onnx_op("tests::Variadic")
    def variadic(*xs: F32) -> F32:
        return xs[0]

    with pytest.raises(errors.DeclarationError, match="cannot be called like the declared function"):
        variadic.register_shape_inference(lambda x: x)


def test_a_shape_function_gets_specs_and_converted_attributes(op):
    seen = []

    @op.register_shape_inference
    def _(x, y=None, *, n=1):
        seen.append((x, y, n))
        return x.like(shape=(*x.shape, n))

    assert op.infer_shapes(spec(2, N), n=np.int64(3)) == (spec(2, N, 3),)
    assert op.infer_shapes(spec(2), None) == (spec(2, 1),)
    assert seen == [(spec(2, N), None, 3), (spec(2), None, 1)]


def test_without_a_shape_function_the_error_says_how_to_register_one(op):
    with pytest.raises(errors.ShapeInferenceError, match=r"register one with @shaped\.register_shape_inference"):
        op.infer_shapes(spec(2))


@pytest.mark.parametrize(
    ("result", "fragment"),
    [
        ((2, 3), "returned (2, 3), which is a shape; return a spec of that shape, such as x.like(shape=...)"),
        ((N, N), "returned (n, n), which is a shape"),
        ((spec(2), spec(2)), "returned 2 specs; 1 outputs are declared"),
        (None, "returned None; return an input's spec, or spec.like(shape=..., dtype=...)"),
        (((2, 3),), "returned ((2, 3),), which is a shape"),
        ([spec(2)], "returned list; return an input's spec"),
        (spec(2, dtype=np.float64), "gives dtype float64, but declared is float32; return spec.like(dtype=np.float32)"),
        ((), "returned (), which is a shape"),
    ],
    ids=str,
)
def test_a_shape_function_that_says_something_else_is_refused(op, result, fragment):
    op.register_shape_inference(lambda x, y=None, *, n=1: result)
    with pytest.raises(errors.ShapeInferenceError) as raised:
        op.infer_shapes(spec(2))
    assert fragment in str(raised.value)


@pytest.mark.parametrize(("result", "given"), [([spec(2), spec(2)], "list"), (None, "None")])
def test_a_shape_function_of_several_outputs_returns_a_tuple(result, given):
    @onnx_op("tests::Several")
    def several(x: F32) -> tuple[F32, F32]:
        return x, x

    several.register_shape_inference(lambda x: result)
    with pytest.raises(errors.ShapeInferenceError, match=f"returned {given}; return a tuple of specs, one for each"):
        several.infer_shapes(spec(2))


def test_inputs_of_a_shape_function_are_checked_like_those_of_a_call(op):
    op.register_shape_inference(lambda x, y=None, *, n=1: x)
    with pytest.raises(errors.InputError, match="input 'x' is int64"):
        op.infer_shapes(spec(2, dtype=np.int64))


def test_a_plain_call_holds_the_result_against_the_shape_function(op):
    op.register_shape_inference(lambda x, y=None, *, n=1: x.like(shape=(n, new_dim())))
    assert op(np.ones((3, 7), np.float32), n=3).shape == (3, 7)
    with pytest.raises(errors.OutputError, match=r"returned shapes \[3, 7\] and the shape function gives \[4, \?\]"):
        op(np.ones((3, 7), np.float32), n=4)


@given(st.lists(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), min_size=1, max_size=3))
def test_broadcast_is_numpys_and_refuses_what_numpy_refuses(shapes):
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(errors.ShapeInferenceError, match="do not broadcast"):
            broadcast(*[spec(*shape) for shape in shapes])
    else:
        assert broadcast(*[spec(*shape) for shape in shapes]) == expected


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [([(N, 1), (3,)], (N, 3)), ([(N,), (N,)], (N,)), ([(N,), (4,)], (4,)), ([(1,), (N,)], (N,)), ([(), (N,)], (N,))],
)
def test_broadcast_keeps_symbols_where_it_can(shapes, expected):
    assert broadcast(*[spec(*shape) for shape in shapes]) == expected


def test_two_different_symbols_broadcast_to_a_dimension_known_at_run_time():
    (dim,) = broadcast(spec(N), spec(M))
    assert dim not in (N, M)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (2 * N, "2*n"),
        (N * 2 + 1, "(n*2)+1"),
        (N + M, "n+m"),
        (10 - N, "10-n"),
        (N // 2, "n//2"),
        (N % 2, "n%2"),
        (N + 0, "n"),
        (0 + N, "n"),
        (N * 1, "n"),
        (N // 1, "n"),
        (10 // N, "10//n"),
        (10 % N, "10%n"),
        (-(-N // 2), "0-((0-n)//2)"),
    ],
)
def test_arithmetic_on_symbols_gives_expressions(dim, text):
    assert isinstance(dim, SymbolicDim)
    assert str(dim) == text


@given(st.integers(1, 50), st.integers(1, 9), st.sampled_from(["+", "-", "*", "//", "%"]))
def test_an_expression_means_what_python_means_by_it(size, number, operator):
    terms = ("n", f"({number} * n)", "(n + n)", "-n")
    for text in (*(f"{term} {operator} {number}" for term in terms), f"{number} {operator} n"):
        expression = str(eval(text, {"n": N}))
        assert eval(expression, {"n": size}) == eval(text, {"n": size})


def test_what_is_known_of_a_symbol_is_said():
    assert N - N == N * 0 == N % 1 == 0
    assert SymbolicDim("n") == N != M
    assert len({N, SymbolicDim("n")}) == 1
    assert N + M == N + M != M + N
    assert N is not None != M
    assert N in (M, N)
    assert spec(N, 3) == spec(SymbolicDim("n"), 3) != spec(M, 3)
    dim = new_dim()
    assert dim == dim != new_dim()
    assert (N != "n", N == None, {1: "one", N: "n"}[N]) == (True, False, "n")  # noqa: E711


@pytest.mark.parametrize(
    "question",
    [
        lambda: N > 1,
        lambda: N <= M,
        lambda: bool(N),
        lambda: int(N),
        lambda: range(N),
        lambda: new_dim() > 0,
        lambda: N == 1,
        lambda: np.int64(1) == N,
        lambda: N + M != 1,
        lambda: N in (1, 2),
        lambda: 1 in (M, N),
        lambda: new_dim() == 1,
        lambda: spec(N, 3) == spec(2, 3),
    ],
)
def test_asking_a_symbol_for_its_size_says_what_to_do(question):
    with pytest.raises(errors.ShapeInferenceError, match=r"known only at run time; .*isinstance\(dim, int\)"):
        question()


@pytest.mark.parametrize("fraction", [lambda: N / 2, lambda: 2 / N, lambda: new_dim() / 2])
def test_a_fraction_of_a_symbol_says_how_to_divide(fraction):
    with pytest.raises(errors.ShapeInferenceError, match="divide with //"):
        fraction()


def test_a_run_time_dimension_equals_nothing_but_itself():
    dim = new_dim()
    assert dim == dim
    assert dim != new_dim()
    assert (dim - dim, str(dim + 1), dim + 1 == dim + 1) == (0, "?", False)


def test_a_spec_is_spelled_like_an_array():
    assert str(spec(2, N, 3 * N)) == "float32[2, n, 3*n]"
    assert spec(2, 3).ndim == 2


@pytest.mark.parametrize("text", [np.str_, str, "U7", np.object_, np.dtypes.StringDType()], ids=repr)
def test_a_spec_of_strings_has_the_dtype_that_kernels_see(text):
    assert TensorSpec((2,), text) == spec(2).like(dtype=text) == TensorSpec((2,), np.object_)
    assert str(TensorSpec((N,), text)) == "string[n]"


def test_a_shape_function_says_that_an_output_is_strings():
    @onnx_op("tests::Spell")
    def spell(x: F32) -> NDArray[np.str_]:
        return x.astype(str)

    spell.register_shape_inference(lambda x: x.like(dtype=np.str_))
    assert spell.infer_shapes(spec(N)) == (TensorSpec((N,), np.str_),)
    assert spell(np.ones(2, np.float32)).tolist() == ["1.0", "1.0"]
    spell.register_shape_inference(lambda x: x)
    with pytest.raises(
        errors.ShapeInferenceError,
        match=r"gives dtype float32, but declared is string; return spec\.like\(dtype=np\.str_\)",
    ):
        spell.infer_shapes(spec(N))


def test_numpys_integers_are_dimensions():
    assert spec(2, 3).like(shape=[np.prod((2, 3))]) == spec(6)
    assert isinstance(spec(2).like(shape=(np.int64(6),)).shape[0], int)


@pytest.mark.parametrize(
    ("shape", "fragment"),
    [
        ((2.0,), "a dimension is 2.0; divide with //"),
        ((-1,), "a dimension is -1; sizes start at 0, and -1 has no meaning here"),
        ((None,), "a dimension is None; use an int, or write pyops.shapes.new_dim() where the size is not known"),
        (
            ("n",),
            "a dimension is 'n'; in a shape function take symbols from the inputs' shapes, in a test write "
            "SymbolicDim('n'), or write pyops.shapes.new_dim()",
        ),
        (3, "like() got shape=3; a shape is a tuple"),
    ],
)
def test_what_is_no_shape_is_refused_with_the_fix(shape, fragment):
    with pytest.raises(errors.ShapeInferenceError) as raised:
        spec(2).like(shape=shape)
    assert fragment in str(raised.value)


@pytest.mark.parametrize(("given", "said"), [((2, 3), "tuple"), ([2, 3], "list")])
def test_shapes_are_inferred_from_specs_alone(op, given, said):
    op.register_shape_inference(lambda x, y=None, *, n=1: x)
    with pytest.raises(errors.InputError, match=rf"tests::Shaped: infer_shapes got {said}; pass specs, .*TensorSpec\("):
        op.infer_shapes(given)
