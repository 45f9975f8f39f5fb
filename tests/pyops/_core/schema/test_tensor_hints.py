"""Hints of inputs and outputs, and how a declaration reads them."""

from collections.abc import Callable
from typing import Annotated, Any, Generic, NamedTuple, Optional, TypeVar, Union

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import onnx_op
from pyops._core.schema.signature import Signature

T = TypeVar("T", np.float16, np.float32, np.float64)
Bound = TypeVar("Bound", bound=np.floating)
Either = TypeVar("Either", bound=np.float32 | np.int64)
F32 = NDArray[np.float32]

FLOATS = ["float16", "float32", "float64"]


class Split(NamedTuple, Generic[T]):
    values: NDArray[T]
    places: NDArray[np.int64]


def declare(function: Callable[..., Any], name: str = "Declared") -> Signature:
    return onnx_op(f"tests::{name}")(function).signature


def input_of(hint: Any) -> Any:
    """The input that a parameter with this hint becomes."""

    def function(x):
        raise NotImplementedError

    function.__annotations__ = {"x": hint, "return": F32}
    return declare(function).inputs[0]


def dtype_names(type_parameter: Any) -> list[str]:
    return [str(dtype) for dtype in type_parameter.dtypes]


@pytest.mark.parametrize(
    ("hint", "name", "dtypes"),
    [
        (NDArray[np.float32], "tensor(float)", ["float32"]),
        (NDArray[np.float64], "tensor(double)", ["float64"]),
        (NDArray[np.bool_], "tensor(bool)", ["bool"]),
        (NDArray[np.str_], "tensor(string)", ["object"]),
        (NDArray[np.object_], "tensor(string)", ["object"]),
        (NDArray[np.complex64], "tensor(complex64)", ["complex64"]),
        (NDArray[ml_dtypes.bfloat16], "tensor(bfloat16)", ["bfloat16"]),
        (NDArray[ml_dtypes.float8_e4m3fn], "tensor(float8e4m3fn)", ["float8_e4m3fn"]),
        (NDArray[ml_dtypes.int4], "tensor(int4)", ["int4"]),
        (np.ndarray[Any, np.dtype[np.float32]], "tensor(float)", ["float32"]),
        (np.ndarray[tuple[int, int], np.dtype[np.float32]], "tensor(float)", ["float32"]),
        (Annotated[NDArray[np.float32], "meters"], "tensor(float)", ["float32"]),
        ("NDArray[np.float32]", "tensor(float)", ["float32"]),
        (NDArray["np.float32"], "tensor(float)", ["float32"]),
        (NDArray[T], "T", FLOATS),
        (NDArray[Bound], "Bound", FLOATS),
        (NDArray[Either], "Either", ["float32", "int64"]),
        (np.ndarray[tuple[int, ...], np.dtype[T]], "T", FLOATS),
        (NDArray[np.floating], "T_x", FLOATS),
        (NDArray[np.signedinteger], "T_x", ["int8", "int16", "int32", "int64"]),
        (NDArray[np.complexfloating], "T_x", ["complex64", "complex128"]),
    ],
    ids=str,
)
def test_a_tensor_hint_gives_its_element_types(hint, name, dtypes):
    found = input_of(hint)
    assert (found.type.name, dtype_names(found.type)) == (name, dtypes)
    assert not found.optional
    assert not found.variadic


def test_a_concrete_type_is_one_type_wherever_it_is_written():
    def function(x: NDArray[np.str_], y: NDArray[np.object_]) -> NDArray[np.str_]:
        raise NotImplementedError

    signature = declare(function)
    assert len(signature.type_parameters) == 1


@pytest.mark.parametrize("hint", [F32 | None, Optional[F32], Union[None, F32], "F32 | None"], ids=str)  # noqa: UP007, UP045
def test_or_none_is_an_optional_input_in_every_spelling(hint):
    def function(x, y=None):
        raise NotImplementedError

    function.__annotations__ = {"x": F32, "y": hint, "return": F32}
    first, second = declare(function).inputs
    assert (first.optional, second.optional) == (False, True)


