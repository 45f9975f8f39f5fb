"""Errors for hints that a declaration cannot read: they name the parameter, what is wrong, and the fix."""

from collections import namedtuple
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeVar, Union

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from pyops import errors, onnx_op
from tests.helpers.systems import needs_long_double

T = TypeVar("T", np.float32, np.float64)
Other = TypeVar("T", np.int32, np.int64)
Free = TypeVar("Free")
Python = TypeVar("Python", float, int)
Arrays = TypeVar("Arrays", NDArray[np.float32], NDArray[np.float64])
F32, F64 = NDArray[np.float32], NDArray[np.float64]
Untyped = namedtuple("Untyped", "a b")


class Mixed(NamedTuple):
    values: F32
    count: int


class Two(NamedTuple):
    first: F32
    second: F64


def message(function: Any, hints: dict[str, Any]) -> str:
    function.__annotations__ = hints
    with pytest.raises(errors.DeclarationError) as raised:
        onnx_op("tests::Wrong")(function)
    return str(raised.value)


INPUTS = {
    "no type": (np.ndarray, "np.ndarray has no element type; write NDArray[np.float32]"),
    "NDArray without brackets": (NDArray, "np.ndarray has no element type; write NDArray[np.float32]"),
    "NDArray of Any": (NDArray[Any], "NDArray[Any] has no element type; write NDArray[np.float32]"),
    "ndarray of a scalar": (np.ndarray[np.float32], "has no element type; write NDArray[np.float32]"),
    "ArrayLike": (ArrayLike, "is not a tensor type; annotate inputs as NDArray[...]"),
    "Any": (Any, "Any is not a tensor type; annotate inputs as NDArray[...]"),
    "a scalar": (int, "int is not a tensor type; annotate inputs as NDArray[...]"),
    "a list": (list[float], "list[float] is not a tensor type; annotate inputs as NDArray[...]"),
    "a tensor of torch": (
        type("Tensor", (), {"__module__": "torch"}),
        "torch.Tensor is a type of torch, but kernels get NumPy arrays; write NDArray[np.float32], or NDArray[T] with "
        "a TypeVar T for several types; exporters.custom_op makes a torch operator of the op",
    ),
    "not a type": (3, "3 is not a tensor type"),
    "Python's float": (NDArray[float], "float is not a NumPy type; write np.float32 or np.float64"),
    "Python's str": (NDArray[str], "str is not a NumPy type; write np.str_"),
    "longdouble": pytest.param(
        NDArray[np.longdouble],
        "ONNX has no element type for np.longdouble; use one that ONNX has",
        marks=needs_long_double,
    ),
    "bytes": (NDArray[np.bytes_], "ONNX has no element type for np.bytes_"),
    "dates": (NDArray[np.datetime64], "ONNX has no element type for np.datetime64"),
    "a class that has no dtype": (NDArray[np.character], "ONNX has no element type for np.character"),
    "a dtype": (NDArray[np.dtype("float32")], "float32 is not an element type; write a NumPy scalar type such as"),
    "a free TypeVar": (NDArray[Free], 'TypeVar Free allows any type; constrain it: Free = TypeVar("Free", np.float32'),
    "a TypeVar over Python types": (
        NDArray[Python],
        "in the TypeVar Python, float is not a NumPy type; write np.float32",
    ),
    "a TypeVar over arrays": (Arrays, 'put the types inside: T = TypeVar("T", np.float32, np.float64) and NDArray[T]'),
    "a union of arrays": (Union[F32, F64], 'put the types inside: T = TypeVar("T", np.float32, np.float64)'),  # noqa: UP007
    "a union of types": (
        NDArray[np.float32 | np.float64],
        'np.float32 | np.float64 is not an element type; use T = TypeVar("T", np.float32, np.float64) and NDArray[T]',
    ),
    "optional without None": (
        F32 | None,
        "in its hint and the default None; write x: NDArray[np.float32] | None = None, after",
    ),
    "an unknown name": ("Missing", "its hint names 'Missing', which is not defined where the operator is declared"),
    "an unknown attribute": ("np.flaot32", "its hint cannot be read (AttributeError: module 'numpy' has no attribute"),
    "no expression": ("NDArray[", "its hint cannot be read (SyntaxError: "),
}


