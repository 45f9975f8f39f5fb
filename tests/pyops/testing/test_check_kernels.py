"""What `pyops.testing.check` finds in kernels."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from pyops._support.element_types import ELEMENT_TYPES, STRING
from pyops.errors import InputError, MissingDependencyError
from pyops.testing import CheckError, check, isolated_declarations
from pyops.testing._check import example
from pyops.testing._variations import cast
from tests.pyops.testing.halving import F32, WITHOUT_TORCH, X, declare_halve


@pytest.fixture
def op() -> Op[..., Any]:
    return declare_halve()


@pytest.mark.parametrize("arrays", [(), (X,)])
def test_a_kernel_that_writes_into_its_inputs_refuses_none(arrays: tuple[Any, ...]):
    @onnx_op("checked::Writing")
    def writing(x: F32) -> F32:
        x += 1
        return x

    with pytest.raises(CheckError, match=r"inputs_unchanged: the kernel changes its input 'x'"):
        check(writing, *arrays)


def test_a_kernel_that_ends_the_process_does_not_end_the_checks():
    @onnx_op("checked::Ending")
    def ending(x: F32) -> F32:
        sys.exit(3)

    with pytest.raises(CheckError, match="outputs: SystemExit: 3"):
        check(ending, X)
    with pytest.raises(InputError, match="raises SystemExit: 3 for"):
        check(ending)


def test_what_a_kernel_refuses_is_noted():
    @onnx_op("checked::Largest")
    def largest(x: F32) -> F32:
        return x.max(-1) + x[0].max()

    report = check(largest, X, checks=["empty", "scalar"])
    assert "refuses inputs empty along the last axis: ValueError: zero-size array" in report["empty"].reason
    assert "refuses inputs without dimensions: " in report["scalar"].reason


def test_a_lock_makes_a_kernel_thread_safe():
    scratch, lock = np.zeros(6, np.float32), threading.Lock()

    @onnx_op("checked::Locked")
    def locked(x: F32) -> F32:
        with lock:
            scratch[:] = x.ravel()
            return scratch.reshape(x.shape) * 2

    report = check(locked, X, checks="thread_safe")
    assert report["thread_safe"].status == "passed"


def test_a_number_that_threads_share_is_found_where_it_depends_on_no_order():
    shared = {}

    @onnx_op("checked::Shared")
    def subtract_largest(x: F32) -> F32:
        shared["largest"] = x.max()
        return x - shared["largest"]

    with pytest.raises(CheckError, match="thread_safe: when another thread's call runs at"):
        check(subtract_largest, X[0], checks="thread_safe")


def test_the_first_input_is_not_to_be_kept_either():
    kept = []

    @onnx_op("checked::KeepsFirst")
    def keeps_first(x: F32) -> F32:
        if not kept:
            kept.append(x)
        return x - kept[0].mean()

    with pytest.raises(CheckError, match="inputs_released: the kernel keeps its input 'x'"):
        check(keeps_first, X, checks="inputs_*")


def test_a_kernel_whose_calls_get_shorter_is_tried_in_threads_all_the_same():
    left = iter(range(1000, 0, -1))

    @onnx_op("checked::Shorter")
    def shorter(x: F32) -> F32:
        for _ in range(next(left)):
            pass
        return x + x

    assert check(shorter, X, checks="thread_safe").ok


def test_memory_of_a_thread_is_its_own():
    local = threading.local()

    @onnx_op("checked::Local")
    def own(x: F32) -> F32:
        local.value = x.copy()
        local.value += 1
        return local.value * 1

    assert check(own, X, checks="thread_safe").ok


def test_generated_inputs_find_what_the_sample_does_not():
    @onnx_op("checked::Sum")
    def total(x: F32, *ys: F32) -> F32:
        if len(ys) == 2:
            return x.astype(np.float64)
        return sum((y.sum() for y in ys), x.sum())

    report = check(total, X, X, generate=50, checks="generated", raise_exception=False)
    assert re.search(
        r"for Sum\(float32\[0?\], float32\[0?\], float32\[0?\]\): OutputError: .*float64", report["generated"].reason
    ), report


def test_generated_inputs_say_how_many_there_were(op):
    assert re.fullmatch(r"\d+ samples, of which the kernel refuses \d+", check(op, X, generate=20)["generated"].reason)


def test_generated_inputs_need_hypothesis(op, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "hypothesis"] + ["hypothesis"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "pyops.testing.strategies", raising=False)
    assert check(op, X, checks="generated")["generated"].status == "not run"
    with pytest.raises(MissingDependencyError, match=r"need hypothesis.*onnx-pyops\[testing\]"):
        check(op, X, generate=5, checks="generated", raise_exception=False)
    with pytest.raises(MissingDependencyError, match="need hypothesis"):
        importlib.import_module("pyops.testing.strategies")


def test_an_op_of_types_that_onnx_runtime_lacks():
    @onnx_op("checked::Conjugate")
    def conjugate(x: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return x.conj()

    report = check(conjugate, X.astype(np.complex64) * 1j, checks=WITHOUT_TORCH)
    assert report["engine_native"].reason == "the native engine does not support complex64"
    assert report["engine_reference"].status == "passed"


def test_versions_and_operators_in_place_of_built_in_ones():
    @onnx_op("ai.onnx::Relu", override=True)
    def relu(x: F32) -> F32:
        return np.maximum(x, 0) + 100

    @onnx_op("checked::Versioned", version=3)
    def third(x: F32) -> F32:
        return x * 3

    @onnx_op("checked::Versioned", version=4)
    def fourth(x: F32) -> F32:
        return x * 4

    for op in (relu, third, fourth):
        report = check(op, X, checks="engine_*")
        assert report["engine_native"].status == report["engine_reference"].status == "passed"


def test_functions_declared_with_onnxruntime_extensions_are_ops_too():
    theirs = pytest.importorskip("onnxruntime_extensions")
    code = theirs.PyCustomOpDef.dt_float

    @theirs.onnx_op(op_type="checked.adopted::Half", inputs=[code], outputs=[code])
    def half(x):
        return x / np.float32(2)

    (adopted,) = [op for op in pyops.list_ops() if op.domain == "checked.adopted"]
    report = check(adopted, X, checks=WITHOUT_TORCH)
    assert {report[f"engine_{name}"].status for name in ("native", "extensions", "reference")} == {"passed"}


def test_may_inplace_is_held_to():
    @onnx_op("checked::Backwards", may_inplace={"output": "x"})
    def backwards(x: F32, *, out: F32 | None = None) -> F32:
        if out is None:
            return x[::-1].copy()
        for index in range(len(x)):
            out[index] = x[len(x) - 1 - index]
        return out

    @backwards.register_shape_inference
    def _(x):
        return x

    report = check(backwards, X, checks=WITHOUT_TORCH, raise_exception=False)
    assert [result.name for result in report.failed] == ["out_buffers"]
    assert "in the memory of 'x', which may_inplace allows" in report["out_buffers"].reason


def test_a_compiled_kernel_is_held_against_the_plain_function():
    pytest.importorskip("numba")

    @onnx_op("checked::Wraps", compile=True)
    def wraps(x: NDArray[np.int32]) -> NDArray[np.int32]:
        return x + np.int32(1)

    @onnx_op("checked::Differs")
    def differs(x: NDArray[np.int32]) -> NDArray[np.int32]:
        return x + np.int32(1)

    @differs.register_kernel("cpu", compile=True)
    def _(x):
        return x + np.int32(2)

    x = np.arange(3, dtype=np.int32)
    checks = ["compiled", "engine_native"]
    assert check(wraps, x, checks=checks).ok
    report = check(differs, x, checks=checks, raise_exception=False)
    assert [result.name for result in report.failed] == ["compiled"]


@pytest.mark.exhaustive
def test_inputs_that_a_compiled_kernel_has_no_form_for_in_sessions_are_passed_over():
    pytest.importorskip("numba")

    @onnx_op("checked::Filled", compile=True)
    def filled(x: F32, *, out: F32 | None = None) -> F32:
        if out is None:
            return x + np.float32(1)
        out[:] = x + np.float32(1)  # which numba refuses for an array without dimensions
        return out

    filled.register_shape_inference(lambda x: x)
    assert check(filled, X[0], checks="engine_native").ok


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("given", ELEMENT_TYPES, ids=lambda row: row.dtype.name)
def test_a_sample_of_any_type_is_cast_to_every_other_one(given):
    """All of ONNX's types have the number one, which NumPy compares by itself."""
    array = np.array(["1", "1"], object) if given.dtype == STRING else np.array([1, 1]).astype(given.dtype)
    for row in ELEMENT_TYPES:
        found = cast(array, row.dtype)
        assert (found.dtype, found.shape) == (row.dtype, (2,))
        if STRING not in (given.dtype, row.dtype):
            assert found.astype(np.complex128).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [ml_dtypes.int2, ml_dtypes.uint4, np.int8, np.uint64])
