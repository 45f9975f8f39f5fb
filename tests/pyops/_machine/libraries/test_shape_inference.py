"""The shapes that ONNX Runtime infers by a library before anything runs."""

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
from tests.pyops._machine.libraries.conftest import Library

pytestmark = pytest.mark.exhaustive

T = TypeVar("T", np.int8, np.float64, np.float32)

KNOWN = [
    ("double[8,3] x", "PairSums(x)", [[4, 3]]),
    ("double[8,k] x", "PairSums(x)", [[4, "k"]]),
    ("double[n,5] x", "PairSums(x)", [[None, 5]]),
    ("float[b,3,h,w] x, float[3,1,1] s", "AddScaled<scale = 0.5>(x, s)", [["b", 3, "h", "w"]]),
    ("float[b,4] x, float[1,4] s", "AddScaled(x, s)", [["b", 4]]),
    ("float[b,4] x, float[c,4] s", "AddScaled(x, s)", [[None, None]]),  # one of them may be 1
    ("float[b,t,7] x", "Rows<limit = 5>(x)", [["b", "t", 7], ["b", "t"]]),
]


def inferred(library: Path, inputs: str, call: str, outputs: int) -> list[Any]:
    names = ", ".join(f"y{i}" for i in range(outputs))
    graph = f"main ({inputs}) => (float y0) {{ {names} = built.{call} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "built": 1]> {graph}')
    kind = model.graph.input[0].type.tensor_type.elem_type
    del model.graph.output[:]
    for i in range(outputs):  # of unknown rank
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"y{i}", kind, None))
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [item.shape for item in session.get_outputs()]


@pytest.mark.parametrize(("inputs", "call", "expected"), KNOWN)
def test_sizes_are_known_as_far_as_the_shape_function_gives_the_same(
    built: Library, inputs: str, call: str, expected: list[list[Any]]
) -> None:
    shapes = inferred(built[0], inputs, call, len(expected))
    names = [size for shape in shapes for size in shape if str(size).startswith("size_")]
    assert len(names) == len(set(names))  # equal names would be equal sizes
    assert [[None if size in names else size for size in shape] for shape in shapes] == expected


def test_nothing_is_told_where_the_library_has_no_code_or_the_function_raises(built: Library) -> None:
    assert inferred(built[0], "float[2,3] x, float[5,3] s", "AddScaled(x, s)", 1) == [[]]
    assert inferred(built[0], "float x, float s", "AddScaled(x, s)", 1) == [[]]


@onnx_op("built::Halves", compile=True)
def halves(x: NDArray[T]) -> NDArray[T]:
    return x[::2].copy()


@halves.register_shape_inference
def _(x: Any) -> Any:
    return x.like(shape=(x.shape[0] // 2, *x.shape[1:]))


@pytest.mark.parametrize("kind", ["int8", "double", "float"])
def test_shapes_are_inferred_for_each_element_type(kind: str, typed: Path) -> None:
    assert inferred(typed, f"{kind}[8,n] x", "Halves(x)", 1) == [[4, "n"]]
    assert inferred(typed, f"{kind}[n,2,3] x", "Halves(x)", 1) == [[]]  # no code for the rank


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("build") / "libtyped.so"
    pyops.build(path, halves, ranks=[2])
    return path
