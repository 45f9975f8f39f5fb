"""The calls that `pyops build --for MODEL` builds for."""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from pyops import errors, onnx_op
from pyops._machine.libraries.specializations import of_model

T = TypeVar("T", np.float32, np.float64)


@onnx_op("examples::Stack")
def stack(x: NDArray[T], *, copies: int = 2) -> NDArray[T]:
    return np.stack([x] * copies, -1)


stack.register_shape_inference(lambda x, copies=2: x.like(shape=(*x.shape, copies)))


@onnx_op("examples::Narrow")
def narrow(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x


def calls(text: str) -> list[tuple[str, int, str]]:
    """Return the name of each called op, and the rank and element type of its input."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22, "examples": 1]> main {text}')
    found = of_model(model, [stack, narrow])
    return [(call.op.name, call.inputs[0].ndim, call.inputs[0].dtype.name) for call in found]


def test_types_and_ranks_follow_from_node_to_node() -> None:
    text = "(float[n] x) => (y) { u = examples.Stack <copies = 3> (x) v = examples.Stack (u) w = Transpose (v) "
    expected = [("Stack", 1, "float32"), ("Stack", 2, "float32"), ("Narrow", 3, "float32")]
    assert calls(text + "y = examples.Narrow (w) }") == expected


def test_a_value_whose_rank_is_unknown_is_named() -> None:
    with pytest.raises(errors.InputError, match="type and rank of 'u', an input of examples::Stack; add them to"):
        calls("(float[n] x) => (y) { u = examples.Narrow (x) y = examples.Stack (u) }")


def test_a_node_that_does_not_match_its_op_is_an_error() -> None:
    problem = "does not match the declared ops: a node of examples::Narrow: examples::Narrow: input 'x' is float64"
    with pytest.raises(errors.InputError, match=re.escape(problem)):
        calls("(double[n] x) => (y) { u = examples.Stack (x) y = examples.Narrow (u) }")
