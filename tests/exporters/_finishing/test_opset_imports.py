"""Which version of each domain an exported model imports, and what it means for its nodes."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
import pyops
from pyops import onnx_op
from tests.helpers.tiers import exhaustive, first_quick

pytestmark = pytest.mark.usefixtures("own_registrations")


def identity(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x


def negate(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return -x


def register(function, op_type, version=1):
    op = onnx_op(op_type, version=version)(function)
    op.register_shape_inference(lambda x, *args, **kwargs: x)
    return exporters.custom_op(op, op_type.lower())


def imports(program):
    return {item.domain: item.version for item in program.model_proto.opset_import}


@pytest.mark.parametrize("opset_version", [17, exhaustive(18), exhaustive(23), 26])
def test_opset_versions(model, opset_version):
    torch_negate = register(negate, "imports::Negate")
    x = torch.ones(2)
    for net in (model(lambda x: torch_negate(x)), model(lambda x: torch_negate(x) + 1)):
        program = exporters.export(net, (x,), opset_version=opset_version, verbose=False)
        assert imports(program) == {"": opset_version, "imports": 1}
        assert program.model_proto.ir_version <= 13
        if opset_version <= 25:
            assert torch.equal(program(x)[0], net(x))


@pytest.mark.parametrize("opset_version", first_quick([12, 99]))
def test_an_opset_that_torch_does_not_make_is_an_error(model, opset_version):
    with pytest.raises(
        exporters.ExportError, match=f"cannot convert to opset {opset_version}; leave out opset_version"
    ):
        exporters.export(model(lambda x: torch.relu(x)), (torch.ones(2),), opset_version=opset_version, verbose=False)


@pytest.mark.parametrize("opset_version", [9, exhaustive(15), exhaustive(17), 20])
def test_opset_versions_of_torchscript(model, opset_version):
    torch_negate = register(negate, "imports::Negate")
    x = torch.ones(2)
    for net in (model(lambda x: torch_negate(x)), model(lambda x: torch_negate(x) + 1)):
        program = exporters.export(net, (x,), opset_version=opset_version, dynamo=False)
        assert imports(program) == {"": opset_version, "imports": 1}
        assert torch.equal(program(x)[0], net(x))


def test_versions_of_one_domain(export, model):
    second, third = register(identity, "versions::Second", 2), register(negate, "versions::Third", 3)
    net, x = model(lambda x: third(second(x))), torch.ones(2)
    program = export(net, (x,))
    assert program.model.opset_imports["versions"] == 3
    assert torch.equal(program(x)[0], net(x))

    newer = onnx_op("versions::Second", version=3)(negate)
    newer.register_shape_inference(lambda x: x)
    with pytest.raises(exporters.ExportError, match=r"has versions::Second of version 2, but imports version 3"):
        export(net, (x,))


def test_custom_opsets_choose_the_version_that_runs(export, model):
    torch_op = register(identity, "chosen::Op", 1)
    onnx_op("chosen::Op", version=2)(negate)
    net, x = model(lambda x: torch_op(x)), torch.ones(2)
    for version, expected in ((1, 1), (2, -1), (7, -1)):
        program = export(net, (x,), custom_opsets={"chosen": version})
        assert imports(program)["chosen"] == version
        assert program(x)[0].tolist() == [expected] * 2


def test_custom_opsets_of_undeclared_operators(export, model):
    exporters.register_translation("aten::gelu", lambda x, *, approximate="none": exporters.opset("somebody").Gelu(x))
    program = export(model(lambda x: torch.nn.functional.gelu(x)), (torch.ones(2),), custom_opsets={"somebody": 4})
    assert imports(program)["somebody"] == 4


def test_custom_opsets_that_the_operators_do_not_fit(export, model):
    def scaled(x: NDArray[np.float32], *, factor: float) -> NDArray[np.float32]:
        return x * np.float32(factor)

    torch_op = register(identity, "unfit::Op", 2)
    net, x = model(lambda x: torch_op(x)), torch.ones(2)
    with pytest.raises(exporters.ExportError, match=r"unfit::Op is declared from version 2 on; .* imports version 1"):
        export(net, (x,), custom_opsets={"unfit": 1})
    onnx_op("unfit::Op", version=3)(scaled)
    with pytest.raises(exporters.ExportError, match=r"custom_opsets=.*\n.*unfit::Op\): attribute 'factor' is missing"):
        export(net, (x,), custom_opsets={"unfit": 3})


@pytest.mark.parametrize(
    ("custom_opsets", "message"),
    [
        ({"": 18}, r"has ONNX's own domain ''; pass opset_version=18"),
        (["imports"], r"custom_opsets is \['imports'\]; write domains and their versions, for example"),
        ({"imports": "2"}, r"has 'imports': '2'; write a domain and its version"),
        ({"imports": 0}, r"has 'imports': 0; write a domain"),
        ({"absent": 1}, r"has absent, but the model has no node of that domain; it has imports"),
        ({"com.microsoft": 5}, r"ONNX Runtime supports 'com.microsoft' up to version 1, not 5; import version 1"),
    ],
)
def test_custom_opsets_that_cannot_be(export, model, custom_opsets, message):
    torch_negate = register(negate, "imports::Negate")
    with pytest.raises(exporters.ExportError, match=message):
        export(model(lambda x: torch_negate(x)), (torch.ones(2),), custom_opsets=custom_opsets)


def test_a_version_that_onnx_runtime_does_not_know(export, model):
    exporters.register_translation(
        "aten::gelu", lambda x, *, approximate="none": exporters.opset("com.microsoft", 5).Gelu(x)
    )
    net, x = model(lambda x: torch.nn.functional.gelu(x)), torch.ones(2)
    with pytest.raises(exporters.ExportError, match=r"supports 'com.microsoft' up to version 1, not 5"):
        export(net, (x,))
    program = export(net, (x,), custom_opsets={"com.microsoft": 1})
    assert exporters.verify(net, (x,), program).ok
    assert pyops.InferenceSession(program).get_inputs()


@pytest.mark.parametrize(
    "emit",
    [
        lambda x: exporters.opset("", 11).Softmax(x, axis=1),
        lambda x: exporters.opset("", 13).ReduceMax(x, axes=[0], keepdims=0),
    ],
)
def test_nodes_of_an_older_opset_in_which_the_operator_is_another(export, model, emit):
    exporters.register_translation("aten::lgamma", emit)
    message = (
        r"the translation of aten::lgamma uses (Softmax|ReduceMax) of opset 1\d, which differs from that of .* opset 19"
    )
    with pytest.raises(exporters.ExportError, match=message):
        export(model(lambda x: torch.lgamma(x)), (torch.ones(2, 2, 2),), opset_version=19)


def test_nodes_of_an_older_opset_in_which_the_operator_is_the_same(export, model):
    # Of opset 1, operators had an attribute more, which said nothing of what they compute.
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("", 11).Relu(exporters.opset("").Neg(x)))
    assert export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))(torch.ones(2))[0].tolist() == [0, 0]


def test_torchs_exporter_converts_nodes_to_the_models_opset(model):
    @exporters.register_translation("aten::grid_sampler")
    def grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners):
        return exporters.opset("", 18).GridSample(x, grid, mode="bilinear")

    net, args = (
        model(lambda x, y: torch.grid_sampler(x, y, 0, 0, False)),
        (torch.rand(1, 1, 3, 3), torch.rand(1, 2, 2, 2)),
    )
    program = exporters.export(net, args, opset_version=20, verbose=False)
    assert exporters.verify(net, args, program).ok
