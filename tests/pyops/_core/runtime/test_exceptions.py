"""How a kernel's exception reaches the caller."""

import gc
import sys
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as bindings
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from tests.helpers.models import chain, make_model

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)


class OwnError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(code)
        self.detail = detail


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise TypeError("no text")


class EmptyError(Exception):
    def __len__(self) -> int:
        return 0


EXCEPTIONS = [
    ValueError("a value"),
    OwnError(7, detail="more"),
    FrozenError(3),
    UnprintableError(),
    EmptyError(),
    StopIteration(5),
    KeyboardInterrupt("interrupt"),
    SystemExit(3),
    RecursionError("deep"),
    MemoryError(),
    ExceptionGroup("two", [ValueError(1), TypeError(2)]),
    ValueError("see [pyops exception 0], nothing of the kind"),
    ValueError("NUL \0 and a lone surrogate \udc80, 北京"),
    ValueError("long " * 20_000),
]


@onnx_op("tests::Raise")
def raise_it(x: F32) -> F32:
    raise current[0]  # here


current: list[BaseException] = []


def raised_by(session: onnxruntime.InferenceSession, feed: dict[str, Any] | None = None) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        session.run(None, feed or {"x": X})
    return caught.value


@pytest.fixture
def session() -> pyops.InferenceSession:
    from pyops._core.ops import op_registry

    op_registry.declare_op(raise_it)
    return pyops.InferenceSession(chain("tests::Raise"))


@pytest.mark.parametrize("error", EXCEPTIONS, ids=[f"{type(e).__name__}-{i}" for i, e in enumerate(EXCEPTIONS)])
def test_an_exception_is_raised_as_itself(error: BaseException, session: pyops.InferenceSession) -> None:
    current[:] = [error]
    caught = raised_by(session)
    assert caught is error
    assert pyops.last_exception() is error
    assert caught.__cause__ is None
    assert caught.__context__ is None


def test_the_last_frame_is_the_kernel_s_line_and_none_of_pyops_inner_ones_lead_to_it(
    session: pyops.InferenceSession,
) -> None:
    current[:] = [ValueError("no")]
    frames = traceback.extract_tb(raised_by(session).__traceback__)
    assert frames[-1].line == "raise current[0]  # here"
    assert frames[-1].filename == __file__
    assert not [frame for frame in frames if "pyops/_core/runtime/native/" in frame.filename]


def test_the_note_names_node_domain_and_inputs() -> None:
    @onnx_op("tests::TwoTypes")
    def mixed(x: F32, y: NDArray[np.int64] | None = None, *rest: NDArray[np.str_]) -> F32:
        raise ValueError("no")

    node = helper.make_node("TwoTypes", ["x", "", "s"], ["y"], domain="tests", name="the_node")
    inputs = [("x", np.float32, None), ("s", np.object_, None)]
    model = make_model([node], inputs, [("y", np.float32, None)], {"tests": 1})
    feed = {"x": np.zeros((2, 3), np.float32), "s": np.array("text", object).reshape(())}
    error = raised_by(pyops.InferenceSession(model), feed)
    assert error.__notes__ == ["in node 'the_node' (tests::TwoTypes), inputs x: float32[2, 3], y: None, rest: string[]"]


def test_an_exception_raised_again_and_again_has_its_note_once(session: pyops.InferenceSession) -> None:
    current[:] = [ValueError("no")]
    for _ in range(3):
        assert len(raised_by(session).__notes__) == 1


def test_an_exception_keeps_its_own_cause_and_context() -> None:
    @onnx_op("tests::Chained")
    def chained(x: F32) -> F32:
        try:
            raise LookupError("first")
        except LookupError as error:
            raise ValueError("second") from error

    error = raised_by(pyops.InferenceSession(chain("tests::Chained")))
    assert isinstance(error, ValueError)
    assert isinstance(error.__cause__, LookupError)
    assert error.__context__ is error.__cause__
    assert error.__cause__.__context__ is None


@pytest.mark.parametrize("way", ["run", "ort_values", "ort_value_vector", "iobinding"])
def test_every_way_to_run_raises_the_exception_as_itself(way: str, session: pyops.InferenceSession) -> None:
    current[:] = [OwnError(1, detail=way)]
    value = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    feeds = bindings.OrtValueVector()
    feeds.push_back(value._ortvalue)
    vectors = ["x"], feeds, ["y"], bindings.OrtValueVector(), [onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()]
    run: dict[str, Callable[[], Any]] = {
        "run": lambda: session.run(["y"], {"x": X}, onnxruntime.RunOptions()),
        "ort_values": lambda: session.run_with_ort_values(None, {"x": value}),
        "ort_value_vector": lambda: session.run_with_ortvaluevector(onnxruntime.RunOptions(), *vectors),
        "iobinding": lambda: session.run_with_iobinding(binding),
    }
    with pytest.raises(OwnError) as caught:
        run[way]()
    assert caught.value.detail == way


def test_a_kernel_of_strings_raises_its_exception_as_itself() -> None:
    @onnx_op("tests::Words")
    def words(x: NDArray[np.str_]) -> NDArray[np.str_]:
        raise LookupError("no such word")

    error = raised_by(pyops.InferenceSession(chain("tests::Words", dtype=np.object_)), {"x": np.array(["a"], object)})
    assert repr(error) == "LookupError('no such word')"


