"""A Signature as an ONNX schema."""

from typing import TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx.defs import OpSchema

from pyops import onnx_op
from pyops._onnx.op_schemas import op_schema

T = TypeVar("T", np.float32, ml_dtypes.bfloat16)


@onnx_op("schemas::Everything", version=3)
def everything(
    x: NDArray[T],
    bias: NDArray[np.int64] | None = None,
    *rest: NDArray[np.floating],
    axes: list[int],
    eps: float = 0.1,
    flag: bool = True,
    note: str | None = None,
    names: list[str] = [],  # noqa: B006
) -> NDArray[T]:
    return x


Option = OpSchema.FormalParameterOption


def test_inputs_and_outputs():
    schema = op_schema(everything.signature)
    assert (schema.domain, schema.name, schema.since_version) == ("schemas", "Everything", 3)
    found = [(item.name, item.type_str, item.option, item.is_homogeneous) for item in schema.inputs]
    assert found == [
        ("x", "T", Option.Single, True),
        ("bias", "tensor(int64)", Option.Optional, True),
        ("rest", "T_rest", Option.Variadic, False),
    ]
    assert [item.type_str for item in schema.outputs] == ["T"]
    constraints = {item.type_param_str: set(item.allowed_type_strs) for item in schema.type_constraints}
    assert constraints["T"] == {"tensor(float)", "tensor(bfloat16)"}


def test_attributes():
    found = op_schema(everything.signature).attributes
    assert {name: (item.type.name, item.required) for name, item in found.items()} == {
        "axes": ("INTS", True),
        "eps": ("FLOAT", False),
        "flag": ("INT", False),
        "note": ("STRING", False),
        "names": ("STRINGS", False),
    }
    assert found["eps"].default_value.f == np.float32(0.1)
    assert found["flag"].default_value.i == 1
    assert not found["note"].default_value.name


def test_the_schema_of_one_node():
    schema = op_schema(everything.signature, inputs=4)
    assert [(item.name, item.type_str, item.option) for item in schema.inputs[2:]] == [
        ("rest_2", "T_rest_2", Option.Single),
        ("rest_3", "T_rest_3", Option.Single),
    ]
