"""The private interfaces of torch that the exporters use; if one of these tests fails, torch has changed it."""

import pydoc
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from exporters._torch import private
from exporters._torch.private import onnx_exporter, operators, patching
from exporters.errors import ExportError
from pyops.errors import MissingDependencyError
from tests.helpers.scripts import run_plain_script
from tests.operator_coverage.samples import op_database, sample_inputs

NAMED = {
    name
    for path in Path(private.__file__).parent.glob("*.py")
    for name in re.findall(r'"(torch\.[\w.]+)"', path.read_text())
}


@pytest.mark.parametrize("name", sorted(NAMED - {"torch.export._trace.print"}))
def test_an_interface_that_is_named_is_there(name):
    assert pydoc.locate(name) is not None


def test_the_database_of_sample_calls():
    infos = {info.full_name: info for info in op_database()}
    assert torch.float32 in infos["linalg.inv"].supported_dtypes("cpu")
    samples = list(sample_inputs(infos["linalg.inv"], torch.float32))
    assert {sample.input.dtype for sample in samples} == {torch.float32}


def test_the_database_needs_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_methods_invocations", None)
    with pytest.raises(MissingDependencyError, match=r'database of sample calls needs .*pip install "onnx-pyops\[cov'):
        op_database()


def test_remembered_schemas():
    torch.library.custom_op(
        "torch_private::changed", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    op = torch.ops.torch_private.changed.default
    cache = torch.fx.operator_schemas._SCHEMA_TO_SIGNATURE_CACHE
    torch.fx.operator_schemas._torchscript_schema_to_signature(op._schema)
    assert ("torch_private::changed", "") in cache
    operators.forget_schema("torch_private::changed")
    assert ("torch_private::changed", "") not in cache


def test_a_call_of_another_function_instead():
    registered = torch.library.custom_op(
        "torch_private::gone", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    overload = torch.ops.torch_private.gone.default
    operators.call_instead(overload, lambda x: x + 1)
    assert [call(torch.ones(1)).item() for call in (registered, overload, torch.ops.torch_private.gone)] == [2, 2, 2]


def test_a_promise_lets_a_capture_go_on():
    class Model(torch.nn.Module):
        def forward(self, x, start):
            first = start.item()
            operators.promise(first >= 0)
            operators.promise(first < 3)
            return x[first]

    captured = torch.export.export(Model(), (torch.arange(3), torch.tensor(1)))
    assert captured.module()(torch.arange(3), torch.tensor(2)) == 2


def test_called_overloads():
    assert operators.called_overload(torch.ops.aten.gelu.default) is torch.ops.aten.gelu.default
    assert operators.called_overload(torch.ops.aten.add) is None
    assert operators.called_overload(torch.add) is None
    torch.library.define("torch_private::single", "(Tensor x) -> Tensor")
    single = torch.ops.torch_private.single
    assert operators.called_overload(single) is single.default


def test_a_missing_interface_says_so():
    with pytest.raises(
        ExportError, match=r"no longer has the private interface OpOverload._schema.*; use torch 2.13 to 2.15"
    ):
        operators.describe(object())


@pytest.mark.parametrize("name", ["torch._no_module.function", "torch.export._trace.no_function"])
def test_a_missing_interface_to_replace_says_so(name):
    with pytest.raises(ExportError, match=r"the private interface torch\.[\w.]+; use"), patching.replaced(name, print):
        raise AssertionError("it is replaced")


def test_a_missing_module_says_so():
    script = """
import sys, torch
sys.modules["torch.utils._python_dispatch"] = None
try:
    import exporters
except ImportError as error:
    print(str(error).rpartition("; ")[2])
"""
    run_plain_script(script, "use torch 2.13 to 2.15, with which this version of exporters is tested")


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")  # torch's, of itself
def test_composites_are_loaded_once(monkeypatch):
    from torch._export import utils

    loaded = []
    load = utils._materialize_cpp_cia_ops
    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", counting := lambda: loaded.append(load()))

    @patching.one_at_a_time
    def capture():
        return torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).run_decompositions()

    assert torch.ops.aten.linear.default not in {node.target for node in capture().graph.nodes}
    assert len(loaded) == 1
    assert utils._materialize_cpp_cia_ops is counting


def test_translations_are_read_once():
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    before = ONNXRegistry.__dict__["from_torchlib"]
    with onnx_exporter.adapted_exporter(onnx_exporter.Lowering()):
        first, second = ONNXRegistry.from_torchlib(), ONNXRegistry.from_torchlib()
        target = torch.ops.aten.gelu.default
        assert first is not second
        assert first.get_decomps(target)[0] is second.get_decomps(target)[0]
        first.register_op(target, lambda x: x)
        assert len(second.get_decomps(target)) < len(first.get_decomps(target))
    assert ONNXRegistry.__dict__["from_torchlib"] is before


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")  # torch's, of itself
def test_other_threads_keep_torchs_own():
    class Refusing:
        def prepare(self, captured, exporter):
            raise AssertionError("another thread's program is asked for")

    def export():
        return torch.onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), dynamo=True, verbose=False)

    with onnx_exporter.adapted_exporter(Refusing()), ThreadPoolExecutor(1) as other:
        assert [node.op_type for node in other.submit(export).result().model.graph] == ["Gemm"]
        with pytest.raises(Exception, match="Failed to decompose"):
            export()