@pytest.mark.filterwarnings("ignore:Converting .* to a dtype:DeprecationWarning")  # an error in later releases of NumPy
@pytest.mark.parametrize(("hint", "fragment"), INPUTS.values(), ids=INPUTS)
def test_an_input_hint_that_cannot_be_read_names_the_parameter_and_the_fix(hint, fragment):
    def function(x):
        raise NotImplementedError

    text = message(function, {"x": hint, "return": F32})
    assert text.startswith("tests::Wrong, parameter 'x' of ")
    assert fragment in text


RETURNS = {
    "none": (None, "None is not a tensor type"),
    "Any": (Any, "Any is not a tensor type"),
    "a list": (list[F32], "is not a tensor type; annotate inputs as NDArray[...], outputs as that or a tuple"),
    "a bare tuple": (tuple, "it is a tuple without elements; say what is in it"),
    "an empty tuple": (tuple[()], "it is a tuple without elements; say what is in it"),
    "an optional output": (F32 | None, "NDArray[np.float32] | None is not a tensor type"),
    "an iterator": (Iterator[F32], "Iterator[NDArray[np.float32]] is not a tensor type"),
    "an abstract class": (
        NDArray[np.floating],
        'np.floating contains several types; use a TypeVar shared with an input: T = TypeVar("T", bound=np.floating)',
    ),
    "a variable of no input": (NDArray[T], "no input is of type T, so the output's type cannot be inferred"),
    "a namedtuple without hints": (Untyped, "the fields of Untyped have no hints; write class Untyped(NamedTuple)"),
}


@pytest.mark.parametrize(("hint", "fragment"), RETURNS.values(), ids=RETURNS)
def test_a_return_type_that_cannot_be_read_names_the_fix(hint, fragment):
    def function(x):
        raise NotImplementedError

    text = message(function, {"x": F32, "return": hint})
    assert text.startswith("tests::Wrong, the return type of ")
    assert fragment in text


@pytest.mark.parametrize(
    ("hint", "output"), [(tuple[F32, F32 | None], "output_1"), (tuple[int, F32], "output_0"), (Mixed, "count")], ids=str
)
def test_a_wrong_output_of_several_is_named(hint, output):
    def function(x):
        raise NotImplementedError

    assert f"output {output!r} in the return type" in message(function, {"x": F32, "return": hint})


def no_hint(x): ...
def starred(*xs): ...
def with_self(self, x): ...
def with_default(x=3): ...
def none_default(x=None): ...
def keywords(x, **options): ...
def positional_out(x, out=None): ...
def with_out(x, *, out=None): ...
def required_out(x, *, out): ...
def two(x, y): ...


FUNCTIONS = {
    "no hint": (no_hint, {}, "parameter 'x'", "no type hint; annotate it, for example x: NDArray[np.float32]"),
    "no starred hint": (starred, {}, "parameter 'xs'", "annotate it, for example *xs: NDArray[np.float32]"),
    "starred optional": (starred, {"xs": F32 | None}, "parameter 'xs'", "write *xs: NDArray[np.float32]"),
    "a method": (with_self, {"x": F32}, "parameter 'self'", "cannot be a method; declare a function, or put @static"),
    "a default": (with_default, {"x": F32}, "parameter 'x'", "cannot default to 3; put it after `*`"),
    "a None default": (none_default, {"x": F32}, "parameter 'x'", "write x: NDArray[np.float32] | None = None"),
    "keywords": (keywords, {"x": F32}, "parameter 'options'", "write each one after `*`, with a hint"),
    "positional out": (positional_out, {"x": F32, "out": F32 | None}, "parameter 'out'", "put it after `*`"),
    "out without a hint": (with_out, {"x": F32}, "parameter 'out'", "out: NDArray[np.float32] | None = None"),
    "out of another type": (with_out, {"x": F32, "out": F64 | None}, "parameter 'out'", "like the return type"),
    "out not optional": (with_out, {"x": F32, "out": F32}, "parameter 'out'", "write out: NDArray[np.float32] | None"),
    "out required": (required_out, {"x": F32, "out": F32 | None}, "parameter 'out'", "default to None; write out:"),
    "two T": (two, {"x": NDArray[T], "y": NDArray[Other]}, "return type", "two type variables are named T; give one"),
}


