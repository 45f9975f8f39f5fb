"""Plain kernels that Python calls by a function written for the node: it does what `KernelNode.compute` does."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import BorrowedArrayWarning, OutputError
from pyops.shapes import new_dim
from tests.helpers.models import assert_same

F32 = NDArray[np.float32]
X = np.arange(6, dtype=np.float32)
WRITTEN, ORDINARY = "pyops._runtime.native.written_node", "pyops._runtime.native.kernel_node"

callers: list[str] = []


@pytest.fixture(autouse=True)
def _without_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOPS_DIRECT_CALLS", "0")


def note_caller() -> None:
    """Note which module called the kernel that calls this."""
    callers.append(sys._getframe(2).f_globals["__name__"])


def session_for(body: str, inputs: str = "float[n] x", outputs: str = "float[m] y") -> pyops.InferenceSession:
    text = f'<ir_version: 8, opset_import: ["" : 17, "written" : 1]> g ({inputs}) => ({outputs}) {{ {body} }}'
    callers.clear()
    return pyops.InferenceSession(onnx.parser.parse_model(text))


def test_inputs_of_every_rank_absent_ones_and_attributes() -> None:
    @onnx_op("written::Sum")
    def total(a: F32, b: F32 | None = None, *more: F32, scale: float, by: int | None = None) -> F32:
        note_caller()
        found = [item for item in (a, b, *more) if item is not None]
        assert not any(item.flags.writeable for item in found)
        return np.float32(scale) * np.stack([item.sum() for item in found])

    inputs = "float x, float[n] y, float[a, b, c] z"
    session = session_for("r = written.Sum <scale = 2.0> (x, , z, y)", inputs, "float[m] r")
    feed = {"x": np.array(3, np.float32), "y": X, "z": np.ones((2, 0, 3), np.float32)}
    for _ in range(2):
        assert_same(session.run(None, feed), [np.array([6, 0, 30], np.float32)])
    assert callers == [WRITTEN] * 2


def test_shape_functions_are_held_to_and_give_buffers() -> None:
    @onnx_op("written::Half")
    def half(x: F32, *, lie: int = 0, out: F32 | None = None) -> F32:
        note_caller()
        assert (out is None) == (lie == 2)
        if lie == 1 and out is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy deprecates it
                out.shape = (1, *out.shape)
        return np.divide(x, 2, out=out)[: -lie or None] if lie == 2 else np.divide(x, 2, out=out)

    half.register_shape_inference(lambda x, lie=0: x if lie < 2 else x.like(shape=(new_dim(),)))
    session = session_for("y = written.Half(x)")
    for x in (X, X[:2], X[:0], X):
        assert_same(session.run(None, {"x": x}), [x / 2])
    assert callers == [WRITTEN] * 4
    assert_same(session_for("y = written.Half <lie = 2> (x)").run(None, {"x": X}), [X[:-2] / 2])
    assert callers == [ORDINARY]  # the size is known only afterwards
    with pytest.raises((OutputError, ValueError), match="shape"):
        session_for("y = written.Half <lie = 1> (x)").run(None, {"x": X})


def test_another_shape_than_declared_is_an_error() -> None:
    @onnx_op("written::Cut")
    def cut(x: F32, *, to: int) -> F32:
        return x[:to]

    cut.register_shape_inference(lambda x, to: x)
    assert_same(session_for("y = written.Cut <to = 6> (x)").run(None, {"x": X}), [X])
    with pytest.raises(OutputError, match="returned shapes"):
        session_for("y = written.Cut <to = 2> (x)").run(None, {"x": X})


def test_redeclared_ops_and_profiles_are_followed() -> None:
    def declare(factor: int, shaped: bool = False) -> None:
        @onnx_op("written::Times")
        def times(x: F32) -> F32:
            note_caller()
            return x * np.float32(factor)

        if shaped:
            times.register_shape_inference(lambda x: x)

    declare(2)
    session = session_for("y = written.Times(x)")

    def run() -> list[float]:
        (y,) = session.run(None, {"x": X[:3]})
        return list(y)

    assert run() == [0, 2, 4]
    declare(3)
    assert run() == run() == [0, 3, 6]
    declare(4, shaped=True)
    assert run() == run() == [0, 4, 8]
    assert callers == [WRITTEN, ORDINARY, WRITTEN, ORDINARY, ORDINARY]
    with pyops.profile(session) as profile:
        run()
    assert (profile.nodes[0].calls, profile.nodes[0].kernel_seconds > 0) == (1, True)


def test_a_kernel_that_keeps_arrays_gets_copies_until_it_is_replaced() -> None:
    kept: list[Any] = []

    def declare(keeps: bool) -> None:
        @onnx_op("written::Keep")
        def keep(x: F32) -> F32:
            note_caller()
            if keeps:
                kept[:] = [x]
            return x + 1

    declare(True)
    session = session_for("y = written.Keep(x)")
    with pytest.warns(BorrowedArrayWarning, match="written::Keep"):
        session.run(None, {"x": X})
    session.run(None, {"x": X + 1})
    declare(False)
    for _ in range(2):
        session.run(None, {"x": X})
    assert callers == [WRITTEN, ORDINARY, ORDINARY, WRITTEN]
    assert kept.pop().tolist() == (X + 1).tolist()


def test_an_exception_has_its_note() -> None:
    @onnx_op("written::Fail")
    def fail(x: F32) -> F32:
        note_caller()
        raise ValueError("no")

    session = session_for("y = written.Fail(x)")
    with pytest.raises(ValueError, match="no") as caught:
        session.run(None, {"x": X})
    assert "written::Fail" in caught.value.__notes__[0]
    assert callers == [WRITTEN]


@pytest.mark.parametrize("machine_code", ["0", "1"])
def test_strides_that_a_kernel_changes_change_no_values(machine_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOPS_DIRECT_CALLS", machine_code)

    @onnx_op("written::Turned")
    def turned(x: F32, *, out: F32 | None = None) -> F32:
        if out is None:
            return x + 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy deprecates it
            out.strides = out.strides[::-1]
        return np.add(x, 1, out=out)

    turned.register_shape_inference(lambda x: x)
    session = session_for("y = written.Turned(x)", "float[n, n] x", "float[m, m] y")
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert_same(session.run(None, {"x": x}), [x + 1])
