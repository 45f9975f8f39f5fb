"""Messages of checks if a kernel or a shape function raises, and if there is nothing to check."""

from __future__ import annotations

import sysconfig
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import onnx_op
from pyops.errors import ShapeInferenceError, UnknownSizeError
from pyops.testing import CheckError, check
from tests.pyops.testing.halving import F32, WITHOUT_TORCH, X

I64 = NDArray[np.int64]
T = TypeVar("T", np.float32, np.float64)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError, "the kernel takes them, but the shape function raises KeyError: 'no such size'"),
        (ShapeInferenceError, "ShapeInferenceError: no such size"),
    ],
)
def test_a_shape_function_that_refuses_what_the_kernel_takes(error: type[Exception], message: str):
    @onnx_op("checked::OneSize")
    def one_size(x: F32) -> F32:
        return x * 2

    @one_size.register_shape_inference
    def _(x):
        if x.shape != X.shape:
            raise error("no such size")
        return x

    with pytest.raises(CheckError) as raised:
        check(one_size, X, checks="other_sizes")
    assert message in str(raised.value)


def test_a_shape_function_that_cannot_have_symbols():
    @onnx_op("checked::Numbers")
    def numbers(x: F32) -> F32:
        return x * 2

    @numbers.register_shape_inference
    def _(x):
        if not isinstance(x.shape[0], int):
            raise KeyError(x.shape[0])
        return x

    with pytest.raises(CheckError, match=r"symbolic_shapes: .*known only at run time.* raises KeyError"):
        check(numbers, X, checks="symbolic_shapes")


def test_a_shape_function_that_needs_sizes_may_say_so():
    @onnx_op("checked::NeedsSizes")
    def needs_sizes(x: F32) -> F32:
        return x * 2

    @needs_sizes.register_shape_inference
    def _(x):
        if not isinstance(x.shape[0], int):
            raise UnknownSizeError("how many rows there are")
        return x

    (result,) = check(needs_sizes, X, checks="symbolic_shapes")
    assert result.reason == "the shape function needs known sizes"


def test_a_shape_function_with_another_number_of_outputs():
    @onnx_op("checked::Rows")
    def rows(x: F32) -> tuple[F32, ...]:
        return tuple(row.copy() for row in x)

    @rows.register_shape_inference
    def _(x):
        return (x.like(shape=x.shape[1:]),) * (x.shape[0] if isinstance(x.shape[0], int) else 1)

    with pytest.raises(
        CheckError, match=r"symbolic_shapes: .* the shape function gives 1 outputs; the kernel returns 2"
    ):
        check(rows, X, checks="symbolic_shapes")


def test_a_kernel_that_knows_some_types_only():
    @onnx_op("checked::SomeTypes")
    def some_types(x: NDArray[T]) -> NDArray[T]:
        return {np.dtype(np.float32): x}[x.dtype] * 2

    with pytest.raises(CheckError, match="dtypes: for T = float64 the kernel raises KeyError"):
        check(some_types, X, checks="dtypes")


def test_what_a_kernel_refuses_or_returns_without_an_optional_input():
    @onnx_op("checked::Refuses")
    def refuses(x: F32, bias: F32 | None = None) -> F32:
        if bias is None:
            raise ValueError("bias it must have")
        return x + bias

    @onnx_op("checked::Widens")
    def widens(x: F32, bias: F32 | None = None) -> F32:
        return x + (np.float64([1]) if bias is None else bias)

    noted = check(refuses, X, X, checks="optional_inputs")["optional_inputs"].reason
    assert "without 'bias' the kernel refuses: ValueError: bias it must have" in noted
    with pytest.raises(CheckError, match=r"optional_inputs: OutputError: without 'bias': .*returned float64"):
        check(widens, X, X, checks="optional_inputs")


def test_a_kernel_that_raises_when_another_call_comes_in_between():
    state: list[Any] = []

    @onnx_op("checked::Alone")
    def alone(x: F32) -> F32:
        if state:
            raise RuntimeError("it is called already")
        state.append(x)
        result = x * 2
        state.clear()
        return result

    with pytest.raises(CheckError, match="thread_safe: the kernel raises RuntimeError: it is called already when an"):
        check(alone, X, checks="thread_safe")


def test_threads_get_equal_inputs_where_the_kernel_takes_no_others():
    @onnx_op("checked::Known")
    def known(x: F32) -> F32:
        if not np.array_equal(x, X):
            raise ValueError("other numbers")
        return x * 2

    assert check(known, X, checks="thread_safe")["thread_safe"].status == "passed"


def test_compiled_kernels_are_tried_in_threads_as_plain_functions():
    pytest.importorskip("numba")

    @onnx_op("checked::CompiledInThreads", compile=True)
    def increment(x: F32) -> F32:
        return x + np.float32(1)

    assert check(increment, X, checks="thread_safe")["thread_safe"].status == "passed"


def test_calls_in_threads_are_held_against_the_function_that_runs_in_them():
    pytest.importorskip("numba")

    @onnx_op("checked::SummedInOrder", compile=True)
    def total(x: F32) -> F32:
        return np.asarray(x.sum())

    # NumPy adds them in another order than compiled code, and of numbers so far apart the order is what comes out.
    x = np.array([1e8, *[1] * 62, -1e8], np.float32)
    assert abs(np.sum(x) - total(x)) > 8
    report = check(total, x, checks=["thread_safe", "compiled"], raise_exception=False)
    assert [result.name for result in report.failed] == ["compiled"]


