"""Attributes: what their hints declare, and what a kernel gets for a value."""

import enum
import math
from collections.abc import Sequence
from typing import Any, Literal, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from pyops import errors, onnx_op
from pyops._core.schema.attribute import Attribute, AttributeKind

F32 = NDArray[np.float32]
INT64 = st.integers(-(2**63), 2**63 - 1)


def attribute_of(hint: Any, default: Any = ...) -> Attribute:
    def function(*, a):
        raise NotImplementedError

    function.__annotations__ = {"a": hint, "return": F32}
    if default is not ...:
        function.__kwdefaults__ = {"a": default}
    return onnx_op("tests::Attribute")(function).signature.attributes[0]


@pytest.mark.parametrize(
    ("hint", "kind", "spelling"),
    [
        (int, AttributeKind.INT, "int"),
        (float, AttributeKind.FLOAT, "float"),
        (str, AttributeKind.STRING, "str"),
        (bool, AttributeKind.INT, "bool"),
        (list[int], AttributeKind.INTS, "list[int]"),
        (list[float], AttributeKind.FLOATS, "list[float]"),
        (list[str], AttributeKind.STRINGS, "list[str]"),
        (Sequence[int], AttributeKind.INTS, "list[int]"),
        (tuple[float, ...], AttributeKind.FLOATS, "tuple[float, ...]"),
        ("list[int]", AttributeKind.INTS, "list[int]"),
        (Literal["a", "b"], AttributeKind.STRING, "Literal['a', 'b']"),
        (Literal[1, 2], AttributeKind.INT, "Literal[1, 2]"),
        (Literal[True], AttributeKind.INT, "Literal[True]"),
        (np.ndarray, AttributeKind.TENSOR, "np.ndarray"),
    ],
    ids=str,
)
def test_an_attribute_hint_gives_the_kind(hint, kind, spelling):
    attribute = attribute_of(hint)
    assert (attribute.kind, attribute.spelling, attribute.required) == (kind, spelling, True)


@pytest.mark.parametrize("hint", [int | None, Optional[int], "int | None", Literal[1, None]], ids=str)  # noqa: UP045
def test_or_none_is_an_attribute_that_may_be_absent(hint):
    attribute = attribute_of(hint, None)
    assert (attribute.kind, attribute.required, attribute.default) == (AttributeKind.INT, False, None)


@pytest.mark.parametrize(
    ("hint", "default", "expected"),
    [
        (int, np.int32(3), 3),
        (float, 0.1, float(np.float32(0.1))),
        (float, 1, 1.0),
        (bool, 1, True),
        (list[int], (1, 2), [1, 2]),
        (Sequence[float], [], []),
        (tuple[int, ...], [1, 2], (1, 2)),
        (str, "x", "x"),
        (Literal["x", "y"], "y", "y"),
    ],
    ids=str,
)
def test_a_default_makes_an_attribute_optional_and_is_converted(hint, default, expected):
    attribute = attribute_of(hint, default)
    assert not attribute.required
    assert (attribute.default, type(attribute.default)) == (expected, type(expected))


def test_a_members_of_an_int_or_str_enum_is_its_plain_value():
    class Mode(enum.StrEnum):
        FAST = "fast"

    class Level(enum.IntEnum):
        HIGH = 3

    assert type(attribute_of(str).convert(Mode.FAST)) is str
    assert type(attribute_of(int).convert(Level.HIGH)) is int


@given(INT64)
def test_every_int64_goes_through_an_int_attribute(value):
    assert attribute_of(int).convert(value) == value


@given(st.one_of(st.integers(max_value=-(2**63) - 1), st.integers(min_value=2**63)))
def test_an_int_beyond_int64_is_an_error(value):
    with pytest.raises(errors.InputError, match="does not fit int64"):
        attribute_of(int).convert(value)


@given(st.floats())
def test_a_float_is_the_nearest_float32_or_an_error(value):
    attribute = attribute_of(float)
    with np.errstate(over="ignore"):
        nearest = float(np.float32(value))
    if math.isinf(nearest) and math.isfinite(value):
        with pytest.raises(errors.InputError, match=r"overflows float32.*tensor attribute \(np\.ndarray\)"):
            attribute.convert(value)
    else:
        converted = attribute.convert(value)
        assert converted == nearest or (math.isnan(converted) and math.isnan(value))
        assert type(converted) is float


def test_an_int_too_large_for_any_float_is_the_same_error():
    with pytest.raises(errors.InputError, match="overflows float32"):
        attribute_of(float).convert(10**400)


@given(st.lists(st.text()))
def test_text_goes_through_unchanged(value):
    assert attribute_of(list[str]).convert(value) == value


@given(st.lists(INT64), st.sampled_from([list, tuple, np.array, iter]))
def test_any_iterable_is_a_list_attribute(value, container):
    made = container(value, np.int64) if container is np.array else container(value)
    converted = attribute_of(list[int]).convert(made)
    assert converted == value
    assert all(type(item) is int for item in converted)


