"""Models with megabytes of weights, which Python does not read: they run, are pickled and shown as small ones are."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import pyops
from pyops import onnx_op
from pyops._core.runtime.engine_choice import Engine
from pyops._display.inspection import inspect
from tests.helpers.models import make_model

F32 = NDArray[np.float32]
SIZE = 3_000_000
X = np.full(1, 5, np.float32)
# Short ones are between them: none may take the place of another.
WEIGHTS = {
    "short": np.full(1, 2, np.float32),
    "long": np.arange(SIZE, dtype=np.float32),
    "axis": np.array([0]),
    "longer": np.arange(SIZE, dtype=np.float32)[::-1].copy(),
    "scale": np.full(1, 3, np.float32),
}
EXPECTED = (WEIGHTS["long"] * X + WEIGHTS["longer"]) * np.float32(6) + np.float32(1)


@pytest.fixture(autouse=True)
def ops() -> None:
    @onnx_op("large::Plus")
    def plus(x: F32) -> F32:
        return x + 1

    @onnx_op("large::Add")
    def add(x: F32) -> F32:
        return x + 1


def model(op_type: str = "Plus") -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["long", "x"], ["t0"]),
        helper.make_node("Add", ["t0", "longer"], ["t1"]),
        helper.make_node("Mul", ["short", "scale"], ["t2"]),
        helper.make_node("Mul", ["t1", "t2"], ["t3"]),
        helper.make_node(op_type, ["t3"], ["t4"], domain="large", name="ours"),
        helper.make_node("Unsqueeze", ["t4", "axis"], ["t5"]),
        helper.make_node("Squeeze", ["t5", "axis"], ["y"]),
    ]
    return make_model(nodes, [("x", np.float32, [1])], [("y", np.float32, None)], {"large": 1}, WEIGHTS)


def saved(tmp_path: Path, proto: onnx.ModelProto) -> str:
    path = tmp_path / "model.onnx"
    onnx.save_model(proto, path)
    return str(path)


def in_two_graphs(tmp_path: Path, proto: onnx.ModelProto) -> bytes:
    """Serialized as protobuf permits: the graph twice, with other fields, which a reader merges."""
    second = onnx.ModelProto()
    second.graph.initializer.extend(proto.graph.initializer[2:])
    del proto.graph.initializer[2:]
    return proto.SerializeToString() + second.SerializeToString()


def as_lists(tmp_path: Path, proto: onnx.ModelProto) -> bytes:
    """With the values as lists of numbers rather than as bytes."""
    for tensor in proto.graph.initializer:
        values = numpy_helper.to_array(tensor)
        tensor.ClearField("raw_data")
        getattr(tensor, "float_data" if values.dtype == np.float32 else "int64_data").extend(values.tolist())
    return proto.SerializeToString()


SOURCES: dict[str, Callable[[Path, onnx.ModelProto], str | bytes]] = {
    "path": saved,
    "bytes": lambda _, proto: proto.SerializeToString(),
    "two graphs": in_two_graphs,
    "lists": as_lists,
}


@pytest.mark.parametrize("engine", ["native", pytest.param("extensions", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("op_type", ["Plus", "Add"])  # a session changes the name of the second
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_large_model_has_its_weights(source: Any, op_type: str, engine: Engine, tmp_path: Path) -> None:
    if engine == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    session = pyops.InferenceSession(source(tmp_path, model(op_type)), engine=engine)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], EXPECTED)


def test_python_makes_no_copy_of_the_weights(tmp_path: Path) -> None:
    path = saved(tmp_path, model())
    tracemalloc.start()
    try:
        session = pyops.InferenceSession(path)
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], EXPECTED)


@pytest.mark.parametrize("op_type", ["Plus", "Add"])
def test_a_large_model_travels(op_type: str, tmp_path: Path) -> None:
    session = pickle.loads(pickle.dumps(pyops.InferenceSession(saved(tmp_path, model(op_type)))))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], EXPECTED)


def test_a_large_model_is_inspected_without_its_weights_as_inputs(tmp_path: Path) -> None:
    proto = model()
    for tensor in proto.graph.initializer:  # as models of old list them
        proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    report = inspect(saved(tmp_path, proto))
    assert [item.name for item in report.inputs] == ["x"]
    assert [node.op_type for node in report.nodes] == ["Plus"]


@pytest.mark.parametrize("kept", [0.5, 0.9999999], ids=["in the middle", "at the end"])
def test_a_large_model_cut_off_is_refused_as_onnxruntime_does(kept: float, tmp_path: Path) -> None:
    data = model().SerializeToString()
    for damaged in (data[: int(len(data) * kept)], b"\x07" * len(data)):
        path = tmp_path / "model.onnx"
        path.write_bytes(damaged)
        for source in (damaged, str(path)):
            with pytest.raises(Exception) as theirs:  # noqa: PT011 # ONNX Runtime raises several unrelated types
                onnxruntime.InferenceSession(source)
            with pytest.raises(type(theirs.value)) as ours:
                pyops.InferenceSession(source)
            assert str(ours.value) == str(theirs.value)
