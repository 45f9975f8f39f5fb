"""An op called on plain arrays, without a session: the arguments that it takes."""

import re
from typing import Any, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from pyops import errors, onnx_op
from pyops.shapes import TensorSpec
from tests.helpers.engines import make_session
from tests.helpers.models import chain

T = TypeVar("T", np.float32, np.float64)
F32 = NDArray[np.float32]
ONE = np.ones(1, np.float32)


class Moments(NamedTuple):
    mean: F32
    count: NDArray[np.int64]


@onnx_op("tests::AddUp")
def add(x: NDArray[T], y: NDArray[T]) -> NDArray[T]:
    return x + y


@onnx_op("tests::Optional")
def optional(x: F32, y: F32 | None = None, z: F32 | None = None) -> F32:
    return x + (10 if y is None else y) + (100 if z is None else z)


@onnx_op("tests::Sum")
def total(first: F32, *rest: NDArray[T]) -> F32:
    return first + np.float32(sum(float(item.sum()) for item in rest))


@onnx_op("tests::Mixed")
def mixed(*xs: NDArray[np.number]) -> NDArray[np.str_]:
    return np.array([x.dtype.name for x in xs])


@onnx_op("tests::Upper")
def upper(x: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.array([item.upper() for item in x.flat], object).reshape(x.shape)


@onnx_op("tests::Rounded")
def rounded(x: F32, *, decimals: int = 0) -> F32:
    return np.round(x, decimals)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_type_parameter_takes_each_of_its_types(dtype):
    assert add(np.ones(2, dtype), np.ones(2, dtype)).dtype == dtype


def test_a_dtype_that_is_not_declared_is_refused():
    with pytest.raises(
        errors.InputError,
        match=r"tests::AddUp: input 'x' is int64; declared as T \(one of float32, float64\): convert it, in NumPy with "
        r"x\.astype\(np\.float32\)",
    ):
        add(np.ones(2, np.int64), np.ones(2, np.int64))


def test_inputs_that_share_a_type_parameter_have_one_type():
    with pytest.raises(errors.InputError, match="input 'y' is float64 and 'x' is float32; both are declared T, which"):
        add(ONE, np.ones(1))


def test_a_foreign_byte_order_is_refused():
    with pytest.raises(errors.InputError, match=r"input 'x' is >f4; declared as"):
        add(ONE.astype(">f4"), ONE)


@pytest.mark.parametrize("value", [1.0, [1.0], (1.0,), "text"])
def test_what_is_no_array_is_refused_with_the_call_that_makes_one(value):
    with pytest.raises(
        errors.InputError, match=r"input 'x' is .*; pass an array, for example np\.asarray\(x, np\.float"
    ):
        add(value, ONE)


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ([1.0], "np.asarray(x, np.float32)"),
        ([[np.float32(1)]], "np.asarray(x, np.float32)"),
        ([np.float16(1)], "np.asarray(x, np.float16)"),
        (1, "np.asarray(x, np.int64)"),
        ([True], "np.asarray(x, np.bool)"),
        (["a"], "np.asarray(x, np.str_)"),
        ([[1.0], [1.0, 2.0]], "np.asarray(x, np.float16)"),
        pytest.param(onnxruntime.OrtValue.ortvalue_from_numpy(ONE), "x.numpy()", id="OrtValue"),
    ],
    ids=str,
)
def test_what_to_write_for_what_is_no_array_goes_by_its_data(value, call):
    @onnx_op("tests::Any")
    def anything(x: NDArray[np.generic]) -> NDArray[np.bool_]:
        return np.ones(1, bool)

    with pytest.raises(errors.InputError, match=rf"pass an array, for example {re.escape(call)}$"):
        anything(value)


def test_a_list_of_numbers_is_to_be_of_a_type_that_is_declared():
    with pytest.raises(errors.InputError, match=r"for example np\.asarray\(x, np\.float32\)$"):
        add([1, 2], ONE)


def test_a_tensor_of_torch_is_refused_with_what_makes_an_operator_for_it():
    tensor = type("Tensor", (), {"__module__": "torch", "dtype": "torch.float32"})()
    with pytest.raises(
        errors.InputError, match=r"input 'x' is torch\.Tensor; .*np\.asarray\(x, .*exporters\.custom_op"
    ):
        add(tensor, ONE)


