"""Ops declared again, session options used again, and ops beside other operators of their domain."""

import ctypes
import functools
import gc
import operator
import threading
import weakref
from collections import deque

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from pyops._core.runtime.engine_choice import Engine
from tests.helpers.models import chain, make_model

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)


def declare_add(amount: float, as_attribute: bool = False) -> None:
    if as_attribute:

        @onnx_op("tests::Plus")
        def add(x: F32, *, by: float = amount) -> F32:
            return x + np.float32(by)

    else:

        @onnx_op("tests::Plus")
        def add(x: F32) -> F32:
            return x + np.float32(amount)


def test_a_changed_body_is_followed_by_living_sessions() -> None:
    declare_add(1)
    session = pyops.InferenceSession(chain("tests::Plus"))
    plain = onnxruntime.InferenceSession(
        chain("tests::Plus").SerializeToString(), pyops.register_custom_ops(onnxruntime.SessionOptions())
    )
    declare_add(2)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 2)
    np.testing.assert_array_equal(plain.run(None, {"x": X})[0], X + 2)


@pytest.mark.parametrize("table", [np.arange(3), np.array(["spam " * 2, "eggs"])], ids=["numbers", "strings"])
def test_a_changed_body_beside_a_default_tensor_is_followed_by_living_sessions(table: np.ndarray) -> None:
    def declare(amount: float) -> None:
        @onnx_op("tests::Plus")
        def add(x: F32, *, table: np.ndarray = table.copy()) -> F32:  # noqa: B008
            return x + np.float32(amount)

    declare(1)
    session = pyops.InferenceSession(chain("tests::Plus"))
    declare(2)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 2)


def test_a_changed_signature_takes_effect_in_new_sessions_and_old_ones_keep_the_old_op() -> None:
    declare_add(1)
    old = pyops.InferenceSession(chain("tests::Plus"))
    declare_add(100, as_attribute=True)
    new = pyops.InferenceSession(chain("tests::Plus"))
    for _ in range(2):
        np.testing.assert_array_equal(old.run(None, {"x": X})[0], X + 1)
        np.testing.assert_array_equal(new.run(None, {"x": X})[0], X + 100)


@pytest.mark.parametrize("in_between", [False, True], ids=["at-once", "with-a-session-of-another-model-in-between"])
def test_options_serve_a_second_session_after_a_changed_signature(in_between: bool) -> None:
    options = onnxruntime.SessionOptions()
    declare_add(1)
    old = pyops.InferenceSession(chain("tests::Plus"), options)
    declare_add(100, as_attribute=True)
    if in_between:
        pyops.InferenceSession(chain("Relu"), options)
    new = pyops.InferenceSession(chain("tests::Plus"), options)
    np.testing.assert_array_equal(old.run(None, {"x": X})[0], X + 1)
    np.testing.assert_array_equal(new.run(None, {"x": X})[0], X + 100)
    declare_add(5)
    third = pyops.InferenceSession(chain("tests::Plus"), options)
    results = [session.run(None, {"x": X})[0][0] for session in (old, new, third)]
    assert results == [1, 100, 5]


def test_registering_again_makes_options_follow_a_changed_signature() -> None:
    declare_add(1)
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    model = chain("tests::Plus").SerializeToString()
    old = onnxruntime.InferenceSession(model, options)
    declare_add(100, as_attribute=True)
    assert pyops.register_custom_ops(options) is options
    new = onnxruntime.InferenceSession(model, options)
    np.testing.assert_array_equal(old.run(None, {"x": X})[0], X + 1)
    np.testing.assert_array_equal(new.run(None, {"x": X})[0], X + 100)


def test_registered_options_keep_their_ops_when_a_session_of_another_model_is_made_from_them() -> None:
    declare_add(1)
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    pyops.InferenceSession(chain("Relu"), options)
    session = onnxruntime.InferenceSession(chain("tests::Plus").SerializeToString(), options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)


def test_a_new_op_in_the_domain_of_a_living_session_leaves_the_session_alone() -> None:
    declare_add(1)
    session = pyops.InferenceSession(chain("tests::Plus"))
    for i in range(20):

        @onnx_op(f"tests::More{i}")
        def more(x: F32) -> F32:
            return -x

        both = pyops.InferenceSession(chain("tests::Plus", f"tests::More{i}"))
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)
        np.testing.assert_array_equal(both.run(None, {"x": X})[0], -(X + 1))


def test_other_operators_of_com_microsoft_still_work_beside_a_declared_one() -> None:
    @onnx_op("com.microsoft::TestsDouble")
    def double(x: F32) -> F32:
        return x * 2

    model = chain("com.microsoft::TestsDouble", "com.microsoft::Gelu", "Relu")
    gelu = pyops.InferenceSession(chain("com.microsoft::Gelu")).run(None, {"x": X * 2})[0]
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    for session in (
        pyops.InferenceSession(model),
        onnxruntime.InferenceSession(model.SerializeToString(), options),
    ):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], gelu)


@pytest.mark.parametrize(("domain", "name"), [("com.microsoft", "Gelu"), ("", "Relu")])
def test_a_declared_op_takes_precedence_over_a_built_in_one(domain: str, name: str) -> None:
    @onnx_op(f"{domain or 'ai.onnx'}::{name}", override=True)
    def op(x: F32) -> F32:
        return x + 1000

    model = chain(f"{domain}::{name}" if domain else name, "Abs")
    np.testing.assert_array_equal(pyops.InferenceSession(model).run(None, {"x": X})[0], X + 1000)


