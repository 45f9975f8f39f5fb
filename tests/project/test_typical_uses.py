"""What users of pyops write: it runs, and it is clean in mypy's and pyright's strict modes (see test_type_checks.py).

A line that a checker must reject is marked with the names of the errors; a mark without an error fails the test.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, assert_type

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import pyops
from pyops import Op, PyCustomOpDef, onnx_op
from pyops.shapes import TensorSpec, broadcast, new_dim
from pyops.testing import CheckReport, Outputs, Sample, assert_close, check

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
T = TypeVar("T", np.float16, np.float32, np.float64)

x = np.array([[0.5, -1.5, 4.0]], np.float32)


# Inputs


@onnx_op("uses::AddRound")
def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
    return np.add(x, x, dtype=x.dtype).round(decimals)


@onnx_op("uses::Blend", version=2)
def blend(x: NDArray[T], y: NDArray[T], weight: F32) -> NDArray[T]:
    return (x + (y - x) * weight).astype(x.dtype)


@onnx_op("uses::IsFinite")
def is_finite(x: NDArray[np.floating]) -> NDArray[np.bool_]:
    finite: NDArray[np.bool_] = np.isfinite(x)
    return finite


@onnx_op("uses::Shorten")
def shorten(
    x: NDArray[ml_dtypes.bfloat16],  # pyright: ignore[reportInvalidTypeForm]  # ml_dtypes does not say that it is a type
) -> NDArray[ml_dtypes.bfloat16]:  # pyright: ignore[reportInvalidTypeForm]
    return x[:1]


@onnx_op("uses::Upper")
def upper(x: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.strings.upper(x.astype(np.str_))


@onnx_op("uses::Lengths")
def lengths(x: NDArray[np.object_]) -> I64:
    return np.array([len(text) for text in x], np.int64)


@onnx_op("uses::WeightedMean")
def weighted_mean(x: F32, weights: F32 | None = None) -> F32:
    return np.average(x, axis=-1, weights=weights).astype(np.float32)


@onnx_op("uses::Largest")
def largest(first: NDArray[T], *others: NDArray[T]) -> NDArray[T]:
    result = first.copy()
    for other in others:
        np.maximum(result, other, out=result)
    return result


def test_calls_have_the_types_of_the_function() -> None:
    assert_type(add_round(x, decimals=1), NDArray[np.float32])
    assert_type(add_round(x.astype(np.float64)), NDArray[np.float64])
    assert_type(blend(x, x, np.array(0.25, np.float32)), NDArray[np.float32])
    assert_type(is_finite(x.astype(np.float16)), NDArray[np.bool_])
    shorten(np.ones(2, ml_dtypes.bfloat16))
    assert_type(upper(np.array(["spam", "eggs"])), NDArray[np.str_])
    assert_type(lengths(np.array(["spam", "eggs"], object)), I64)
    assert_type(weighted_mean(x), F32)
    assert_type(weighted_mean(x, weights=np.ones_like(x)), F32)
    assert_type(largest(x, x, x), NDArray[np.float32])


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(pyops.errors.InputError):
        add_round(x.astype(np.int32))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(pyops.errors.InputError):
        add_round(x, decimals="one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(pyops.errors.InputError):
        add_round(x, digits=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(pyops.errors.InputError):
        add_round()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    doubles = x.astype(np.float64)
    with pytest.raises(pyops.errors.InputError):
        blend(x, doubles, x)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(pyops.errors.InputError):
        weighted_mean(x, doubles)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(pyops.errors.InputError):
        weighted_mean(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Attributes


@onnx_op("uses::Pad")
def pad(
    x: F32,
    *,
    before: list[int],
    value: float = 0.0,
    mode: Literal["constant", "edge"] = "constant",
    after: list[int] | None = None,
) -> F32:
    widths = list(zip(before, before if after is None else after, strict=True))
    return np.pad(x, widths, constant_values=value) if mode == "constant" else np.pad(x, widths, mode)


@onnx_op("uses::Describe")
def describe(
    x: F32,
    *,
    title: str,
    scales: Sequence[float] = (1.0,),
    names: tuple[str, ...] = (),
    short: bool = False,
    precise: np.ndarray = np.array(0.1),  # noqa: B008
) -> NDArray[np.str_]:
    return np.array([title, *names, *map(str, scales), str(short), str(precise)])


def test_attributes_have_the_types_of_the_parameters() -> None:
    assert_type(pad(x, before=[0, 1], value=2, mode="edge", after=None), F32)
    assert_type(describe(x, title="a", scales=[0.5], names=("b",), precise=np.array(2.0)), NDArray[np.str_])
    with pytest.raises(pyops.errors.InputError):
        pad(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(pyops.errors.InputError):
        pad(x, before=[0, 1], mode="wrap")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Outputs


class Parts(NamedTuple, Generic[T]):
    mantissa: NDArray[T]
    exponent: NDArray[np.int32]


class Extremes(NamedTuple):
    low: F32
    high: F32


@onnx_op("uses::Parts")
def parts(x: NDArray[T]) -> Parts[T]:
    mantissa, exponent = np.frexp(x)
    return Parts(mantissa.astype(x.dtype), exponent)


@onnx_op("uses::Extremes")
def extremes(x: F32) -> Extremes:
    return Extremes(x.min(axis=-1), x.max(axis=-1))


@onnx_op("uses::Halves")
def halves(x: F32) -> tuple[F32, I64]:
    return x / np.float32(2), np.array(x.size)


@onnx_op("uses::Rows")
def rows(x: NDArray[T]) -> tuple[I64, *tuple[NDArray[T], ...]]:
    return np.array(len(x)), *x


@onnx_op("uses::AddOne", may_inplace={"output": "x"})
def add_one(x: F32, *, out: F32 | None = None) -> F32:
    return np.add(x, np.float32(1)) if out is None else np.add(x, np.float32(1), out=out)


@onnx_op("uses::DivMod")
def div_mod(x: F32, y: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
    return np.divmod(x, y)


def test_several_outputs_have_their_types() -> None:
    assert_type(parts(x), Parts[np.float32])
    assert_type(parts(x).exponent, NDArray[np.int32])
    assert_type(extremes(x).low, F32)
    assert_type(halves(x), tuple[F32, I64])
    count, *others = rows(x)
    assert_type(count, I64)
    assert_type(others, list[NDArray[np.float32]])
    assert_type(add_one(x), F32)
    quotient, _ = div_mod(x, x)
    assert_type(quotient, F32)


# Other forms of a declaration


@onnx_op("uses::Softplus", device_types=("cpu", "cuda"))
def softplus(x: F32) -> F32:
    return x.clip(0)


@onnx_op("uses::Tile", host_inputs=["repeats"], device_types=("cuda",))
def tile(x: F32, repeats: I64) -> F32:
    return np.tile(x, repeats.tolist())


@onnx_op("uses::SumRows", compile="try", parallel="(n)->()", fastmath={"reassoc"})
def sum_rows(x: F32) -> F32:
    total: F32 = x.sum(axis=-1)
    return total


@onnx_op(op_type="uses::Moved", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float], attrs=["mode"])
def moved(x: F32, mode: str = "") -> F32:
    return np.round(x)


def plain(x: F32) -> F32:
    return -x


negate = onnx_op("uses::Negate")(plain)


def test_other_forms_keep_the_types() -> None:
    assert_type(softplus(x), F32)
    assert_type(moved(x), F32)
    assert_type(negate(x), F32)


def test_a_mistaken_declaration_is_an_error() -> None:
    with pytest.raises(pyops.errors.DeclarationError):
        onnx_op("uses::X", verison=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(pyops.errors.DeclarationError):
        onnx_op(plain)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    with pytest.raises(pyops.errors.DeclarationError):
        onnx_op("uses::X", compile="now")(plain)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# What is registered on an op


@add_round.register_shape_inference
def shape_of_add_round(x: TensorSpec, *, decimals: int = 0) -> TensorSpec:
    return x


@halves.register_shape_inference
def shapes_of_halves(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return x, x.like(shape=(), dtype=np.int64)


@add_round.register_kernel("cuda")
def add_round_on_gpu(x: Any, *, decimals: int = 0) -> Any:
    return (x + x).round(decimals)


def test_registered_functions_stay_what_they_are() -> None:
    assert_type(shape_of_add_round(TensorSpec((2,), np.float32)), TensorSpec)
    negate.register_shape_inference(lambda x: x)
    negate.register_shape_inference(lambda x: 1)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(pyops.errors.ShapeInferenceError):
        negate.infer_shapes(TensorSpec((2,), "float32"))
    with pytest.raises(pyops.errors.DeclarationError):
        negate.register_kernel("tpu")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_an_op_says_what_it_is() -> None:
    assert_type(add_round.domain, str)
    assert_type(add_round.name, str)
    assert_type(add_round.version, int)
    assert_type(add_round.device_types, tuple[str, ...])
    assert_type(add_round.location, str)
    assert_type([item.name for item in add_round.signature.inputs], list[str])
    sum_rows.compile(x)


def test_shape_functions_have_specs() -> None:
    a, b = TensorSpec((4, 1), np.float32), TensorSpec([3], np.dtype("f4"))
    assert_type(a.like(shape=broadcast(a, b)), TensorSpec)
    assert_type(a.like(shape=(*a.shape, new_dim()), dtype="int64"), TensorSpec)
    assert_type(a.dtype, np.dtype[Any])
    assert_type(add_round.infer_shapes(a, decimals=2), tuple[TensorSpec, ...])
    assert_type(pyops.shapes.broadcast(a, b), tuple[Any, ...])


# Sessions


def model_of(op: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 20, "uses" : 2]>
    uses (float[n, m] x) => (float[n, m] y) {{ y = uses.{op} (x) }}""")