def test_a_numpy_scalar_is_an_array_without_dimensions():
    assert add(np.float32(1), np.float32(2)).shape == ()


def test_ml_dtypes_go_through():
    @onnx_op("tests::BFloat16")
    def double(x: NDArray[ml_dtypes.bfloat16]) -> NDArray[ml_dtypes.bfloat16]:
        return x + x

    assert double(np.ones(1, ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16
    with pytest.raises(errors.InputError, match="input 'x' is float16; declared as bfloat16"):
        double(np.ones(1, np.float16))


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((ONE,), {}, 111),
        ((ONE, ONE), {}, 102),
        ((ONE, None, ONE), {}, 12),
        ((ONE,), {"z": ONE}, 12),
        ((), {"z": ONE, "x": ONE}, 12),
        ((ONE,), {"y": None}, 111),
    ],
    ids=str,
)
def test_optional_inputs_may_be_left_out_be_none_or_go_by_name(args, kwargs, expected):
    assert optional(*args, **kwargs).tolist() == [expected]


def test_an_input_that_is_not_optional_may_not_be_none():
    with pytest.raises(errors.InputError, match="input 'y' is None; it is not optional"):
        add(ONE, None)


def test_an_input_given_twice_is_refused():
    with pytest.raises(errors.InputError, match="tests::AddUp got input 'x' twice"):
        add(ONE, ONE, x=ONE)


@pytest.mark.parametrize(
    ("op", "count", "fragment"),
    [(add, 1, "takes 2"), (add, 3, "takes 2"), (optional, 0, "takes 1 to 3"), (total, 0, "takes 1 or more")],
)
def test_a_wrong_number_of_inputs_is_refused(op, count, fragment):
    with pytest.raises(errors.InputError, match=f"got {count} inputs; .* {fragment}"):
        op(*[ONE] * count)


def test_an_attribute_by_position_is_refused_with_its_name():
    with pytest.raises(errors.InputError, match=r"got 2 inputs; .* takes 1, and attributes by name: decimals=\.\.\."):
        rounded(ONE, 2)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_variadic_input_takes_any_number(count):
    assert total(ONE, *[np.ones(1)] * count).tolist() == [1 + count]


def test_a_variadic_input_is_of_one_type():
    with pytest.raises(errors.InputError, match=r"input 'rest' is float64 and 'rest' is float32"):
        total(ONE, ONE, np.ones(1))


def test_a_variadic_input_of_an_abstract_class_takes_a_type_each():
    assert mixed(np.ones(1), np.ones(1, np.int8), np.ones(1, np.complex64)).tolist() == ["float64", "int8", "complex64"]


@pytest.mark.parametrize("dtype", ["U3", object, np.dtypes.StringDType()], ids=str)
def test_strings_of_every_kind_reach_the_kernel_as_objects(dtype):
    result = upper(np.array([["a", "bc"]], dtype))
    assert (result.dtype, result.tolist()) == (np.dtype(object), [["A", "BC"]])


def test_an_object_array_that_holds_anything_but_str_is_refused():
    with pytest.raises(errors.InputError, match="input 'x' is an object array with elements other than str; pass"):
        upper(np.array(["a", None], object))


def test_bytes_are_no_strings():
    with pytest.raises(errors.InputError, match=r"input 'x' is \|S1; declared as string"):
        upper(np.array([b"a"]))


def test_a_masked_array_is_refused_with_the_fix():
    with pytest.raises(errors.InputError, match=r"input 'x' is a masked array, but ONNX has no masks; pass x\.filled"):
        add(np.ma.masked_array(ONE, [True]), ONE)


def test_kernels_get_read_only_views_of_plain_arrays():
    class Own(np.ndarray):
        pass

    seen: list[Any] = []

    @onnx_op("tests::Views")
    def look(x: F32) -> F32:
        seen.append(x)
        return x + x

    array = np.arange(4, dtype=np.float32).reshape(2, 2)
    look(array.view(Own))
    assert type(seen[0]) is np.ndarray
    assert np.shares_memory(seen[0], array)
    assert not seen[0].flags.writeable
    assert array.flags.writeable


