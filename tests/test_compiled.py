"""Kernels that numba compiles: in a session, where ONNX Runtime calls machine code, they give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from pyops.errors import CompileWarning, DeclarationError
from pyops.shapes import broadcast, new_dim
from tests.models import chain, sample_feed, sample_model
from tests.op_db import Sample

T = TypeVar("T", np.float16, np.float32, np.float64)
N = TypeVar("N", np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_)
F32, I64 = NDArray[np.float32], NDArray[np.int64]
X = np.array([[0.25, 1.5, -2.75], [3, 0, 1]], np.float32)

SAMPLES: list[Any] = []


def sample(id: str, op: Op[..., Any], *inputs: Any, **attributes: Any) -> None:
    case = Sample(f"{op.name}-{id}", op, inputs, attributes)
    SAMPLES.append(pytest.param(case, id=case.id))


@onnx_op("compiled::AddRound", compile=True)
def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
    return np.round(x + x, decimals)


sample("numpy-style", add_round, X, decimals=1)
sample("float64", add_round, X.astype(np.float64))
sample("scalar", add_round, np.array(0.25, np.float32), decimals=1)
sample("empty", add_round, X[:0])
sample("four-dimensions", add_round, X.reshape(1, 2, 1, 3))


@onnx_op("compiled::Loop", compile=True)
def loop(x: NDArray[N], *, out: NDArray[N] | None = None) -> NDArray[N]:
    if out is None:
        out = np.empty_like(x)
    for index in np.ndindex(x.shape):
        out[index] = x[index] + x[index]
    return out


loop.register_shape_inference(lambda x: x)
for _dtype in (np.float32, np.float64, np.int32, np.int64, np.uint8):
    sample(f"loop-style-{np.dtype(_dtype)}", loop, np.arange(6).reshape(2, 3).astype(_dtype))


@onnx_op("compiled::Not", compile=True)
def negate(x: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.logical_not(x)


sample("bool", negate, np.array([True, False]))


class Extremes(NamedTuple, Generic[T]):
    values: NDArray[T]
    index: I64


@onnx_op("compiled::Extremes", compile=True)
def extremes(x: NDArray[T]) -> Extremes[T]:
    return Extremes(x.max(), np.int64(x.argmax()))


sample("scalar-results", extremes, X)


@onnx_op("compiled::SumAndDifference", compile=True)
def sum_and_difference(x: F32, y: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
    if out is None:
        return x + y, x - y
    np.add(x, y, out[0])
    np.subtract(x, y, out[1])
    return out


sum_and_difference.register_shape_inference(lambda x, y: (x.like(shape=broadcast(x, y)),) * 2)
sample("two-buffers", sum_and_difference, X, X[:1])


@onnx_op("compiled::Clip", compile=True)
def clip(x: F32, low: F32 | None = None, high: F32 | None = None) -> F32:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


_one = np.ones(1, np.float32)
sample("only-required", clip, X)
sample("trailing-absent", clip, X, -_one, None)
sample("middle-absent", clip, X, None, _one)
sample("all-present", clip, X, -_one, _one)


@onnx_op("compiled::Total", compile=True)
def total(*xs: NDArray[T]) -> NDArray[T]:
    result = xs[0].copy()
    for x in xs[1:]:
        result += x
    return result


sample("two", total, X, X)
sample("many", total, *[X] * 7)


@onnx_op("compiled::Halves", compile=True)
def halves(x: NDArray[T]) -> tuple[NDArray[T], ...]:
    half = len(x) // 2
    return x[:half], x[half:].T


sample("variadic-outputs", halves, X)


@onnx_op("compiled::Attributes", compile=True)
def attributes(
    x: F32,
    *,
    i: int,
    f: float,
    b: bool,
    ints: list[int],
    floats: tuple[float, ...] = (0.5, 2.5),
    mode: Literal["plus", "minus"] = "plus",
    words: list[str] = ["a", "bc"],  # noqa: B006
    table: np.ndarray | None = None,
    nothing: int | None = None,
) -> F32:
    y = x * f + np.float32(i) if mode == "plus" else x * f - np.float32(i)
    for value in ints:
        y[0, 0] += np.float32(value)
    if b and nothing is None:
        y = y + np.float32(len(words[1]))
    if table is not None:
        y = y + table
    return y * floats[1]


_given: dict[str, Any] = {"i": 3, "f": 0.1, "b": True, "ints": [2, -5]}
sample("defaults", attributes, X, **_given)
sample("given", attributes, X, **_given | {"b": False, "mode": "minus", "floats": (1.5, -2.0)})
sample("tensor", attributes, X, **_given, table=np.arange(3, dtype=np.float32))


@onnx_op("compiled::Softmax", compile=True)
def softmax(x: NDArray[T]) -> NDArray[T]:
    result = np.empty_like(x)
    for i in range(len(x)):
        e = np.exp(x[i] - np.max(x[i]))
        result[i] = e / np.sum(e)
    return result


sample("float32", softmax, X)
sample("float64", softmax, X.astype(np.float64))


@onnx_op("compiled::Unique", compile=True)
def unique(x: I64) -> I64:
    return np.unique(x)


unique.register_shape_inference(lambda x: x.like(shape=(new_dim(),)))
sample("run-time-size", unique, np.array([3, 1, 3]))


def triple(x: Any, times: Any) -> Any:
    return x if times <= 1 else x + triple(x, times - 1)


@onnx_op("compiled::Helper", compile=True)
def helper(x: F32) -> F32:
    result = np.zeros_like(x)
    for i in range(x.size):
        result.flat[i] = triple(x.flat[i], 3)
    return result


sample("plain-function-called", helper, X)


@pytest.fixture
def python_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls in which a session went through the interpreter."""
    from pyops.engines.compiled_node import CompiledNode

    calls: list[int] = []
    compute = CompiledNode.compute
    monkeypatch.setattr(CompiledNode, "compute", lambda self, context: (calls.append(1), compute(self, context))[1])
    return calls


