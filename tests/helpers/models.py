"""One-node models for samples, and small models for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from pyops._support.element_types import element_type

OPSET = 20
IR_VERSION = 10


Value = tuple[str, Any, Sequence[Any] | None]


def make_model(
    nodes: Iterable[onnx.NodeProto],
    inputs: Iterable[Value],
    outputs: Iterable[Value],
    domains: Mapping[str, int],
    initializers: Mapping[str, np.ndarray[Any, Any]] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model; inputs and outputs are (name, dtype, shape), where None is an unknown shape."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [value_info(*value) for value in inputs],
        [value_info(*value) for value in outputs],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    return helper.make_model(
        graph, opset_imports=opset_imports(domains), functions=list(functions), ir_version=IR_VERSION
    )


def opset_imports(domains: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid(domain, version) for domain, version in ({"": OPSET} | dict(domains)).items()]


def value_info(name: str, dtype: Any, shape: Sequence[Any] | None = None) -> onnx.ValueInfoProto:
    row = element_type(dtype)
    assert row is not None
    return helper.make_tensor_value_info(name, row.onnx, shape)


def chain(*nodes: str, dtype: Any = np.float32, domains: Mapping[str, int] | None = None) -> onnx.ModelProto:
    """A model that passes x through ``domain::Name`` nodes, one after the other, to y."""
    names = ["x", *(f"t{i}" for i in range(1, len(nodes))), "y"]
    made = []
    for i, qualified in enumerate(nodes):
        domain, _, name = qualified.rpartition("::")
        made.append(helper.make_node(name, [names[i]], [names[i + 1]], domain=domain, name=f"node{i}"))
    used = {node.domain: 1 for node in made if node.domain}
    return make_model(made, [("x", dtype, None)], [("y", dtype, None)], used | dict(domains or {}))


def assert_same(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """The same arrays: number, dtypes, shapes, and values to the last bit (NaN is NaN)."""
    assert len(actual) == len(expected)
    for got, wanted in zip(actual, expected, strict=True):
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        if got.dtype == np.object_:
            assert got.tolist() == wanted.tolist()
        else:
            assert got.tobytes() == wanted.tobytes()


FLOAT = TensorProto.FLOAT