def test_onnx_own_domain_keeps_its_operators_beside_a_declared_one() -> None:
    @onnx_op("ai.onnx::TestsTriple")
    def triple(x: F32) -> F32:
        return x * 3

    model = chain("TestsTriple", "Neg")
    np.testing.assert_array_equal(pyops.InferenceSession(model).run(None, {"x": X})[0], -3 * X)


@pytest.mark.parametrize("names", [("a", "b", "y"), ("", "", "y")], ids=["named", "without-a-name"])
def test_outputs_that_the_model_does_not_use_are_dropped(names: tuple[str, ...]) -> None:
    @onnx_op("tests::Three")
    def three(x: F32) -> tuple[F32, NDArray[np.str_], F32]:
        return x + 1, np.array(["unused"], object), x + 3

    node = helper.make_node("Three", ["x"], names, domain="tests")
    model = make_model([node], [("x", np.float32, None)], [("y", np.float32, None)], {"tests": 1})
    np.testing.assert_array_equal(pyops.InferenceSession(model).run(None, {"x": X})[0], X + 3)


def test_an_iobinding_s_own_buffer_is_filled_and_one_of_another_shape_is_an_error() -> None:
    declare_add(1)
    session = pyops.InferenceSession(chain("tests::Plus"))
    buffer = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(3, np.float32))
    small = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    for value in (buffer, small):
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_output("y", value)
        if value is small:
            with pytest.raises(Exception, match="shape"):
                session.run_with_iobinding(binding)
        else:
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(buffer.numpy(), X + 1)


def test_sessions_and_their_options_are_freed() -> None:
    declare_add(1)
    options = onnxruntime.SessionOptions()
    session = pyops.InferenceSession(chain("tests::Plus"), options)
    session.run(None, {"x": X})
    references = [weakref.ref(session), weakref.ref(options)]
    del session, options
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def declare_kept(default: int) -> weakref.ref[pyops.Op]:
    @onnx_op("tests::Kept")
    def kept(x: F32, *, n: int = default) -> F32:
        return x

    return weakref.ref(kept)


def test_an_op_is_freed_once_it_is_replaced_and_no_session_has_it() -> None:
    reference = declare_kept(1)
    session = pyops.InferenceSession(chain("tests::Kept"))
    declare_kept(2)
    gc.collect()
    assert reference() is not None
    del session
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_its_ops_are_freed_whatever_another_thread_sets_while_a_session_is_freed(engine: Engine) -> None:
    reference = declare_kept(1)
    sessions = [pyops.InferenceSession(chain("tests::Kept"), engine=engine)]
    declare_kept(2)
    thread, error = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TimeoutError)
    # Without a bytecode in between: whatever runs first when the session is freed gets the exception.
    calls = [functools.partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, thread, error), sessions.clear]

    def free() -> None:
        deque(map(operator.call, calls), maxlen=0)
        for _ in range(10**6):  # until the exception comes
            pass

    with pytest.raises(TimeoutError):
        free()
    gc.collect()
    assert not sessions
    assert reference() is None


def test_a_session_outlives_the_options_it_was_made_from() -> None:
    declare_add(1)
    options = onnxruntime.SessionOptions()
    sessions = [pyops.InferenceSession(chain("tests::Plus"), options) for _ in range(3)]
    del options
    gc.collect()
    while sessions:
        np.testing.assert_array_equal(sessions[-1].run(None, {"x": X})[0], X + 1)
        sessions.pop()
        gc.collect()


@pytest.mark.parametrize("shaped", [False, True], ids=["no shape function", "shape function"])
def test_an_output_for_which_there_is_no_memory_is_a_memory_error(shaped: bool) -> None:
    @onnx_op("tests::Huge")
    def huge(x: F32, *, size: int, out: F32 | None = None) -> F32:
        return np.broadcast_to(x[:1], (size,)) if out is None else out

    if shaped:
        huge.register_shape_inference(lambda x, *, size: x.like(shape=(size,)))
    for size in (2**50, 2**60):
        node = helper.make_node("Huge", ["x"], ["y"], domain="tests", size=size)
        model = make_model([node], [("x", np.float32, None)], [("y", np.float32, None)], {"tests": 1})
        session = pyops.InferenceSession(model)
        with pytest.raises(MemoryError, match=f"size {size * 4}") as caught:
            session.run(None, {"x": np.ones(1, np.float32)})
        assert "tests::Huge" in caught.value.__notes__[0]


def test_an_exception_costs_no_memory_for_what_a_kernel_had_spread_out() -> None:
    @onnx_op("tests::Spread")
    def spread(x: F32) -> F32:
        wide = np.broadcast_to(x, (2**50, 3))
        raise LookupError(wide)

    session = pyops.InferenceSession(chain("tests::Spread"))
    with pytest.raises(LookupError) as caught:
        session.run(None, {"x": X})
    (wide,) = caught.value.args
    assert wide.shape == (2**50, 3)
    assert wide[-1].tolist() == X.tolist()