@pytest.mark.parametrize(("function", "hints", "where", "fragment"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_parameter_that_cannot_be_read_is_named_with_the_fix(function, hints, where, fragment):
    try:
        text = message(function, {"return": F32, **hints})
    finally:
        function.__annotations__ = {}
    assert where in text
    assert fragment in text


def test_a_missing_return_type_says_what_to_write():
    assert "it is missing; annotate what is returned, for example -> NDArray[np.float32]" in message(
        no_hint, {"x": F32}
    )


def test_out_of_a_named_tuple_is_a_plain_tuple():
    # ONNX Runtime's buffers come as one.
    hints = {"x": F32, "return": Two}
    text = message(with_out, {**hints, "out": Two | None})
    assert "write out: tuple[NDArray[np.float32], NDArray[np.float64]] | None = None" in text
    with_out.__annotations__ = {**hints, "out": tuple[F32, F64] | None}
    assert onnx_op("tests::Out")(with_out).signature.takes_out


ATTRIBUTES = {
    "no hint": (..., ..., "no type hint; annotate it, for example a: int, where attributes may be int, float, str"),
    "an array": (F32, ..., "write np.ndarray for a tensor attribute, or put it before `*` for an input"),
    "a bare list": (list, ..., "list is not an ONNX attribute type; use int, float, str, bool, list[int]"),
    "bools": (list[bool], ..., "list[bool] is not an ONNX attribute type"),
    "a fixed tuple": (tuple[int, int], (1, 2), "is not an ONNX attribute type; use int, float"),
    "a dict": (dict[str, int], ..., "dict[str, int] is not an ONNX attribute type"),
    "a NumPy scalar": (np.int64, ..., "np.int64 is not an ONNX attribute type"),
    "a union": (int | float, 1, "int | float is not an ONNX attribute type"),
    "a mixed Literal": (Literal["a", 1], "a", "Literal['a', 1] is not an ONNX attribute type"),
    "a Literal of bytes": (Literal[b"a"], b"a", "is not an ONNX attribute type"),
    "a Literal of floats": (Literal[0.1], 0.1, "Literal[0.1] is not an ONNX attribute type"),
    "a default of another type": (int, 1.5, "attribute 'a' is 1.5 (float); it is declared as int; change the default"),
    "a bool for a str": (str, True, "attribute 'a' is True (bool); it is declared as str"),
    "a default not among the choices": (Literal["x", "y"], "z", "attribute 'a' is 'z'; expected one of 'x', 'y'"),
    "a choice beyond int64": (Literal[2**64], ..., "which does not fit int64"),
    "a default beyond float32": (
        float,
        1e300,
        "overflows float32, the only float type of ONNX attributes; declare it as",
    ),
    "None for an int": (
        int,
        None,
        "an attribute needs both `| None` in its hint and the default None, or neither; write int | None = None",
    ),
    "optional without a default": (
        int | None,
        ...,
        "an attribute needs both `| None` in its hint and the default None, or neither; write int | None",
    ),
    "optional with a default": (int | None, 3, "write int | None = None, or int = 3"),
    "a tensor of dates": (np.ndarray, np.array(["2020-01-01"], "M8[D]"), "which ONNX tensors cannot hold"),
    "a tensor of objects": (np.ndarray, np.array([1, None], object), "which ONNX tensors cannot hold"),
    "a masked tensor": (np.ndarray, np.ma.masked_array([1], [True]), "it is declared as np.ndarray"),
}


@pytest.mark.parametrize(("hint", "default", "fragment"), ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_an_attribute_that_cannot_be_read_names_the_parameter_and_the_fix(hint, default, fragment):
    def function(x, *, a):
        raise NotImplementedError

    if default is not ...:
        function.__kwdefaults__ = {"a": default}
    hints = {"x": F32, "return": F32} | ({} if hint is ... else {"a": hint})
    text = message(function, hints)
    assert text.startswith("tests::Wrong, parameter 'a' of ")
    assert fragment in text
