"""Tracebacks cut down to the user's own frames."""

import traceback

import numpy as np
import onnx
from numpy.typing import NDArray

from pyops import onnx_op
from pyops._display.tracebacks import shortened

F32 = NDArray[np.float32]
X = np.ones(2, np.float32)


def modules(error: BaseException) -> list[str]:
    steps = [step for step, _ in traceback.walk_tb(error.__traceback__)]
    return [step.f_globals["__name__"] for step in steps]


def caught(op: object) -> BaseException:
    try:
        op(X)  # type: ignore[operator]
    except Exception as error:
        return error
    raise AssertionError


def test_what_is_behind_an_exception_is_cut_down_too_and_all_of_it_comes_back() -> None:
    @onnx_op("short::Inner")
    def inner(x: F32) -> F32:
        raise KeyError("inner")

    @onnx_op("short::Outer")
    def outer(x: F32) -> F32:
        try:
            return inner(x)
        except KeyError as error:
            raise ValueError("outer") from error

    error = caught(outer)
    assert error.__cause__ is not None
    whole = modules(error), modules(error.__cause__)
    assert "pyops._core.schema.call_validation" in whole[0]
    assert "pyops._core.schema.call_validation" in whole[1]
    with shortened(error) as short:
        assert short is error.__traceback__
        assert modules(error) == [__name__] * 2  # the caller's, and the kernel
        assert modules(error.__cause__) == [__name__] * 2
    assert (modules(error), modules(error.__cause__)) == whole


def test_frames_of_libraries_are_left_out_of_causes_only() -> None:
    @onnx_op("short::Model")
    def loads(x: F32) -> F32:
        try:
            onnx.helper.make_tensor("x", onnx.TensorProto.FLOAT, [3], [1.0])
        except Exception as error:
            raise ValueError("no model") from error
        return x

    error = caught(loads)
    assert error.__cause__ is not None
    assert any(name.startswith("onnx") for name in modules(error.__cause__))
    with shortened(error.__cause__):
        assert modules(error.__cause__)[-1].startswith("onnx")
    with shortened(error):
        assert modules(error.__cause__) == [__name__]


def test_exceptions_that_are_behind_each_other_end_it_not() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__cause__ = second, first
    with shortened(first) as short:
        assert short is None


def test_one_with_frames_of_ours_alone_stays_as_it_is() -> None:
    @onnx_op("short::Refuses")
    def refuses(x: F32) -> F32:
        return x

    error = caught(lambda x: refuses(x.astype(np.int64)))
    assert error.__traceback__ is not None
    inside = error.__traceback__.tb_next
    while inside is not None and not inside.tb_frame.f_globals["__name__"].startswith("pyops."):
        inside = inside.tb_next
    assert inside is not None
    error.__traceback__ = inside
    with shortened(error) as short:
        assert short is inside