def test_a_starred_parameter_is_a_variadic_input():
    def function(x: F32, *xs: NDArray[T]) -> NDArray[T]:
        raise NotImplementedError

    last = declare(function).inputs[-1]
    assert (last.name, last.variadic, last.homogeneous, last.type.name) == ("xs", True, True, "T")


def test_a_variadic_input_of_an_abstract_class_mixes_types():
    def function(*xs: NDArray[np.number]) -> F32:
        raise NotImplementedError

    assert not declare(function).inputs[0].homogeneous


def test_an_operator_may_have_no_inputs():
    def function(*, value: float) -> F32:
        return np.array(value, np.float32)

    assert declare(function).inputs == ()
    assert onnx_op("tests::Constant")(function)(value=2) == 2


def test_an_annotated_tuple_gives_one_output_per_item():
    def function(x: NDArray[T]) -> tuple[NDArray[T], NDArray[np.int64]]:
        raise NotImplementedError

    signature = declare(function)
    assert [(item.name, item.type.name) for item in signature.outputs] == [
        ("output_0", "T"),
        ("output_1", "tensor(int64)"),
    ]
    assert signature.returns_tuple


def test_a_tuple_of_any_length_is_a_variadic_output():
    def function(x: NDArray[T]) -> tuple[NDArray[T], ...]:
        raise NotImplementedError

    (output,) = declare(function).outputs
    assert output.variadic


def test_a_named_tuple_names_the_outputs():
    def function(x: NDArray[T]) -> Split[T]:
        raise NotImplementedError

    assert [(item.name, item.type.name) for item in declare(function).outputs] == [
        ("values", "T"),
        ("places", "tensor(int64)"),
    ]


def test_a_named_tuple_takes_the_type_it_is_given():
    U = TypeVar("U", np.int32, np.int64)

    def over_a_variable(x: NDArray[U]) -> Split[U]:
        raise NotImplementedError

    def over_a_class(x: F32) -> Split[np.float32]:
        raise NotImplementedError

    assert declare(over_a_variable).outputs[0].type.name == "U"
    assert declare(over_a_class, "OverAClass").outputs[0].type.name == "tensor(float)"


def test_a_named_tuple_takes_the_defaults_of_its_type_parameters():
    extensions = pytest.importorskip("typing_extensions")
    U = extensions.TypeVar("U", np.float32, np.float64, default=np.float32)
    V = extensions.TypeVar("V", default=U)

    class Pair(NamedTuple, Generic[U, V]):
        first: NDArray[U]
        second: NDArray[V]

    def bare(x: NDArray[T]) -> Pair:
        raise NotImplementedError

    def given(x: NDArray[T]) -> Pair[np.int64, np.float64]:
        raise NotImplementedError

    assert [item.type.name for item in declare(bare).outputs] == ["tensor(float)", "tensor(float)"]
    assert [item.type.name for item in declare(given, "Given").outputs] == ["tensor(int64)", "tensor(double)"]


def test_names_local_to_the_declaring_function_resolve():
    Local = TypeVar("Local", np.float32, np.float64)

    class Pair(NamedTuple, Generic[Local]):
        first: "NDArray[Local]"
        second: NDArray[Local]

    @onnx_op("tests::LocalNames")
    def function(x: "NDArray[Local]") -> "Pair[Local]":
        raise NotImplementedError

    assert [item.name for item in function.signature.outputs] == ["first", "second"]
    assert function.signature.outputs[0].type.name == "Local"


def test_a_kernel_may_refer_to_what_is_assigned_after_it():
    @onnx_op("tests::Later")
    def function(x: NDArray[T]) -> NDArray[T]:
        return x * factor

    factor = np.float32(3)
    assert function(np.ones(1, np.float32)).tolist() == [3]
