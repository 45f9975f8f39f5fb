"""The callables that onnx_op may decorate, and its own arguments."""

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import errors, onnx_op

F32 = NDArray[np.float32]
ONE = np.ones(1, np.float32)


def scaled(x: F32, *, n: int = 2) -> F32:
    return x * np.float32(n)


async def later(x: F32) -> F32:
    return x


def yields(x: F32) -> Iterator[F32]:
    yield x


async def yields_later(x: F32) -> AsyncIterator[F32]:
    yield x


class Callable:
    offset = np.float32(1)

    def __call__(self, x: F32) -> F32:
        return x

    def method(self, x: F32) -> F32:
        return x + self.offset


def test_a_function_wrapped_with_functools_wraps_is_read_through():
    @functools.wraps(scaled)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return scaled(*args, **kwargs) + np.float32(1)

    op = onnx_op("tests::Wrapped")(wrapper)
    assert [attribute.name for attribute in op.signature.attributes] == ["n"]
    assert op(ONE, n=3).tolist() == [4]


@pytest.mark.parametrize(
    ("wrapper", "fragment"),
    [
        (lambda x: x, "what wraps scaled cannot be called like the declared function (got an unexpected keyword"),
        (lambda *, n: n, "(too many positional arguments); give it the same parameters"),
        (lambda x, *, more, **named: x, " argument: 'more')"),
        (lambda x, y, **named: x, "(missing a required argument: 'y')"),
    ],
)
def test_a_wrapper_that_takes_less_than_it_says_is_refused(wrapper, fragment):
    with pytest.raises(errors.DeclarationError, match=r"^tests::Refused: ") as raised:
        onnx_op("tests::Refused")(functools.wraps(scaled)(wrapper))
    assert fragment in str(raised.value)
    with pytest.raises(errors.DeclarationError) as raised:
        onnx_op("tests::Declared")(scaled).register_kernel("cpu")(functools.wraps(scaled)(wrapper))
    assert fragment in str(raised.value)


def test_a_kernel_cached_by_its_arrays_is_refused_and_what_has_no_arrays_may_be_cached():
    message = "functools.lru_cache needs arguments that can be keys, and arrays cannot; put it on a function that the"
    op = onnx_op("tests::Declared")(scaled)
    for decorate in (onnx_op("tests::Refused"), op.register_kernel("cpu"), op.register_kernel("cuda")):
        with pytest.raises(errors.DeclarationError, match=message):
            decorate(functools.lru_cache(scaled))
    op.register_shape_inference(functools.lru_cache(lambda x, *, n: x))
    assert op(ONE, n=3).tolist() == [3]
    with pytest.raises(errors.DeclarationError, match="what wraps"):
        op.register_shape_inference(functools.lru_cache(lambda x: x))


def test_a_bound_method_is_an_operator_of_its_other_parameters():
    op = onnx_op("tests::Bound")(Callable().method)
    assert [item.name for item in op.signature.inputs] == ["x"]
    assert op(ONE).tolist() == [2]


@pytest.mark.parametrize("decorate", [lambda f: onnx_op("tests::Static")(staticmethod(f)), onnx_op("tests::Static")])
def test_a_static_method_is_an_operator(decorate):
    assert decorate(scaled)(ONE).tolist() == [2]


@pytest.mark.parametrize(
    ("thing", "fragment"),
    [
        (
            functools.partial(scaled, n=2),
            "n=2) has no signature with hints; write a def with hints that calls it: "
            "def op(x: NDArray[np.float32]) -> NDArray[np.float32]: ...",
        ),
        (
            Callable(),
            "Callable object at",
        ),
        (Callable, "Callable is a class; put @onnx_op on a function"),
        (np.add, "has no signature with hints; write a def with hints that calls it"),
        (len, "<built-in function len> has no signature with hints"),
        (3, "3 is not a function; put @onnx_op on a function"),
        (classmethod(scaled), "is not a function; put @onnx_op on a function, under @staticmethod in a class"),
        (later, "later is a generator or async, but it is called once and returns; write def"),
        (yields_later, "yields_later is a generator or async"),
        (yields, "yields is a generator or async, but it is called once and returns; write def, and return"),
        (lambda x: x, "parameter 'x' of <lambda>: it has no type hint; annotate it"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__,
)
def test_what_is_no_function_with_hints_is_refused_with_the_fix(thing, fragment):
    with pytest.raises(errors.DeclarationError, match=r"^tests::Refused") as raised:
        onnx_op("tests::Refused")(thing)
    assert fragment in str(raised.value)


@pytest.mark.parametrize("op_type", ["AddRound", "a::b::c", "::X", "a::", "a b::X", "a::X y", "a::X\n", "a::1", "", 3])
def test_a_name_that_is_not_domain_and_name_is_refused(op_type):
    with pytest.raises(errors.DeclarationError, match=r'write @onnx_op\("domain::Name"\)'):
        onnx_op(op_type)(scaled)


def test_the_character_that_a_name_cannot_have_is_said():
    with pytest.raises(errors.DeclarationError, match="'m::Add One' as the operator's name, with ' '; write"):
        onnx_op("m::Add One")(scaled)


@pytest.mark.parametrize("op_type", ["com.example::Gelu", "my-lib.v2::X_1", "_a::_b"])
def test_a_domain_may_have_dots_and_dashes(op_type):
    assert onnx_op(op_type)(scaled).signature.qualified_name == op_type


@pytest.mark.parametrize("version", [0, -1, 1001, 2**31 - 1, "1", 1.0, True, None])
def test_a_version_that_is_no_opset_version_is_refused(version):
    with pytest.raises(errors.DeclarationError, match=rf"version is {version!r}; an opset version is an int from 1 to"):
        onnx_op("tests::Versioned", version=version)(scaled)


@pytest.mark.parametrize(
    ("args", "kwargs", "fragment"),
    [
        ((scaled,), {}, "onnx_op needs the operator's name; write @onnx_op"),
        (("a::X", 2), {}, "takes the operator's name alone"),
        (("a::X",), {"domain": "b"}, "unknown argument 'domain'; its form is @onnx_op(\"domain::Name\", version=1)"),
        (("a::X",), {"inputs": []}, "unknown argument 'inputs'"),
        (("a::X",), {"may_inpalce": {}}, "unknown argument 'may_inpalce' (did you mean 'may_inplace'?); its form is"),
        (("a::X",), {"overide": True}, "did you mean 'override'?"),
        ((), {"domain": "b"}, "unknown argument 'domain'; its form is @onnx_op(op_type=..., inputs=..."),
    ],
)
def test_arguments_that_onnx_op_does_not_have_are_refused(args, kwargs, fragment):
    with pytest.raises(errors.DeclarationError) as raised:
        onnx_op(*args, **kwargs)
    assert fragment in str(raised.value)


def test_an_op_keeps_its_functions_name_and_documentation():
    @onnx_op("tests::Documented")
    def documented(x: F32) -> F32:
        """Give x back."""
        return x

    assert (documented.__name__, documented.__doc__) == ("documented", "Give x back.")
    assert repr(documented) == "<Op tests::Documented(x: float32) -> float32>"
    assert __file__ in documented.location
