"""The calls of ops that `pyops build --for` finds in a model."""

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from pyops import onnx_op
from pyops._build.examples import of_model
from pyops._ops.op import Op
from pyops.errors import InputError
from pyops.shapes import TensorSpec


def declare_first_columns() -> Op[..., Any]:
    @onnx_op("examples::Columns")
    def columns(x: NDArray[np.float32], *, count: int = 1) -> NDArray[np.float32]:
        return x[:, :count]

    @columns.register_shape_inference
    def _(x: TensorSpec, *, count: int = 1) -> TensorSpec:
        if x.ndim != 2:
            raise ValueError(f"a matrix is needed, not {x}")
        return x.like(shape=(x.shape[0], count))

    return columns


def model(inputs: str, nodes: str) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["": 20, "examples": 1]> main'
    return onnx.parser.parse_model(f"{head} ({inputs}) => (float[a, b] y) {{ {nodes} }}")


def test_types_of_nodes_follow_from_shape_functions():
    op = declare_first_columns()
    calls = of_model(
        model("float[n, 4] x", "t = examples.Columns <count = 2> (x) u = Relu(t) y = examples.Columns(u)"), [op]
    )
    assert [(call.inputs[0].dtype, call.inputs[0].ndim, call.attributes) for call in calls] == [
        (np.float32, 2, {"count": 2}),
        (np.float32, 2, {}),
    ]


def test_what_a_shape_function_does_not_accept_is_said():
    with pytest.raises(InputError, match=r"does not accept the model: a matrix is needed, not float32\[n\]"):
        of_model(model("float[n] x", "y = examples.Columns(x)"), [declare_first_columns()])