def test_a_session_takes_every_kind_of_model(tmp_path: Path) -> None:
    model = model_of("AddRound")
    onnx.save(model, tmp_path / "model.onnx")
    for source in (model, model.SerializeToString(), tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        session = pyops.InferenceSession(source, providers=["CPUExecutionProvider"])
        assert_type(session.run(None, {"x": x}), list[Any])
        assert_type(session.run(["y"], {"x": x})[0], Any)
    pyops.InferenceSession(model, engine="native", providers=[("CPUExecutionProvider", {})])
    with pytest.raises(pyops.errors.EngineError):
        pyops.InferenceSession(model, engine="natvie")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(pyops.errors.ModelError):
        pyops.InferenceSession(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_an_operator_that_onnx_runtime_has() -> None:
    @onnx_op("ai.onnx::Erf", override=True)
    def erf(x: NDArray[np.float16]) -> NDArray[np.float16]:
        return x * np.float16(0.5)

    assert_type(erf(np.ones(1, np.float16)), NDArray[np.float16])


def test_sessions_of_others() -> None:
    import onnxruntime  # type: ignore[import-untyped]  # it has no types

    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    onnxruntime.InferenceSession(model_of("AddRound").SerializeToString(), options)
    with pyops.patch_onnxruntime() as installation:
        onnxruntime.InferenceSession(model_of("AddRound").SerializeToString())
        installation.uninstall()
    with pyops.register_schemas() as registration:
        registration.close()
    assert_type(pyops.last_exception(), BaseException | None)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of the ops here that onnxruntime-extensions does not support, where it is the first
        assert_type(pyops.get_library_path(), str)


def test_looking_at_things(tmp_path: Path) -> None:
    session = pyops.InferenceSession(model_of("AddRound"))
    with pyops.profile(session) as profile:
        session.run(None, {"x": x})
    assert_type(profile.nodes[0].kernel_seconds, float)
    assert_type(profile.nodes[0].op, Op[..., Any])
    assert_type([op.name for op in pyops.list_ops()], list[str])
    view = pyops.show_model(model_of("AddRound"), height=300)
    assert_type(view.url, str)
    assert_type(view.report.nodes[0].verdict, str)
    view.close()


def test_the_reference_evaluator() -> None:
    model = model_of("AddRound")
    ReferenceEvaluator(model, new_ops=[*pyops.reference_ops(model)]).run(None, {"x": x})


def test_an_op_into_a_model() -> None:
    with pytest.raises(pyops.errors.InputError, match="replace got no ops"):
        assert_type(pyops.replace(model_of("AddRound"), [], verify=False).counts, dict[str, int])


def test_the_comparison_of_models() -> None:
    model = model_of("AddRound")
    comparison = pyops.compare_models(model, model, {"x": x}, tolerances={"float32": (0, 0)})
    assert_type(comparison.ok, bool)
    assert comparison.first is None


# Tests


def test_checks_and_samples() -> None:
    report = check(add_round, x, decimals=2, checks=["engine_*"], raise_exception=False)
    assert_type(report, CheckReport)
    assert_type(report.ok, bool)
    assert_type(report["engine_native"].status, Literal["passed", "failed", "not run"])
    assert_type([result.reason for result in report.failed], list[str])
    sample = Sample(add_round, x).with_expected(x + x).with_id("twice")
    assert_type(sample, Sample)
    assert_type(sample.expected(), Outputs)
    session = pyops.InferenceSession(sample.model())
    assert_close(session.run(None, sample.feed), np.round(x + x))
    with pyops.testing.isolated_declarations():
        pyops.testing.check(sample, checks="expected", raise_exception=False, rtol=1e-3, atol=1e-3)


def test_building_a_library(tmp_path: Path) -> None:
    sample = Sample(add_round, x)
    with pytest.raises(pyops.errors.CompileError, match="it has no compiled kernel"):
        pyops.build(tmp_path / "libmy_ops.so", add_round, examples=[sample], ranks=[1, (2, 1)], cpu="native")
    with pytest.raises(pyops.errors.CompileError, match="it has no compiled kernel"):
        pyops.build(tmp_path / "libmy_ops.so", [add_round, negate], examples=[sample])


def test_ops_as_arguments() -> None:
    def named(op: Op[..., Any]) -> str:
        return op.name

    def applied(op: Op[[F32], F32]) -> F32:
        return op(x)

    assert named(add_round) == "AddRound"
    assert named(parts) == "Parts"
    assert_type(applied(negate), F32)
    applied(halves)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_misspelt_name_is_an_error() -> None:
    with pytest.raises(AttributeError):
        _ = pyops.InferenceSesion  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
