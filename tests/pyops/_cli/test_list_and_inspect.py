"""``list`` and ``inspect``."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import pyops
from pyops._display.inspection import attribute_value, format_attribute
from tests.helpers.models import chain
from tests.pyops._cli.commands import command, parsed, save
from tests.pyops._core.ops.test_plugins import install

pytestmark = pytest.mark.usefixtures("folder")

PLUGIN = """
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

@onnx_op("typed.plugin::Same")
def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x.copy()
"""


def test_list_shows_what_modules_declare() -> None:
    assert "--import MODULE" in command("list").stdout or pyops.list_ops()
    text = command("list", "--import", "typed_ops").stdout
    assert "typed_ops.py:" in text
    listed = {(item["domain"], item["op_type"]): item for item in parsed("list", "-i", "typed_ops")["ops"]}
    record = listed["typed", "Plus"]
    assert record["kernel"].startswith("plus (typed_ops.py:")
    assert record == {
        "domain": "typed",
        "op_type": "Plus",
        "version": 1,
        "devices": ["cpu"],
        "engine": "native",
        "kernel": record["kernel"],
        "package": None,
        "signature": "(x: float32, *, by: float = 1.0) -> float32",
    }
    (node,) = parsed("inspect", save(chain("typed::Plus")), "-i", "typed_ops")["nodes"]
    shared = record.keys() & node.keys()
    assert {name: record[name] for name in shared} == {name: node[name] for name in shared}
    assert len(shared) == len(record) - 2
    assert parsed("list", "--import", "typed_ops.py")["ops"]


def test_list_names_plug_ins_and_imports_them_only_when_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site"
    site.mkdir()
    install(site, "typed-plugin", "typed_plugin", PLUGIN, "typed.plugin")
    monkeypatch.syspath_prepend(str(site))
    before = parsed("list")
    assert {"domain": "typed.plugin", "package": "typed-plugin 2.5", "module": "typed_plugin"} in before["plugins"]
    assert "typed-plugin 2.5" in command("list").stdout
    model = save(chain("typed.plugin::Same"))
    (node,) = parsed("inspect", model)["nodes"]
    assert (node["kernel"], node["package"], node["problems"]) == (None, "typed-plugin 2.5", [])
    assert "not imported" in command("inspect", model).stdout
    assert "typed_plugin" not in sys.modules
    (node,) = parsed("inspect", model, "--plugins")["nodes"]
    assert "same" in node["kernel"]
    assert node["package"] == "typed-plugin 2.5"
    assert "typed_plugin" in sys.modules
    assert [item["domain"] for item in parsed("list", "--plugins")["ops"] if item["domain"] == "typed.plugin"]


def test_inspect_names_no_package_where_it_is_installed_by_half(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "half"
    site.mkdir()
    install(site, "renamed-since", "half_installed", PLUGIN.replace("typed.plugin", "half"))
    (site / "half_installed-2.5.dist-info" / "top_level.txt").write_text("half_installed")
    monkeypatch.syspath_prepend(site)
    (node,) = parsed("inspect", save(chain("half::Same")), "-i", "half_installed")["nodes"]
    assert (node["problems"], node["package"]) == ([], None)


def test_inspect_says_which_kernel_runs_each_custom_node() -> None:
    model = chain("typed::Plus", "Neg", "typed::Plus")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("by", 0.1))
    path = save(model)
    report = parsed("inspect", path, "--import", "typed_ops")
    assert report["ok"] is True
    assert report["builtin"] == {"Neg": 1}
    assert ["typed", 1] in report["imports"]
    first, second = report["nodes"]
    assert first["kernel"].startswith("plus (typed_ops.py:")
    assert (first["op_type"], first["attributes"], first["engine"]) == (
        "Plus",
        {"by": float(np.float32(0.1))},
        "native",
    )
    assert second["attributes"] == {}
    text = command("inspect", path, "--import", "typed_ops").stdout
    assert text.startswith(f"IR version {model.ir_version}\n")
    assert "typed::Plus" in text
    assert "Neg (1)" in text


@pytest.mark.parametrize(
    ("value", "told", "spelled"),
    [
        (1.5, 1.5, "1.5"),
        (float("inf"), float("inf"), "inf"),
        ([0.1, 2.0], [float(np.float32(0.1)), 2.0], "[0.1, 2.0]"),
        ([1, 2], [1, 2], "[1, 2]"),
        ("text", "text", "'text'"),
        (["one", "two"], ["one", "two"], "['one', 'two']"),
        ("x" * 99, "x" * 99, f"'{'x' * 56}..."),
        (
            onnx.helper.make_tensor("t", onnx.TensorProto.INT64, [2, 1], [3, 4]),
            {"type": "int64", "shape": [2, 1], "values": [[3], [4]]},
            "int64[2, 1]",
        ),
        (chain("Neg").graph, {"graph": chain("Neg").graph.name}, "graph"),
    ],
)
def test_inspect_tells_attributes_of_every_kind(value: object, told: object, spelled: str) -> None:
    model = chain("typed::Other")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("given", value))
    (node,) = parsed("inspect", save(model), code=1)["nodes"]
    assert node["attributes"] == {"given": told}
    assert format_attribute(attribute_value(model.graph.node[0].attribute[0])) == spelled


def test_inspect_says_which_attributes_cannot_be_read() -> None:
    model = chain("typed::Other")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("given", b"\xff"))
    (node,) = parsed("inspect", save(model), code=1)["nodes"]
    assert "UnicodeDecodeError" in node["attributes"]["given"]["cannot be read"]
    assert "cannot be read (UnicodeDecodeError" in command("inspect", save(model), code=1).stdout


def test_inspect_says_which_attributes_a_function_s_caller_sets() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20, "typed": 1, "local": 1]>
        main (float[n] x) => (float[n] y) { y = local.Lifted <amount = 2.0> (x) }
        <opset_import: ["typed": 1], domain: "local">
        Lifted <amount> (x) => (y) { y = typed.Plus <by: float = @amount> (x) }
    """)
    (node,) = parsed("inspect", save(model), "-i", "typed_ops")["nodes"]
    assert node["attributes"] == {"by": {"that of the function": "amount"}}
    assert "by=that of the function (amount)" in command("inspect", save(model), "-i", "typed_ops").stdout


def test_inspect_shows_values_that_are_no_tensors() -> None:
    model = chain("typed::Plus")
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    model.graph.input.add(name="listed").type.CopyFrom(onnx.helper.make_sequence_type_proto(tensor))
    report = parsed("inspect", save(model), "-i", "typed_ops")
    assert [item["type"] for item in report["inputs"]] == ["float32", "sequence_type"]


def test_inspect_fails_where_a_node_would_not_run() -> None:
    model = chain("typed::Plus", "typed::Plsu")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("to", 1))
    report = parsed("inspect", save(model), "--import", "typed_ops", code=1)
    assert [bool(node["problems"]) for node in report["nodes"]] == [True, True]
    assert "did you mean typed::Plus?" in report["problems"][1]
    text = command("inspect", save(model), code=1).stdout
    assert "not declared" in text


def test_what_a_model_says_does_not_command_the_terminal() -> None:
    model = chain("typed::Plus")
    model.graph.node[0].name = "[bold]name[/bold]\x1b[31m\x07"
    text = command("inspect", save(model), "--import", "typed_ops").stdout
    assert r"[bold]name[/bold]\x1b[31m\x07" in text
