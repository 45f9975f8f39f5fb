"""The private interfaces of torch that the exporters use; where one of these fails, torch changed it."""

import sys

import onnx_ir
import pytest
import torch
from onnxscript import opset20

from exporters._torch_private import exporter, operators, sample_calls, torchscript, trees
from exporters.errors import ExportError
from pyops.errors import MissingDependencyError
from tests.scripts import run_plain_script


def test_schemas():
    gelu = torch.ops.aten.gelu.default
    assert operators.qualified_name(gelu) == "aten::gelu"
    assert operators.qualified_name(torch.ops.aten.add.Tensor) == "aten::add.Tensor"
    assert operators.spell(gelu) == 'aten::gelu(Tensor self, *, str approximate="none") -> Tensor'
    first, second = operators.schema_arguments(gelu)
    assert (first.name, first.type, first.keyword_only, first.has_default) == ("self", "Tensor", False, False)
    assert (second.name, second.keyword_only, second.has_default, second.default) == ("approximate", True, True, "none")
    assert operators.schema_returns(torch.ops.aten.unbind.int) == ("List[Tensor]",)


def test_tensor_lists():
    stack = operators.schema_arguments(torch.ops.aten.stack.default)
    assert [(item.is_tensor, item.is_tensor_list) for item in stack] == [(True, True), (False, False)]
    clamp = operators.schema_arguments(torch.ops.aten.clamp.Tensor)
    assert [(item.is_tensor, item.is_tensor_list) for item in clamp] == [(True, False)] * 3


def test_mutation():
    assert operators.is_mutable(torch.ops.aten.relu_.default)
    assert not operators.is_mutable(torch.ops.aten.relu.default)


def test_random_operators():
    assert operators.is_random(torch.ops.aten.randn_like.default)
    assert not operators.is_random(torch.ops.aten.relu.default)


def test_the_database_of_sample_calls():
    infos = {info.full_name: info for info in sample_calls.op_database()}
    assert torch.float32 in infos["linalg.inv"].supported_dtypes("cpu")
    samples = list(infos["linalg.inv"].sample_inputs("cpu", torch.float32))
    assert {sample.input.dtype for sample in samples} == {torch.float32}


def test_the_database_needs_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_methods_invocations", None)
    with pytest.raises(MissingDependencyError, match=r'database of sample calls needs .*pip install "onnx-pyops\[cov'):
        sample_calls.op_database()


