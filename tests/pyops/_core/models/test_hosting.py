"""Declarations that ONNX Runtime does not support as they are: names, domains, absent inputs, types, outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import DeclarationError, ModelError, OutputError
from tests.helpers.engines import make_plain_session

F32 = NDArray[np.float32]
T = TypeVar("T", np.float32, np.float64)
X = np.arange(4, dtype=np.float32)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "hosting" : 1]> g {text}')


@pytest.mark.parametrize(
    "name", ["Identity", "Add", "Conv", "Cast", "DequantizeLinear", "Expand", "If", "Shape", "Transpose"]
)
def test_an_op_called_like_one_of_onnx_is_itself(name: str) -> None:
    @onnx_op(f"hosting::{name}")
    def op(x: F32) -> F32:
        return x + 1

    proto = model(f"(float[n] x) => (float[n] y) {{ t = hosting.{name}(x)  y = Neg(t) }}")
    assert pyops.InferenceSession(proto).run(None, {"x": X})[0].tolist() == (-X - 1).tolist()
    with pytest.warns(UserWarning, match=f"skipped ops: hosting::{name}.*pyops.InferenceSession"):
        pyops.register_custom_ops(onnxruntime.SessionOptions())


def test_no_op_is_called_as_if_it_were_hosted() -> None:
    def op(x: F32) -> F32:
        return x

    with pytest.raises(DeclarationError, match="hosting::pyops_Add: names that begin with pyops_"):
        onnx_op("hosting::pyops_Add")(op)


@pytest.mark.parametrize("name", ["Relu", "Transpose"])
def test_a_saved_model_with_an_op_called_like_one_of_onnx_runs_in_every_session(name: str, tmp_path: Path) -> None:
    @onnx_op(f"hosting::{name}")
    def op(x: F32) -> F32:
        return x + 1

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "model.onnx")
    pyops.InferenceSession(model(f"(float[n] x) => (float[n] y) {{ y = hosting.{name}(x) }}"), options)
    saved = onnx.load(options.optimized_model_filepath)
    for session in (pyops.InferenceSession(saved), make_plain_session(saved)):
        assert session.run(None, {"x": X})[0].tolist() == (X + 1).tolist()


def test_in_a_builtin_domain_an_op_takes_the_place_of_another_only_when_asked_to() -> None:
    def relu(x: F32) -> F32:
        return x + 7

    with pytest.raises(DeclarationError, match=r"ai.onnx::Relu.*override=True"):
        onnx_op("ai.onnx::Relu")(relu)
    onnx_op("ai.onnx::Relu", override=True)(relu)
    proto = model("(float[n] x) => (float[n] y) { y = Relu(x) }")
    assert pyops.InferenceSession(proto).run(None, {"x": X})[0].tolist() == (X + 7).tolist()


def test_absent_optional_inputs_before_a_variadic_one_may_be_left_out() -> None:
    @onnx_op("hosting::Sum")
    def total(x: F32, y: F32 | None = None, *rest: F32) -> F32:
        return x + (0 if y is None else y) + sum(rest)

    proto = model("(float[n] x) => (float[n] y) { y = hosting.Sum(x) }")
    assert pyops.InferenceSession(proto).run(None, {"x": X})[0].tolist() == X.tolist()


def test_variadic_outputs_stand_beside_single_ones() -> None:
    @onnx_op("hosting::Split")
    def split(x: NDArray[T], *, parts: int) -> tuple[NDArray[np.int64], *tuple[NDArray[T], ...]]:
        return (np.array(parts), *np.split(x, parts))

    proto = model("(float[4] x) => (int64 n, float[a] y, float[b] z) { n, y, z = hosting.Split <parts = 2> (x) }")
    n, y, z = pyops.InferenceSession(proto).run(None, {"x": X})
    assert (n.tolist(), y.tolist(), z.tolist()) == (2, [0, 1], [2, 3])
    three = model("(float[4] x) => (int64 n, float[a] y) { n, y = hosting.Split <parts = 2> (x) }")
    with pytest.raises(OutputError, match="returned 3 arrays; the model's node has 2 outputs"):
        pyops.InferenceSession(three).run(None, {"x": X})


def test_variadic_outputs_of_an_abstract_class_have_types_of_their_own() -> None:
    @onnx_op("hosting::Same")
    def same(*xs: NDArray[np.generic]) -> tuple[NDArray[np.generic], ...]:
        return tuple(x.copy() for x in xs)

    proto = model("(float[n] x, bool[m] b) => (float[n] y, bool[m] z) { y, z = hosting.Same(x, b) }")
    y, z = pyops.InferenceSession(proto).run(None, {"x": X, "b": np.array([True])})
    assert (y.tolist(), z.tolist()) == (X.tolist(), [True])
    wrong = model("(float[n] x) => (double[n] y) { y = hosting.Same(x) }")
    with pytest.raises(OutputError, match=r"declared float64 and the kernel returned float32\[4\]"):
        pyops.InferenceSession(wrong).run(None, {"x": X})


def test_element_types_that_custom_operators_lack_are_said_when_a_model_needs_them() -> None:
    @onnx_op("hosting::Magnitude")
    def magnitude(x: NDArray[np.inexact[Any]]) -> F32:
        return np.abs(x).astype(np.float32)

    real = model("(float[n] x) => (float[n] y) { y = hosting.Magnitude(x) }")
    assert pyops.InferenceSession(real).run(None, {"x": -X})[0].tolist() == X.tolist()
    with pytest.raises(ModelError, match=r"(?s)hosting::Magnitude.*the native engine does not support complex64"):
        pyops.InferenceSession(model("(complex64[n] x) => (float[n] y) { y = hosting.Magnitude(x) }"))