class Column:
    """A column of a table, as other libraries have them."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.dtype, self.shape = self.values.dtype, self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[index] = value


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize("make", [Column, lambda values: np.asarray(values).view(Subclass)], ids=["other", "subclass"])
def test_what_numpy_takes_as_an_array_of_a_dtype_is_an_array(make):
    @onnx_op("tests::Columns")
    def columns(x: F32) -> F32:
        assert type(x) is np.ndarray
        with pytest.raises(ValueError, match="read-only"):
            x[:] = 0
        return make(x + 1)

    x = np.ones((1, 2), np.float32)
    given = columns(make(x))
    assert type(given) is np.ndarray
    assert given.tolist() == [[2, 2]]
    assert x.tolist() == [[1, 1]]


def test_a_kernel_that_writes_to_its_input_raises_numpys_own_error():
    @onnx_op("tests::Writes")
    def writes(x: F32) -> F32:
        x += 1
        return x

    with pytest.raises(ValueError, match="output array is read-only") as raised:
        writes(ONE)
    note = "the arrays that a kernel gets are read-only: write to a copy, such as x.copy()"
    assert raised.value.__notes__ == [note]
    for engine in ("native", "reference"):
        with pytest.raises(ValueError, match="output array is read-only") as raised:
            make_session(chain("tests::Writes"), engine).run(None, {"x": ONE})
        assert note in raised.value.__notes__


def test_a_kernels_exception_passes_through_untouched():
    class OwnError(Exception):
        pass

    error = OwnError("as it was")

    @onnx_op("tests::Raises")
    def raises(x: F32) -> F32:
        raise error

    with pytest.raises(OwnError) as raised:
        raises(ONE)
    assert raised.value is error
    assert not hasattr(error, "__notes__")


def test_the_buffer_of_a_session_is_not_an_argument_of_a_plain_call():
    @onnx_op("tests::Out")
    def with_out(x: F32, *, out: F32 | None = None) -> F32:
        return np.add(x, x, out=out)

    assert with_out(ONE).tolist() == with_out(ONE, out=None).tolist() == [2]
    with pytest.raises(errors.InputError, match=r"got out=, which is for ONNX Runtime's own buffers"):
        with_out(ONE, out=np.empty(1, np.float32))
    with pytest.raises(errors.InputError, match="unknown attribute 'out'"):
        add(ONE, ONE, out=np.empty(1, np.float32))


@pytest.mark.parametrize("compile", [False, "try"])
def test_a_parameter_may_be_called_self(compile):
    @onnx_op("tests::Itself", compile=compile)
    def grown(x: F32, *, self: int = 1) -> F32:
        return x + np.float32(self)

    @grown.register_shape_inference
    def _(x, *, self):
        return x

    @onnx_op("tests::Negative", compile=compile)
    def negative(self: F32) -> F32:
        return -self

    assert grown(ONE, self=2).tolist() == [3]
    assert grown.infer_shapes(TensorSpec((1,), np.float32), self=2) == (TensorSpec((1,), np.float32),)
    assert negative(self=ONE).tolist() == [-1]
    if compile:
        grown.compile(ONE, self=2)
        assert grown(ONE, self=2).tolist() == [3]


class FakeCupyArray:
    __module__ = "cupy"
    dtype, shape = np.dtype(np.float32), (1,)


@pytest.fixture
def no_cupy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)


@pytest.mark.usefixtures("no_cupy")
def test_a_cupy_array_without_cupy_names_the_extra_to_install():
    op = onnx_op("tests::Cuda")(add.kernels["cpu"])
    op.register_kernel("cuda")(lambda x, y: x)
    with pytest.raises(
        errors.MissingDependencyError, match=r'needs CuPy and onnxruntime-gpu; pip install ".*\[cuda\]"'
    ):
        op(FakeCupyArray(), FakeCupyArray())


def test_a_cupy_array_without_a_cuda_kernel_says_how_to_register_one():
    with pytest.raises(errors.DeclarationError, match=r'no kernel for \'cuda\'; .* @add\.register_kernel\("cuda"\)'):
        add(FakeCupyArray(), FakeCupyArray())
