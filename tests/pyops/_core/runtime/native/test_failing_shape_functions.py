"""What a session makes of an exception that arrives in a shape function: its own failure, or another's exception."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import ShapeInferenceError

F32 = NDArray[np.float32]
MODEL = '<ir_version: 8, opset_import: ["" : 17, "failing" : 1]> g (float[n] x) => (float[m] y) { y = failing.Op(x) }'


class FromOutsideError(Exception):
    """What a handler of a signal or another thread raises in whatever code runs."""


EVERY_FIRST_CALL = [error for number in range(6) for error in (FromOutsideError(str(number)), None)]
"""ONNX Runtime asks for shapes more than once, and goes on whatever it gets."""


@pytest.fixture
def op() -> Any:
    @onnx_op("failing::Op")
    def op(x: F32) -> F32:
        return x

    return op


def create() -> Any:
    return pyops.InferenceSession(onnx.parser.parse_model(MODEL), engine="native")


def raises(op: Any, *errors: BaseException | None) -> None:
    """Register a shape function whose first calls raise these."""
    remaining = list(errors)

    @op.register_shape_inference
    def _(x: Any) -> Any:
        if remaining and (error := remaining.pop(0)) is not None:
            raise error
        return x


@pytest.mark.parametrize("second", [None, LookupError("its own"), ShapeInferenceError("its own")])
def test_an_exception_from_outside_is_raised_whatever_the_shape_function_does_then(op: Any, second: Any) -> None:
    first = FromOutsideError()
    raises(op, first, second)
    with pytest.raises(FromOutsideError) as raised:
        create()
    assert raised.value is first


def test_an_interrupt_of_the_second_call_is_raised(op: Any) -> None:
    raises(op, LookupError("its own"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        create()


@pytest.mark.parametrize(
    "errors",
    [
        [LookupError("its own"), LookupError("its own")],
        # Says that there are no shapes, so that nothing is asked a second time.
        [ShapeInferenceError("its own"), FromOutsideError()],
    ],
)
def test_what_the_shape_function_itself_raises_leaves_shapes_open(op: Any, errors: list[Any]) -> None:
    calls: list[Any] = []

    @op.register_shape_inference
    def _(x: Any) -> Any:
        calls.append(x)
        if isinstance(x.shape[0], int):
            return x
        raise errors[(len(calls) - 1) % 2 if isinstance(errors[0], LookupError) else 0]

    session = create()
    assert session.get_outputs()[0].shape == ["m"]
    assert session.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [1, 1]


def test_another_shape_function_registered_meanwhile_does_not_make_a_failure_one_from_outside(op: Any) -> None:
    @op.register_shape_inference
    def _(x: Any) -> Any:
        op.register_shape_inference(lambda x: x)
        raise LookupError("its own")

    assert create().run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [1, 1]


def test_exceptions_from_outside_end_no_session_but_their_own(op: Any) -> None:
    raises(op, *EVERY_FIRST_CALL)
    options = pyops.register_custom_ops(onnxruntime.SessionOptions(), engine="native")
    options.log_severity_level = 4
    two = onnx.parser.parse_model(MODEL.replace("y)", "y, float[k] z)").replace("}", "z = failing.Op(x) }"))
    with pytest.raises(Exception, match="FromOutsideError: 0"):
        onnxruntime.InferenceSession(two.SerializeToString(), options)
    op.register_shape_inference(lambda x: x)
    assert create().run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [1, 1]