def test_integers_are_cast_to_the_nearest_of_the_type(dtype):
    low, high = {"int2": (-2, 1), "uint4": (0, 15), "int8": (-128, 127), "uint64": (0, 2**64 - 1)}[np.dtype(dtype).name]
    assert cast(np.array([-1e30, 1e30]), np.dtype(dtype)).tolist() == [low, high]


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn])
def test_an_op_of_all_types_passes_whatever_the_type_of_its_sample(dtype):
    @onnx_op("checked::Rank")
    def rank(x: NDArray[np.generic]) -> NDArray[np.int64]:
        return np.array(x.ndim)

    assert check(rank, np.ones(2, dtype), checks="dtypes")["dtypes"].status == "passed"


def test_a_string_beside_a_type_that_the_bindings_lack_is_no_failure():
    @onnx_op("checked::Sizes")
    def sizes(x: NDArray[np.str_], y: NDArray[ml_dtypes.bfloat16]) -> NDArray[np.int64]:
        return np.array(x.size + y.size)

    inputs = np.array(["a"]), np.ones(2, ml_dtypes.bfloat16)
    report = check(sizes, *inputs, checks=["engine_*", "generated"], generate=3)
    assert report["engine_native"].status == "not run"
    assert "no string inputs in a model with bfloat16" in report["engine_native"].reason
    assert report["engine_reference"].status == report["generated"].status == "passed"