def plain(op: Op[..., Any]) -> Callable[..., Any]:
    return op.kernels["cpu"].plain


@pytest.mark.parametrize("case", SAMPLES)
def test_a_session_calls_machine_code_that_gives_what_numpy_gives(case: Sample, python_calls: list[int]) -> None:
    values = case.op.signature.convert_attributes(case.attributes)
    expected = plain(case.op)(*case.inputs, **values)
    expected = expected if isinstance(expected, tuple) else (expected,)
    session = pyops.InferenceSession(sample_model(case))
    for _ in range(3):
        for given, wanted in zip(session.run(None, sample_feed(case)), expected, strict=True):
            assert given.dtype == wanted.dtype
            np.testing.assert_allclose(given, wanted, rtol=1e-6, atol=1e-6)
    assert len(python_calls) == 1, "the first call compiles; the others do not need the interpreter"


@pytest.mark.parametrize("case", SAMPLES)
def test_a_plain_call_runs_the_compiled_function(case: Sample) -> None:
    values = case.op.signature.convert_attributes(case.attributes)
    expected = plain(case.op)(*case.inputs, **values)
    given = case.op(*case.inputs, **case.attributes)
    assert isinstance(given, tuple) == isinstance(expected, tuple)
    assert getattr(given, "_fields", None) == getattr(expected, "_fields", None)
    for a, b in zip(
        given if isinstance(given, tuple) else (given,),
        expected if isinstance(given, tuple) else (expected,),
        strict=True,
    ):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def session_for(body: str, inputs: str = "float[n] x", outputs: str = "float[m] y", **options: Any) -> Any:
    text = f'<ir_version: 8, opset_import: ["" : 18, "compiled" : 1]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return pyops.InferenceSession(onnx.parser.parse_model(text), **options)


def test_machine_code_serves_changing_ranks_and_shapes(python_calls: list[int]) -> None:
    session = session_for("y = compiled.Loop(x)", "float x", "float y")
    shapes = [(2,), (3,), (2, 2), (), (0, 3), *[(n,) for n in range(4, 60)]]
    for _ in range(2):
        for shape in shapes:
            x = np.random.default_rng(0).random(shape, np.float32)
            assert np.array_equal(session.run(None, {"x": x})[0], x + x)
    assert len(python_calls) == len(shapes)


def test_several_dtypes_of_one_op_in_one_model() -> None:
    session = session_for(
        "y = compiled.Loop(x) b = compiled.Loop(a)", "float[n] x, int64[n] a", "float[m] y, int64[m] b"
    )
    y, b = session.run(None, {"x": X[0], "a": np.arange(3)})
    assert (y.tolist(), b.tolist()) == ((X[0] + X[0]).tolist(), [0, 2, 4])


def test_the_memory_of_an_output_that_the_model_does_not_use_is_other_memory(python_calls: list[int]) -> None:
    for body, outputs in (
        ("y, z = compiled.SumAndDifference(x, x)", "float[m] z"),
        ("y = compiled.SumAndDifference(x, x)", "float[m] y"),
    ):
        session = session_for(body, outputs=outputs)
        expected = X[0] - X[0] if outputs.endswith("z") else X[0] + X[0]
        for _ in range(3):
            assert session.run(None, {"x": X[0]})[0].tolist() == expected.tolist()
    assert len(python_calls) == 2