def test_where_no_line_can_be_stopped_at_nothing_is_known_of_threads():
    names: dict[str, Any] = {"F32": F32}
    source = "def halve(x: F32) -> F32:\n    return x / 2"
    exec(compile(source, f"{sysconfig.get_path('purelib')}/package.py", "exec"), names)
    report = check(onnx_op("checked::Installed")(names["halve"]), X, checks="thread_safe")
    assert report["thread_safe"].status == "not run"
    assert "its code is in an installed package, or not in Python" in report["thread_safe"].reason


def test_generated_code_is_no_line_of_an_installed_kernel():
    names: dict[str, Any] = {"F32": F32, "NamedTuple": NamedTuple, "__name__": "package"}
    source = """
class Two(NamedTuple):
    one: F32
    other: F32

scratch = []

def two(x: F32) -> Two:
    scratch.append(x + 1)
    return Two(scratch[-1], scratch.pop())
"""
    exec(compile(source, f"{sysconfig.get_path('purelib')}/package.py", "exec"), names)
    report = check(onnx_op("checked::InstalledTwo")(names["two"]), X, checks="thread_safe")
    assert report["thread_safe"].status == "not run"
    exec(compile(source, "<string>", "exec"), names)  # as with python -c
    report = check(onnx_op("checked::StringTwo")(names["two"]), X, checks="thread_safe", raise_exception=False)
    assert report["thread_safe"].status != "not run"


def test_a_compiled_kernel_is_compared_at_other_sizes():
    pytest.importorskip("numba")

    @onnx_op("checked::Pairs")
    def pairs(x: F32) -> F32:
        if x.shape[1] % 3:
            raise ValueError("columns must be threes")
        return x + x

    pairs.register_shape_inference(lambda x: x)

    @pairs.register_kernel("cpu", compile=True)
    def _(x):
        return x + x

    report = check(pairs, X, checks="engine_*", raise_exception=False)
    assert [result.name for result in report.failed] == ["compiled"]
    assert "takes inputs that the plain function refuses with ValueError: columns must be threes" in str(report)
    assert report["engine_native"].reason == "compiled failed"


def test_a_compiled_kernel_that_is_right_at_one_size_only():
    pytest.importorskip("numba")

    @onnx_op("checked::Twice")
    def twice(x: F32) -> F32:
        return x * 2

    @twice.register_kernel("cpu", compile=True)
    def _(x):
        return x * np.float32(x.shape[0])

    with pytest.raises(CheckError, match="compiled: the compiled kernel gives other outputs than the plain function"):
        check(twice, X, checks="compiled")


def test_generated_inputs_that_are_all_refused_show_nothing():
    @onnx_op("checked::Board")
    def board(x: F32) -> F32:
        if x.shape != (7, 9):
            raise ValueError("only boards")
        return x

    result = check(board, np.ones((7, 9), np.float32), generate=30, checks="generated")["generated"]
    assert (result.status, result.reason) == (
        "not run",
        "the kernel refuses all 30 generated samples, the last one with ValueError: only boards; pass a strategy: "
        "check(..., generate=pyops.testing.strategies.samples(board, shapes=...))",
    )


def test_there_is_nothing_to_vary_in_one_number_or_none():
    @onnx_op("checked::Same")
    def same(x: F32) -> F32:
        return x.copy()

    @onnx_op("checked::Constant")
    def constant(*, size: int, kind: Literal["ones", "zeros"]) -> F32:
        return getattr(np, kind)(size, np.float32)

    report = check(same, np.float32([1]), checks="non_contiguous")
    assert (report["non_contiguous"].status, report["non_contiguous"].reason) == (
        "not run",
        "no input has two elements",
    )
    report = check(constant, checks=WITHOUT_TORCH)
    assert report["scalar"].reason == "the op has no inputs"
    assert report["outputs"].status == "passed"


def test_inputs_of_integers_and_bool_are_generated():
    @onnx_op("checked::Select")
    def select(which: NDArray[np.bool_], x: I64) -> I64:
        return np.where(which, x, 0)

    assert check(select, checks="outputs")["outputs"].status == "passed"


def test_a_buffer_is_no_input_of_another_shape():
    @onnx_op("checked::Maybe", may_inplace={"output": "y"})
    def maybe(x: F32, y: F32 | None = None, *, out: F32 | None = None) -> F32:
        return np.multiply(x, 2, out=out)

    @maybe.register_shape_inference
    def _(x, y=None):
        return x

    assert check(maybe, X, checks="out_buffers")["out_buffers"].status == "passed"


def test_generated_lists_and_inputs_of_several_types():
    @onnx_op("checked::Listed")
    def listed(x: F32, *others: NDArray[T], scales: list[float], axes: tuple[int, ...] = ()) -> F32:
        if x.ndim == 2:
            raise ValueError("no matrices")
        return x * np.float32(len(scales) + len(axes))

    reason = check(listed, X[0], scales=[1.0], generate=200, checks="generated")["generated"].reason
    assert not reason.endswith("refuses 0")


def test_generated_inputs_of_an_abstract_class_are_of_several_types():
    seen = set()

    @onnx_op("checked::Kinds")
    def kinds(x: F32, *others: NDArray[np.integer]) -> F32:
        seen.add(len({other.dtype for other in others}))
        return x

    assert check(kinds, X[0], np.int8([1]), np.int8([1]), generate=20, checks="generated").ok
    assert seen >= {1, 2}