def test_reasons_have_the_whole_text_of_an_exception_in_one_line():
    @onnx_op("checked::Telling")
    def telling(x: F32) -> F32:
        if not x.size:
            raise ValueError("first line\n  second line")
        if not x.ndim:
            raise ValueError(f"begin {'x' * 5000} end")
        return x + 1

    report = check(telling, X, checks=["empty", "scalar"])
    assert "ValueError: first line second line" in report["empty"].reason
    long = report["scalar"].reason
    assert "ValueError: begin xxx" in long
    assert long.endswith("xxx end")
    assert len(long) < 1500


def test_a_kernel_that_never_gets_its_buffers_is_told_why():
    @onnx_op("checked::Buffers")
    def add_one(x: F32, *, out: F32 | None = None) -> F32:
        return np.add(x, np.float32(1), out=out)

    assert "no shape function" in check(add_one, X, checks="out_buffers")["out_buffers"].reason
    add_one.register_shape_inference(lambda x: x)
    assert check(add_one, X, checks="out_buffers")["out_buffers"].reason == ""


def test_a_strategy_is_kept_with_the_op():
    from pyops.testing import strategies

    @onnx_op("checked::Power")
    def power(x: F32, *, by: int, twice: bool = False) -> F32:
        if x.shape != (4, 4):
            raise ValueError("not of shape (4, 4)")
        return np.linalg.matrix_power(x, by)

    def register(elements=None):
        @power.register_samples
        def _():
            small = st.integers(-3, 3) if elements is None else elements
            return strategies.samples(power, shapes=(4, 4), elements=small, attributes={"by": st.integers(1, 3)})

    with pytest.raises(InputError, match=r"or register a strategy for samples: @power.register_samples"):
        check(power)
    with isolated_declarations():
        register()
        report = check(power, checks=["outputs", "generated"])
        assert re.match(r"Power\(float32\[4, 4\], .*by=[123]\), generated inputs", report.subject)
        assert report["generated"].reason == "100 samples, of which the kernel refuses 0"
        assert check(power, checks="generated", generate=7)["generated"].reason.startswith("7 samples, ")
        assert "by=2" in check(power, by=2, checks="outputs").subject
        sample = example(power, {})
        assert len(np.unique(sample.inputs[0])) > 3
        assert str(example(power, {})) == str(sample)
        assert (example(power, {}).inputs[0] == sample.inputs[0]).all()
        given = check(power, *sample.inputs, **sample.attributes, checks="generated")
        assert given["generated"].status == "not run"
        register(st.just(1e30))
        assert (example(power, {}).inputs[0] == np.float32(1e30)).all()
        power.register_samples(lambda: st.just(1))
        with pytest.raises(InputError, match="the strategy gives 1; expected samples of checked::Power"):
            check(power)
    assert power.samples is None
    register()
    onnx_op("checked::Power")(power.kernels["cpu"])
    assert power.samples is None


def test_samples_of_an_op_with_constraints_come_from_a_strategy():
    from pyops.testing import strategies

    seen = []

    @onnx_op("checked::Square")
    def square(x: F32) -> F32:
        if x.shape != (3, 3):
            raise ValueError("not of shape (3, 3)")
        seen.append(x.copy())
        return x @ x

    x = np.eye(3, dtype=np.float32)
    small = st.integers(-3, 3)
    refused = check(square, x, checks="generated", generate=5)["generated"]
    assert refused.status == "not run"
    assert "pass a strategy: check(..., generate=pyops.testing.strategies.samples(square" in refused.reason
    passed = check(square, x, checks="generated", generate=strategies.samples(square, shapes=(3, 3), elements=small))
    assert passed["generated"].reason == "100 samples, of which the kernel refuses 0"
    assert any((other != x).any() for other in seen)
    with pytest.raises(CheckError, match="the strategy gives 1; expected samples of checked::Square"):
        check(square, x, checks="generated", generate=st.just(1))
    for wrong in (-1, "many"):
        with pytest.raises(InputError, match="expected the number of samples to generate, or a strategy"):
            check(square, x, generate=wrong)