def test_an_op_that_may_work_in_place_gets_the_memory_of_its_input() -> None:
    @onnx_op("compiled::Grow", compile=True, may_inplace={"output": "x"})
    def grow(x: F32, *, out: F32 | None = None) -> F32:
        if out is None:
            return x + np.float32(1)
        shared = x.ctypes.data == out.ctypes.data
        np.add(x, np.float32(10 if shared else 1), out)
        return out

    grow.register_shape_inference(lambda x: x)
    session = session_for("a = Neg(x)  b = compiled.Grow(a)  y = Neg(b)")
    assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] - 10).tolist()
    assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] - 10).tolist()


def test_float16_runs_the_plain_kernel_which_is_said_once() -> None:
    @onnx_op("compiled::Half", compile=True)
    def half(x: NDArray[T]) -> NDArray[T]:
        return x + x

    x = np.ones(3, np.float16)
    session = session_for("y = compiled.Half(x)", "float16[n] x", "float16[m] y")
    with pytest.warns(CompileWarning, match="compiled::Half has no compiled form for float16, which numba lacks"):
        results = [call() for call in [lambda: half(x), lambda: session.run(None, {"x": x})[0]] * 2]
    assert [result.tolist() for result in results] == [[2, 2, 2]] * 4
    assert half(x).tolist() == [2, 2, 2], "a second warning would be an error"


def test_a_second_kernel_is_compiled_and_the_declared_one_is_its_plain_kernel() -> None:
    @onnx_op("compiled::Second")
    def declared(x: NDArray[T], *, k: int = 1) -> NDArray[T]:
        return x + x.dtype.type(k)

    @declared.register_kernel("cpu", compile=True)
    def _(x, k=1):
        return x + x.dtype.type(10 * k)

    session = session_for("y = compiled.Second<k=2>(x)")
    assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] + 20).tolist()
    with pytest.warns(CompileWarning, match="float16"):
        assert declared(np.ones(1, np.float16)).tolist() == [2]


@pytest.fixture
def redeclared() -> Callable[..., Op[..., Any]]:
    def declare(number: int, **options: Any) -> Op[..., Any]:
        @onnx_op("compiled::Changing", **options)
        def changing(x: F32) -> F32:
            return x + np.float32(number)

        return changing

    return declare


def test_living_sessions_follow_a_changed_body(redeclared: Callable[..., Op[..., Any]]) -> None:
    redeclared(1, compile=True)
    session = session_for("y = compiled.Changing(x)")
    options = onnxruntime.SessionOptions()
    plain_session = session_for("y = compiled.Changing(x)", sess_options=options)

    def results() -> list[float]:
        return [float(s.run(None, {"x": np.zeros(1, np.float32)})[0][0]) for s in (session, session, plain_session)]

    assert results() == [1, 1, 1]
    redeclared(2, compile=True)
    assert results() == [2, 2, 2]
    redeclared(3)
    assert results() == [3, 3, 3]
    later = session_for("y = compiled.Changing(x)", sess_options=options)
    redeclared(4, compile=True)
    assert results() == [4, 4, 4]
    assert later.run(None, {"x": np.zeros(1, np.float32)})[0].tolist() == [4]


def test_a_changed_shape_function_is_followed() -> None:
    @onnx_op("compiled::Shaped", compile=True)
    def shaped(x: F32) -> F32:
        return x[:2]

    session = session_for("y = compiled.Shaped(x)")
    assert session.run(None, {"x": X[0]})[0].tolist() == X[0, :2].tolist()
    shaped.register_shape_inference(lambda x: x)
    with pytest.raises(pyops.errors.OutputError, match=r"returned shapes \[2\] and the shape function gives \[3\]"):
        session.run(None, {"x": X[0]})
    shaped.register_shape_inference(lambda x: x.like(shape=(2,)))
    assert session.run(None, {"x": X[0]})[0].tolist() == X[0, :2].tolist()


def test_a_session_of_other_options_runs_it_too() -> None:
    model = chain("compiled::Loop")
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for _ in range(2):
        assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] + X[0]).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compile": "always"}, 'compile=\'always\' is unknown; it is True, "try" or "debug"'),
        ({"parallel": "()->()"}, "parallel and fastmath are for compiled kernels; add compile=True"),
        ({"compile": True, "parallel": "rows"}, 'write them as NumPy does for generalized ufuncs: "(),()->()"'),
        ({"compile": True, "parallel": "(),()->()"}, "has 2 inputs, 1 are declared: x"),
        ({"compile": True, "fastmath": {"fast"}}, "fastmath has 'fast'; LLVM's flags are"),
    ],
)
def test_what_is_wrong_with_the_options_is_a_declaration_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:

        @onnx_op("compiled::Bad", **options)
        def bad(x: F32) -> F32:
            return x

    assert message in str(caught.value)


def test_a_cuda_kernel_is_not_compiled() -> None:
    with pytest.raises(DeclarationError, match="are for the CPU"):
        add_round.register_kernel("cuda", compile=True)
