"""What a kernel may return from a plain call, and the errors for anything else."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import errors, onnx_op

T = TypeVar("T", np.float32, np.float64)
F32, Str = NDArray[np.float32], NDArray[np.str_]
ONE = np.ones(1, np.float32)


class Moments(NamedTuple):
    mean: F32
    count: NDArray[np.int64]


def returning(result: Any, hint: Any = F32) -> Callable[[], Any]:
    """A plain call of an op that is declared to return `hint` and returns `result`."""

    def function(x):
        return result(x) if callable(result) else result

    function.__annotations__ = {"x": NDArray[T], "return": hint}
    op = onnx_op("tests::Returning")(function)
    return lambda: op(ONE)


WRONG = {
    "None": (None, "'output' is declared float32 and the kernel returned None; return an array"),
    "a list": ([1.0], "the kernel returned list; return np.asarray(result, np.float32)"),
    "a float": (1.0, "the kernel returned float; return np.asarray(result, np.float32)"),
    "a tuple": ((ONE,), "the kernel returned tuple; return one array, or declare -> tuple[...]"),
    "an array of another library": (
        SimpleNamespace(dtype="torch.float32", shape=(1,)),
        "the kernel returned types.SimpleNamespace; return np.asarray(result, np.float32)",
    ),
    "another dtype": (
        np.ones((2, 3)),
        "the kernel returned float64[2, 3]; return result.astype(np.float32), or declare it NDArray[np.float64]",
    ),
    "a scalar of another dtype": (np.float64(1), "the kernel returned float64[]; return result.astype(np.float32)"),
    "another byte order": (ONE.astype(">f4"), "the kernel returned >f4[1]; return result.astype(np.float32)"),
    "dates": (np.ones(1, "M8[s]"), "return result.astype(np.float32)"),
    "a masked array": (
        np.ma.masked_array(ONE, [True]),
        "is a masked array, but ONNX has no masks; return value.filled",
    ),
    "objects": (np.array([None]), "the kernel returned string[1]; return result.astype(np.float32)"),
}


@pytest.mark.parametrize(("result", "fragment"), WRONG.values(), ids=WRONG)
def test_a_result_that_does_not_match_is_refused_with_the_fix(result, fragment):
    with pytest.raises(errors.OutputError, match=r"^tests::Returning") as raised:
        returning(result)()
    assert fragment in str(raised.value)


def test_a_hint_to_declare_another_type_names_only_types_that_onnx_has():
    with pytest.raises(errors.OutputError) as raised:
        returning(np.ones(1, "M8[s]"))()
    assert "or declare it" not in str(raised.value)


TUPLES = {
    "one array": (ONE, "returned numpy.ndarray|float32[1]; write return output_0, output_1"),
    "a list": (
        [ONE, ONE],
        "is declared to return a tuple of 2 arrays and returned list; write return output_0, output_1",
    ),
    "too few": ((ONE,), "is declared to return 2 arrays and returned 1; return as many as the return type names"),
    "too many": ((ONE,) * 3, "is declared to return 2 arrays and returned 3"),
    "a None": ((ONE, None), "'output_1' is declared float32 and the kernel returned None"),
}


@pytest.mark.parametrize(("result", "fragment"), TUPLES.values(), ids=TUPLES)
def test_a_result_of_several_that_does_not_match_is_refused(result, fragment):
    with pytest.raises(errors.OutputError) as raised:
        returning(result, tuple[F32, F32])()
    assert any(part in str(raised.value) for part in fragment.split("|"))


def test_the_type_of_an_output_follows_the_input():
    assert returning(lambda x: x + x, NDArray[T])().dtype == np.float32
    with pytest.raises(errors.OutputError, match="declared float32 and the kernel returned float64"):
        returning(lambda x: x.astype(np.float64), NDArray[T])()


def test_a_numpy_scalar_of_the_declared_dtype_comes_back_as_an_array():
    result = returning(np.float32(2))()
    assert (type(result), result.shape, result.item()) == (np.ndarray, (), 2)


def test_a_tuple_with_one_item_comes_back_as_a_tuple():
    assert returning((ONE,), tuple[F32])() == (ONE,)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_variadic_output_takes_any_number(count):
    assert len(returning((ONE,) * count, tuple[F32, ...])()) == count


def test_a_named_tuple_comes_back_as_that_class():
    result = returning(lambda x: Moments(x, np.array(1)), Moments)()
    assert type(result) is Moments
    assert result.count == 1


def test_a_wrong_field_of_a_named_tuple_is_named():
    with pytest.raises(errors.OutputError, match=r"'count' is declared int64 and the kernel returned float32\[1\]"):
        returning(lambda x: Moments(x, x), Moments)()


def test_a_subclass_of_ndarray_comes_back_as_a_plain_array():
    class Own(np.ndarray):
        pass

    assert type(returning(lambda x: (x + x).view(Own))()) is np.ndarray


def test_an_input_that_is_returned_comes_back_as_a_copy():
    result = returning(lambda x: x[:])()
    assert not np.shares_memory(result, ONE)
    assert result.flags.writeable


@pytest.mark.parametrize("dtype", ["U3", object, np.dtypes.StringDType()], ids=str)
def test_strings_of_every_kind_come_back_as_objects(dtype):
    result = returning(np.array(["a", "bc"], dtype), Str)()
    assert (result.dtype, result.tolist()) == (np.dtype(object), ["a", "bc"])


@pytest.mark.parametrize(
    ("result", "fragment"),
    [
        (np.array([b"a"]), "declared string and the kernel returned |S1[1]; return an array of str"),
        (np.array([b"a"], object), "returned an array that holds bytes; return str"),
        (np.array(["a", None], object), "returned an array that holds None; return str"),
        (np.array([1]), "returned int64[1]; return an array of str"),
        ("a", "the kernel returned str; return np.asarray(result, np.str_)"),
    ],
    ids=str,
)
def test_what_is_no_array_of_str_is_refused(result, fragment):
    with pytest.raises(errors.OutputError) as raised:
        returning(result, Str)()
    assert fragment in str(raised.value)


def test_an_output_whose_type_no_present_input_tells_is_an_error():
    @onnx_op("tests::Untold")
    def untold(x: NDArray[T] | None = None) -> NDArray[T]:
        raise NotImplementedError

    with pytest.raises(errors.InputError, match="no input is present from which to infer the type of output 'output'"):
        untold()