@given(hnp.arrays(hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc" and dtype.itemsize <= 8), (2,)))
def test_a_tensor_attribute_is_a_read_only_copy(value):
    tensor = attribute_of(np.ndarray).convert(value)
    np.testing.assert_array_equal(tensor, value)
    assert not tensor.flags.writeable
    assert not np.may_share_memory(tensor, value)
    assert tensor.dtype.isnative


@pytest.mark.parametrize("dtype", ["U3", object, np.dtypes.StringDType()], ids=str)
def test_a_tensor_attribute_of_strings_is_an_object_array(dtype):
    tensor = attribute_of(np.ndarray).convert(np.array(["a", "bcd"], dtype))
    assert tensor.dtype == object
    assert tensor.tolist() == ["a", "bcd"]


@given(hnp.arrays(st.sampled_from(["i1", "f4", "f8", "U3"]), st.sampled_from([(1,), (2, 2), (1100,)])), st.data())
def test_attributes_are_equal_if_every_element_of_their_default_tensors_is(tensor, data):
    attribute, again = (attribute_of(np.ndarray, item) for item in (tensor, tensor.copy()))
    with np.printoptions(precision=2, threshold=1):
        assert (attribute, hash(attribute), repr(attribute)) == (again, hash(again), repr(again))
    changed = tensor.copy()
    index = data.draw(st.integers(0, tensor.size - 1))
    changed.flat[index] = data.draw(st.text("ab", max_size=3)) if tensor.dtype.kind == "U" else 7
    if not np.array_equal(changed, tensor, equal_nan=tensor.dtype.kind == "f"):
        other = attribute_of(np.ndarray, changed)
        assert attribute != other
        assert repr(attribute) != repr(other)
    assert attribute != attribute_of(np.ndarray, tensor[None])


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 1.0),
        (int, "1"),
        (int, None),
        (int, [1]),
        (float, "1"),
        (float, 1j),
        (str, b"x"),
        (str, 1),
        (bool, 2),
        (bool, "true"),
        (list[int], 1),
        (list[int], [1.5]),
        (list[int], [[1]]),
        (list[str], "abc"),
        (list[int], {1, 2}),
        (list[str], {"a": 1}),
        (np.ndarray, [1, 2]),
        (np.ndarray, 1),
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused(hint, value):
    attribute = attribute_of(hint)
    with pytest.raises(errors.InputError, match=r"attribute 'a' is .* it is declared as ") as raised:
        attribute.convert(value)
    assert attribute.spelling in str(raised.value)


def test_a_value_that_is_not_among_the_choices_is_refused():
    with pytest.raises(errors.InputError, match=r"attribute 'a' is 'c'; expected one of 'a', 'b'"):
        attribute_of(Literal["a", "b"]).convert("c")


def test_a_kernel_that_changes_its_list_does_not_change_the_default():
    @onnx_op("tests::Grow")
    def grow(*, sizes: list[int] = [1]) -> NDArray[np.int64]:  # noqa: B006
        sizes.append(2)
        return np.array(sizes)

    assert grow().tolist() == [1, 2]
    assert grow().tolist() == [1, 2]


def test_attributes_reach_the_kernel_converted():
    seen = {}

    @onnx_op("tests::Seen")
    def look(
        x: F32, *, a: int, b: float, c: bool, d: tuple[int, ...], e: np.ndarray, f: str = "f", g: int | None = None
    ) -> F32:
        seen.update(a=a, b=b, c=c, d=d, e=e, f=f, g=g)
        return x

    look(np.ones(1, np.float32), a=np.int8(1), b=0.1, c=np.True_, d=[1, 2], e=np.ones(2))
    tensor = seen.pop("e")
    assert seen == {"a": 1, "b": float(np.float32(0.1)), "c": True, "d": (1, 2), "f": "f", "g": None}
    assert (seen["c"], tensor.flags.writeable) == (True, False)


def test_unknown_and_missing_attributes_are_named():
    @onnx_op("tests::Named")
    def named(x: F32, *, alpha: float, beta: float = 1) -> F32:
        return x

    one = np.ones(1, np.float32)
    with pytest.raises(errors.InputError, match=r"^tests::Named: unknown attribute 'omega'; .* declares: alpha, beta"):
        named(one, omega=1)
    with pytest.raises(
        errors.InputError, match=r"^tests::Named: unknown attribute 'alhpa' \(did you mean 'alpha'\?\); "
    ):
        named(one, alhpa=1)
    with pytest.raises(errors.InputError, match=r"unknown attribute 'alpha_'; .* declares: alpha, beta"):
        named(one, alpha=1, alpha_=1)
    with pytest.raises(errors.InputError, match=r"^tests::Named: attribute 'alpha' is missing"):
        named(one)
    with pytest.raises(errors.InputError, match=r"^tests::Named: attribute 'alpha' is 'a' \(str\)"):
        named(one, alpha="a")