def test_seeing_every_call():
    class Seen(operators.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[operators.OpOverload] = []
    with Seen():
        torch.dropout(torch.ones(2), 0.5, True)
    assert torch.ops.aten.native_dropout.default in seen or torch.ops.aten.bernoulli_.float in seen


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


def test_operator_names():
    assert {"aten::gelu", "aten::add"} <= operators.operator_names()


def test_called_overloads():
    assert operators.called_overload(torch.ops.aten.gelu.default) is torch.ops.aten.gelu.default
    assert operators.called_overload(torch.ops.aten.add) is None
    assert operators.called_overload(torch.add) is None
    torch.library.define("torch_private::single", "(Tensor x) -> Tensor")
    single = torch.ops.torch_private.single
    assert operators.called_overload(single) is single.default


def test_trees():
    x, y = torch.ones(1), torch.zeros(1)
    assert trees.flatten(({"b": x, "a": [y, None]}, 3)) == [x, y, None, 3]
    (copied, number) = trees.clone_tensors((x, 3))
    assert (torch.equal(copied, x), copied is x, number) == (True, False, 3)


def test_named_leaves():
    tree = (1, {"b": [2, None]})
    assert trees.named_leaves(tree) == [(("0",), 1), (("1", "b", "0"), 2), (("1", "b", "1"), None)]
    assert trees.unflatten(tree, "xyz") == ("x", {"b": ["y", "z"]})


def test_torchs_own_translations():
    assert callable(exporter.own_translation(torch.ops.aten.add.Tensor))
    assert exporter.own_translation(torch.ops.aten.lgamma.default) is None
    gelu = torch.ops.aten.gelu.default
    with exporter.recorded_nodes(18):
        older = exporter.own_translation(gelu)
    assert older is not exporter.own_translation(gelu)


class Inverse(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.inv(torch.relu(x))


class Keeping:
    """A lowering that keeps ``linalg_inv`` whole, and translates it to the identity."""

    def __init__(self):
        self.targets = []

    def prepare(self, captured, exporter):
        apart = exporter.decompose(captured, ())
        assert torch.ops.aten.linalg_inv_ex.default in [node.target for node in apart.graph.nodes]
        return exporter.decompose(captured, [torch.ops.aten.linalg_inv.default])

    def translation(self, node, exporter):
        self.targets.append((node.target, exporter.own_translation(node) is not None))
        return exporter.translation(node) or opset20.Identity


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_a_lowering_takes_part_in_an_export():
    from torch.onnx._internal.exporter import _core, _dispatching

    before = vars(_core).copy(), vars(_dispatching).copy()
    lowering = Keeping()
    with exporter.adapted_exporter(lowering):
        program = torch.onnx.export(Inverse().eval(), (torch.ones(2, 2),), verbose=False, optimize=False)
    assert [node.op_type for node in program.model.graph] == ["Relu", "Identity"]
    assert lowering.targets == [(torch.ops.aten.relu.default, True), (torch.ops.aten.linalg_inv.default, False)]
    assert (vars(_core), vars(_dispatching)) == before


def test_what_a_failed_translation_emitted_is_undone():
    x = onnx_ir.Value(name="x")
    with exporter.recorded_nodes(20) as nodes:
        kept = opset20.Relu(x)

        def fail():
            with exporter.undo_on_failure():
                opset20.Add(kept, 3.0)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert [node.op_type for node in nodes] == ["Relu"]
        assert kept.uses() == ()
        opset20.Add(kept, 3.0)
    assert [node.op_type for node in nodes] == ["Relu", "Constant", "Add"]


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_sizes_that_a_decomposition_left_open_are_forgotten():
    class Selected(torch.nn.Module):
        def forward(self, x):
            return x[x > 0.5].sort(stable=True)[0]

    captured = torch.export.export(Selected(), (torch.rand(3, 4),))
    for _ in range(2):
        exporter.forget_pending_sizes(captured)
        captured.run_decompositions({})


def test_recorded_nodes():
    x = onnx_ir.Value(name="x")
    with exporter.recorded_nodes(20) as nodes:
        result = opset20.Gelu(opset20.Relu(x))
    assert [(node.op_type, node.version) for node in nodes] == [("Relu", 14), ("Gelu", 20)]
    assert nodes[1].outputs[0] is result


def test_opsets():
    assert exporter.default_opset() in torchscript.torchscript_opsets()


def test_fakes():
    x = torch.empty(5, 3, device="meta")
    assert torchscript.fake_outputs(torch.ops.aten.topk.default, (x, 2), {}) == [
        (torch.float32, (5, 2)), (torch.int64, (5, 2))
    ]  # fmt: skip
    assert torchscript.fake_outputs(torch.ops.aten.nonzero.default, (x,), {}) == [(torch.int64, (None, 2))]


def test_torchscript_types():
    made = torchscript.tensor_type(torch.float16, [None, 3])
    assert (made.dtype(), made.varyingSizes()) == (torch.float16, [None, 3])
    assert torchscript.list_type().kind() == "ListType"
    assert not torchscript.is_graph_value(made)
    assert torchscript.torchscript_dtype(7) is torch.float64


def test_symbolics():
    def gelu(g, x, approximate):
        raise AssertionError

    with torchscript.installed_symbolics({"aten::gelu": gelu, "no::op": gelu}, 20) as own:
        assert set(own) == {"aten::gelu"}
        with torchscript.installed_symbolics({"aten::gelu": print}, 20) as inner:
            assert inner["aten::gelu"] is gelu
    with torchscript.installed_symbolics({"aten::gelu": gelu}, 20) as again:
        assert again == own


def test_custom_op_def():
    op = torch.library.custom_op(
        "torch_private::identity", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    assert isinstance(op, torch.library.CustomOpDef)


def test_a_missing_interface_says_so():
    with pytest.raises(ExportError, match=r"have the private interface OpOverload._schema .*use torch 2.13 to 2.15"):
        operators.spell(object())


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


def test_operators_that_torch_makes_of_others():
    assert operators.can_decompose(torch.ops.aten.linalg_inv.default)
    assert not operators.can_decompose(torch.ops.aten.lgamma.default)


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")  # torch's, of itself
def test_composites_are_loaded_once(monkeypatch):
    from torch._export import utils

    loaded = []
    load = utils._materialize_cpp_cia_ops
    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", counting := lambda: loaded.append(load()))

    @exporter.one_at_a_time
    def capture():
        return torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).run_decompositions()

    assert torch.ops.aten.linear.default not in {node.target for node in capture().graph.nodes}
    assert len(loaded) == 1
    assert utils._materialize_cpp_cia_ops is counting


def test_translations_are_read_once():
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    before = ONNXRegistry.__dict__["from_torchlib"]
    with exporter.adapted_exporter():
        first, second = ONNXRegistry.from_torchlib(), ONNXRegistry.from_torchlib()
        target = torch.ops.aten.gelu.default
        assert first is not second
        assert first.get_decomps(target)[0] is second.get_decomps(target)[0]
        first.register_op(target, lambda x: x)
        assert len(second.get_decomps(target)) < len(first.get_decomps(target))
    assert ONNXRegistry.__dict__["from_torchlib"] is before