def test_a_dead_weak_proxy_within_reach_of_the_kernel_does_not_take_the_exception_s_place() -> None:
    class Gone:
        pass

    held = [weakref.proxy(Gone())]

    @onnx_op("tests::Proxy")
    def proxy(x: F32) -> F32:
        local = held
        raise LookupError(len(local))

    assert repr(raised_by(pyops.InferenceSession(chain("tests::Proxy")))) == "LookupError(1)"


def test_the_session_works_on_after_an_exception(session: pyops.InferenceSession) -> None:
    @onnx_op("tests::Sometimes")
    def sometimes(x: F32) -> F32:
        if x[0] < 0:
            raise ValueError("negative")
        return x + 1

    session = pyops.InferenceSession(chain("tests::Sometimes"))
    for _ in range(3):
        assert isinstance(raised_by(session, {"x": X - 1}), ValueError)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)


def test_nothing_is_printed(session: pyops.InferenceSession, capfd: pytest.CaptureFixture[str]) -> None:
    current[:] = [ValueError("no")]
    raised_by(session)
    assert capfd.readouterr() == ("", "")


def test_an_error_of_onnxruntime_itself_stays_what_it_is() -> None:
    model = chain("Relu")
    ours, theirs = pyops.InferenceSession(model), onnxruntime.InferenceSession(model.SerializeToString())
    ours_error, theirs_error = (raised_by(s, {"x": np.zeros(3)}) for s in (ours, theirs))
    assert type(ours_error) is type(theirs_error)
    assert str(ours_error) == str(theirs_error)


def test_in_a_session_of_onnxruntime_its_own_error_carries_node_and_traceback(
    session: pyops.InferenceSession, capfd: pytest.CaptureFixture[str]
) -> None:
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    options.log_severity_level = 4
    plain = onnxruntime.InferenceSession(chain("tests::Raise").SerializeToString(), options)
    current[:] = [OwnError(7, detail="more")]
    error = raised_by(plain)
    assert type(error).__module__.startswith("onnxruntime")
    for text in ("node0", "tests::Raise", "OwnError: 7", "raise current[0]  # here", "x: float32[3]"):
        assert text in str(error)
    assert pyops.last_exception() is current[0]


def test_of_exceptions_that_nobody_picks_up_the_last_ones_are_kept() -> None:
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    options.log_severity_level = 4
    plain = onnxruntime.InferenceSession(chain("tests::Raise").SerializeToString(), options)
    current[:] = [OwnError(0, detail="first")]
    first = weakref.ref(current[0])
    raised_by(plain)
    for number in range(1, 100):
        current[:] = [OwnError(number, detail="later")]
        raised_by(plain)
    gc.collect()
    assert first() is None


def test_an_exception_while_the_session_is_created_is_raised_as_itself() -> None:
    @onnx_op("tests::Folded")
    def folded(x: F32) -> F32:
        raise ValueError("not yet")

    node = helper.make_node("Folded", ["c"], ["t"], domain="tests")
    model = make_model(
        [node, helper.make_node("Add", ["t", "x"], ["y"])],
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"tests": 1},
        {"c": X},
    )
    with pytest.raises(ValueError, match=r"^not yet") as caught:
        pyops.InferenceSession(model).run(None, {"x": X})
    assert caught.value.__context__ is None


def test_a_kernel_that_recurses_too_deep_raises_recursion_error() -> None:
    @onnx_op("tests::Deep")
    def deep(x: F32) -> F32:
        def down(n: int) -> int:
            return down(n + 1)

        return x + down(0)

    assert isinstance(raised_by(pyops.InferenceSession(chain("tests::Deep"))), RecursionError)
    assert sys.getrecursionlimit() > 100


def test_an_exception_is_gone_when_the_caller_lets_it_go() -> None:
    @onnx_op("exceptions::Fails")
    def fails(x: NDArray[np.float32]) -> NDArray[np.float32]:
        raise OwnError(3, detail="gone")

    session = pyops.InferenceSession(chain("exceptions::Fails"))
    gc.disable()
    try:
        errors = []
        for _ in range(3):
            with pytest.raises(OwnError) as caught:
                session.run(None, {"x": np.ones(3, np.float32)})
            errors.append(weakref.ref(caught.value))
            del caught
        # Only `last_exception` has one.
        assert [error() for error in errors] == [None, None, pyops.last_exception()]
    finally:
        gc.enable()


def test_a_session_is_gone_when_the_caller_lets_an_error_of_onnxruntime_go() -> None:
    session = pyops.InferenceSession(chain("tests::Raise"))
    gc.disable()
    try:
        wrong = np.ones(3, np.int64)
        with pytest.raises(bindings.InvalidArgument):
            session.run(None, {"x": wrong})
        with pytest.raises(bindings.InvalidArgument):
            session.run_with_ort_values(None, {"x": onnxruntime.OrtValue.ortvalue_from_numpy(wrong)})
        reference = weakref.ref(session)
        del session
        assert reference() is None
    finally:
        gc.enable()
