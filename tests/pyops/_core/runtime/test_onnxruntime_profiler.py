"""The names that ONNX Runtime's profiler gives to the nodes that ops compute."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from tests.helpers.models import chain

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)


@pytest.fixture(autouse=True)
def ops() -> None:
    for name in ("Plus", "Add"):

        @onnx_op(f"profiled::{name}")
        def plus(x: F32) -> F32:
            return x + np.float32(1)


def profile(model: onnx.ModelProto, folder: Path) -> list[tuple[str, str]]:
    """Event name and op type of every node that ran."""
    options: Any = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = pyops.InferenceSession(model, options)
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    return [(event["name"], event["args"]["op_name"]) for event in events if event.get("cat") == "Node"]


def test_nodes_go_by_their_names_and_op_types_in_the_model(tmp_path: Path) -> None:
    model = chain("profiled::Plus", "Neg", "profiled::Plus")
    assert profile(model, tmp_path) == [
        ("node0_kernel_time", "Plus"),
        ("node1_kernel_time", "Neg"),
        ("node2_kernel_time", "Plus"),
    ]


def test_a_node_without_a_name_goes_by_its_op_type(tmp_path: Path) -> None:
    model = chain("profiled::Plus", "Neg")
    for node in model.graph.node:
        node.name = ""
    assert profile(model, tmp_path)[0] == ("Plus_0_kernel_time", "Plus")


def test_an_op_called_like_one_of_onnx_keeps_the_node_s_name_and_gets_a_prefix(tmp_path: Path) -> None:
    assert profile(chain("profiled::Add"), tmp_path) == [("node0_kernel_time", "pyops_Add")]
