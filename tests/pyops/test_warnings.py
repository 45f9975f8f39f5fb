"""Warnings are issued at the line of the user's code that led to them."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from pyops import errors, onnx_op

F32 = NDArray[np.float32]
T = TypeVar("T", np.float32, np.float16)
X = np.ones(1, np.float32)


def places(call: Callable[[], Any]) -> list[tuple[str, int, type[Warning]]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [(item.filename, item.lineno, item.category) for item in caught]


def here(call: Callable[[], Any], category: type[Warning]) -> list[tuple[str, int, type[Warning]]]:
    """The place of a function of one line."""
    return [(__file__, inspect.getsourcelines(call)[1], category)]


def test_of_a_compiled_kernel() -> None:
    pytest.importorskip("numba")

    @onnx_op("warned::Uncompiled", compile="try")
    def uncompiled(x: F32) -> F32:
        return np.array([float(str(item)) for item in x], np.float32)

    session = pyops.InferenceSession(pyops.testing.Sample(uncompiled, X).model())
    run = lambda: uncompiled(X)  # noqa: E731
    assert places(run) == here(run, errors.CompileWarning)
    assert session.run(None, {"x": X})[0].tolist() == [1]


def test_of_an_array_that_a_kernel_kept_in_a_session() -> None:
    kept = []

    @onnx_op("warned::Keep")
    def keep(x: F32) -> F32:
        kept.append(x)
        return x + 1

    session = pyops.InferenceSession(pyops.testing.Sample(keep, X).model())
    run = lambda: session.run(None, {"x": X})  # noqa: E731
    assert places(run) == here(run, errors.BorrowedArrayWarning)


def test_of_a_session_that_fills_nodes() -> None:
    import onnx

    text = '<ir_version: 10, opset_import: ["": 22]> g (bfloat16[n] x) => (bfloat16[n] y) { y = Sinh(x) }'
    model = onnx.parser.parse_model(text)
    create = lambda: pyops.InferenceSession(model, fill_missing=True)  # noqa: E731
    assert places(create) == here(create, errors.FilledNodeWarning)


def test_of_an_op_that_another_function_takes_over() -> None:
    def first(x: F32) -> F32:
        return x

    def second(x: F32) -> F32:
        return x

    onnx_op("warned::Taken")(first)
    declare = lambda: onnx_op("warned::Taken")(second)  # noqa: E731
    assert places(declare) == here(declare, errors.RedeclarationWarning)
