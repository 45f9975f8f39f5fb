"""`pyops.show_model`: a model in Netron, with its custom nodes marked."""

from __future__ import annotations

import logging
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._display.netron import View
from pyops.errors import MissingDependencyError, ModelError
from tests.helpers.models import chain

F32 = NDArray[np.float32]


@pytest.fixture(autouse=True)
def op() -> Any:
    @onnx_op("shown::Plus")
    def plus(x: F32, *, by: int = 1) -> F32:
        return x + np.float32(by)

    return plus


@pytest.fixture
def model() -> onnx.ModelProto:
    made = chain("shown::Plus", "Neg", "shown::Minus", "shown::Plus")
    made.graph.node[3].attribute.append(onnx.helper.make_attribute("to", 1))
    return made


@pytest.fixture
def views() -> Iterator[list[View]]:
    made: list[View] = []
    yield made
    for view in made:
        view.close()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def served(view: View) -> onnx.ModelProto:
    """The model that Netron's page loads."""
    match = re.search(r'<meta name="file" content="(.*?)">', get(view.url).decode())
    assert match
    return onnx.load_from_string(get(view.url + match[1]))


def test_netron_shows_which_nodes_are_ours_and_whether_a_kernel_is_declared(
    model: onnx.ModelProto, views: list[View]
) -> None:
    before = model.SerializeToString()
    views.append(pyops.show_model(model))
    assert model.SerializeToString() == before
    nodes = served(views[0]).graph.node
    assert [node.op_type for node in nodes] == [
        "Plus [declared]",
        "Neg",
        "Minus [not declared]",
        "Plus [does not fit]",
    ]
    properties = {item.key: item.value for item in nodes[0].metadata_props}
    assert properties["pyops kernel"].startswith("plus (")
    assert properties["pyops engine"] == "native"
    problems = {item.key: item.value for item in nodes[3].metadata_props}
    assert "unknown attribute 'to'" in problems["pyops problem"]
    assert not nodes[1].metadata_props


def test_a_notebook_shows_it_in_a_frame_with_a_table_below(model: onnx.ModelProto, views: list[View]) -> None:
    views.append(pyops.show_model(model, height=321))
    (view,) = views
    page = view._repr_html_()
    assert f'<iframe src="{view.url}" width="100%" height="321"' in page
    assert "<td>shown::Minus</td>" in page
    assert "shown::Minus is not declared" in page
    text = repr(view)
    assert view.url in text
    assert "does not fit" in text


def test_a_terminal_is_not_commanded_by_names(model: onnx.ModelProto, views: list[View]) -> None:
    model.graph.node[0].name = "\x1b[31mname"
    model.graph.node[2].op_type = "Min\x07us"
    views.append(pyops.show_model(model))
    for text in (repr(views[0]), str(views[0].report)):
        assert r"\x1b[31mname" in text
        assert r"shown::Min\x07us is not declared" in text
        assert "\x1b" not in text


def test_several_models_are_shown_side_by_side(model: onnx.ModelProto, views: list[View]) -> None:
    views += [pyops.show_model(model), pyops.show_model(chain("Neg"))]
    assert [len(served(view).graph.node) for view in views] == [4, 1]


def test_a_file_is_shown_by_its_name_and_nothing_beside_it_is_served(
    model: onnx.ModelProto, views: list[View], tmp_path: Path
) -> None:
    onnx.save(model, tmp_path / "my &model;.onnx")
    (tmp_path / "secret.txt").write_text("secret")
    views.append(pyops.show_model(tmp_path / "my &model;.onnx"))
    assert len(served(views[0]).graph.node) == 4
    assert "/data/my__model_.onnx" in get(views[0].url).decode()
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{views[0].url}/data/secret.txt")
    assert caught.value.code == 404
    caught.value.close()


def test_a_large_model_is_shown_with_its_weights(views: list[View]) -> None:
    weights = onnx.numpy_helper.from_array(np.arange(5_000_000, dtype=np.float32), "w")
    node = onnx.helper.make_node("Mul", ["x", "w"], ["y"])
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.helper.make_empty_tensor_value_info("y")], [weights])
    view = pyops.show_model(onnx.helper.make_model(graph).SerializeToString())
    views.append(view)
    assert served(view).graph.initializer[0] == weights


def test_nodes_in_functions_are_marked_and_those_of_the_model_s_own_functions_are_not(views: list[View]) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20, "own": 1]>
        main (float[n] x) => (float[n] y) { y = own.Twice(x) }
        <domain: "own", opset_import: ["": 20, "shown": 1]>
        Twice (a) => (b) { c = shown.Plus(a) b = shown.Plus(c) }
    """)
    views.append(pyops.show_model(model))
    shown = served(views[0])
    assert [node.op_type for node in shown.graph.node] == ["Twice"]
    assert [node.op_type for node in shown.functions[0].node] == ["Plus [declared]"] * 2


def test_the_user_s_logging_stays_as_it_is(model: onnx.ModelProto, views: list[View]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    for handler in before:
        root.removeHandler(handler)
    try:
        views.append(pyops.show_model(model))
        assert (root.handlers, root.level) == ([], level)
    finally:
        root.handlers[:] = before


def test_without_netron_the_extra_is_named(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "netron", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "onnx-pyops\[notebook\]"'):
        pyops.show_model(model)


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\xff\xff")
    with pytest.raises(ModelError, match=r"model\.onnx' is not an ONNX model"):
        pyops.show_model(tmp_path / "model.onnx")
    with pytest.raises(IsADirectoryError, match="is a folder; pass the path of a model file"):
        pyops.show_model(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no model file"):
        pyops.show_model(tmp_path / "none.onnx")
