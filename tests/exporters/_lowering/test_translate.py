"""Existing torch operators translated to nodes of any domain."""

from typing import TypeVar

import numpy as np
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import FLOAT
from onnxscript import opset18 as op18

import exporters
from pyops import onnx_op
from pyops.errors import InputError
from tests.exporters.declared import declare, op_types

T = TypeVar("T", np.float32, np.float64)


pytestmark = pytest.mark.usefixtures("own_registrations")


def test_a_python_function(export, model):
    @exporters.register_translation("aten::gelu")
    def gelu(x, *, approximate="none"):
        seen.append(approximate)
        return exporters.opset("com.microsoft", 1).Gelu(x)

    seen: list[str] = []
    x = torch.randn(3, 4)
    net = model(lambda x: torch.nn.functional.gelu(x))
    program = export(net, (x,))
    assert op_types(program) == [("com.microsoft", "Gelu")]
    assert program.model.opset_imports["com.microsoft"] == 1
    assert exporters.verify(net, (x,), program).ok
    export(model(lambda x: torch.nn.functional.gelu(x, approximate="tanh")), (x,))
    assert seen == ["none", "tanh"]


def test_called_directly(export, model):
    def gelu(x, *, approximate="none"):
        return exporters.opset("com.microsoft").Gelu(x)

    assert exporters.register_translation("aten::gelu", gelu) is gelu
    assert op_types(export(model(lambda x: torch.nn.functional.gelu(x)), (torch.ones(2),))) == [
        ("com.microsoft", "Gelu")
    ]


def test_an_onnxscript_function(export, model):
    @onnxscript.script(default_opset=op18)
    def leaky_relu(x: FLOAT[...], negative_slope: float = 0.01) -> FLOAT[...]:
        return op18.LeakyRelu(x, alpha=negative_slope)

    exporters.register_translation("aten::leaky_relu", leaky_relu)
    x = torch.randn(5)
    for net in (model(lambda x: torch.nn.functional.leaky_relu(x, 0.3)), model(torch.nn.functional.leaky_relu)):
        program = export(net, (x,))
        assert op_types(program) == [("", "LeakyRelu")]
        assert exporters.verify(net, (x,), program).ok


def test_an_onnxscript_function_in_opsets_of_ours(export, model):
    onnx_ops, contrib = exporters.opset("", 18), exporters.opset("com.microsoft")

    @onnxscript.script(default_opset=onnx_ops)
    def gelu_of_twice(x: FLOAT[...]) -> FLOAT[...]:
        return contrib.Gelu(onnx_ops.Abs(x) * 2)

    exporters.register_translation("aten::relu", gelu_of_twice)
    x = torch.tensor([-1.0, 2.0])
    program = export(model(lambda x: torch.relu(x)), (x,))
    torch.testing.assert_close(program(x)[0], torch.nn.functional.gelu(x.abs() * 2))


def test_an_onnxscript_function_drops_nothing(export, model):
    @onnxscript.script(default_opset=op18)
    def relu(x: FLOAT[...]) -> FLOAT[...]:
        return op18.Relu(x)

    exporters.register_translation("aten::leaky_relu", relu)
    with pytest.raises(
        exporters.ExportError, match=r"aten::leaky_relu: the model passes arguments that relu\(.*does not take"
    ):
        export(model(lambda x: torch.nn.functional.leaky_relu(x, 0.3)), (torch.ones(2),))


@pytest.mark.parametrize("function", [torch.linalg.inv, torch.inverse])
def test_an_op(export, model, inverse, function):
    exporters.register_translation("aten::linalg_inv", inverse)
    net = model(lambda A: function(A) + 1)
    x = torch.tensor([[2.0, 1.0], [0.0, 4.0]])
    program = export(net, (x,))
    assert op_types(program) == [("translate", "Inverse"), ("", "Add")]
    assert exporters.verify(net, (x,), program).ok


def test_an_op_with_attributes_takes_torchs_defaults(export, model):
    def leaky(x: NDArray[np.float32], *, negative_slope: float = 0.5) -> NDArray[np.float32]:
        return np.where(x > 0, x, x * np.float32(negative_slope))

    exporters.register_translation("aten::leaky_relu", declare(leaky, "translate::Leaky"))
    x = torch.tensor([-1.0, 2.0])
    for slope, net in [
        (0.01, model(lambda x: torch.nn.functional.leaky_relu(x))),
        (0.3, model(lambda x: torch.nn.functional.leaky_relu(x, 0.3))),
    ]:
        (node,) = export(net, (x,)).model_proto.graph.node
        assert [item.f for item in node.attribute] == [np.float32(slope)]


def test_an_op_without_one_of_torchs_arguments(export, model):
    def gelu(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    exporters.register_translation("aten::gelu", declare(gelu, "translate::PlainGelu"))
    x = torch.ones(2)
    assert op_types(export(model(lambda x: torch.nn.functional.gelu(x)), (x,))) == [("translate", "PlainGelu")]
    with pytest.raises(exporters.ExportError, match=r"the model passes approximate='tanh'.*declare an attribute"):
        export(model(lambda x: torch.nn.functional.gelu(x, approximate="tanh")), (x,))


def test_an_op_with_a_list_of_tensors(export, model):
    def stack(*xs: NDArray[np.float32], dim: int = 0) -> NDArray[np.float32]:
        return np.stack(xs, dim)

    op = onnx_op("translate::Stack")(stack)
    exporters.register_translation("aten::stack", op)
    net = model(lambda x, y: torch.stack([x, y, x], 1))
    args = (torch.ones(2), torch.zeros(2))
    program = export(net, args)
    assert op_types(program) == [("translate", "Stack")]
    assert exporters.verify(net, args, program).ok


def test_an_op_of_other_dtypes_says_so(export, model, inverse):
    exporters.register_translation("aten::neg", inverse)
    with pytest.raises(InputError, match=r"input 'x' is float16; declared as T"):
        export(model(lambda x: -x), (torch.eye(2).half(),))


def test_one_overload_and_all_of_them():
    exporters.register_translation("aten::add.Tensor", lambda x, y, *, alpha=1: x)
    assert set(exporters.translation_table(kernels=False)) == {torch.ops.aten.add.Tensor}
    exporters.register_translation("aten::gelu", lambda x, *, approximate="none": x)
    assert torch.ops.aten.gelu.default in exporters.translation_table()
    assert torch.ops.aten.gelu.out not in exporters.translation_table()

    exporters.register_translation("aten::sum", lambda x, dim=None, keepdim=False, *, dtype=None: x)
    table = exporters.translation_table()
    assert {torch.ops.aten.sum.default, torch.ops.aten.sum.dim_IntList} <= set(table)


def test_later_registrations_win(export, model):
    exporters.register_translation("aten::gelu", lambda x, *, approximate="none": exporters.opset("a").One(x))
    exporters.register_translation("aten::gelu.default", lambda x, *, approximate="none": exporters.opset("a").Two(x))
    program = export(model(lambda x: torch.nn.functional.gelu(x)), (torch.ones(2),))
    assert op_types(program) == [("a", "Two")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gelu", r"'gelu' is not the name of a torch operator; write a str like \"aten::gelu\""),
        (torch.ops.aten.gelu.default, "is not the name of a torch operator"),
        ("aten::gelo", r"torch \S+ has no operator aten::gelo; near matches: .*aten::gelu"),
        ("mine::gelu", r"no operator mine::gelu; near matches: .*aten::gelu"),
        (
            "mine::nothing_like_it",
            r"no operator mine::nothing_like_it; if it is an operator of your own, register it first",
        ),
        ("aten::gelu.Tensor", r"aten::gelu has no overload 'Tensor'; it has default, out"),
        ("aten::relu_", r"aten::relu_ writes to its arguments"),
    ],
)
def test_names(name, message):
    with pytest.raises(exporters.ExportError, match=message):
        exporters.register_translation(name)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, r"cannot translate aten::gelu\(.*too many positional arguments"),
        (lambda x, approximate: None, r"missing a required argument: 'approximate'; torch leaves out arguments"),
        (
            lambda x, *, approximate="tanh": None,
            r"approximate defaults to 'tanh', but torch leaves it out where it is 'none'",
        ),
        ("gelu", r"a translation is a Python function, an @onnxscript.script function or an Op, not 'gelu'"),
        (max, r"aten::gelu: a translation is a Python function, .* not <built-in function max>"),
    ],
)
def test_functions_that_do_not_match(function, message):
    with pytest.raises(exporters.ExportError, match=message):
        exporters.register_translation("aten::gelu", function)


def test_a_default_list_may_be_a_tuple(export, model):
    exporters.register_translation(
        "aten::amax", lambda x, dim=(), keepdim=False: exporters.opset("", 18).ReduceMax(x, keepdims=int(keepdim))
    )
    assert export(model(lambda x: torch.amax(x)), (torch.ones(2),))(torch.tensor([1.0, 3.0]))[0].item() == 3.0
    with pytest.raises(
        exporters.ExportError, match=r"dim defaults to \(1,\), but torch leaves it out where it is \[\]"
    ):
        exporters.register_translation("aten::amax", lambda x, dim=(1,), keepdim=False: x)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aten::linalg_solve", r"torch passes 2 tensors \(A, B\), Inverse has 1 inputs"),
        ("aten::linalg_eigh", r"torch returns \(Tensor, Tensor\), Inverse has 1 outputs"),
        ("aten::stack", r"tensors is a list of tensors, which only a variadic input \(\*xs\) takes"),
        ("aten::fill.Scalar", r"torch always passes value, and Inverse has no attribute of that name"),
        ("aten::randn_like.generator", r"torch always passes generator"),
    ],
)
def test_ops_that_do_not_match(inverse, name, message):
    with pytest.raises(exporters.ExportError, match=message):
        exporters.register_translation(name, inverse)


def test_an_op_with_an_attribute_torch_lacks():
    def scale(x: NDArray[np.float32], *, factor: float) -> NDArray[np.float32]:
        return x

    with pytest.raises(exporters.ExportError, match="torch has no argument for the required attribute 'factor'"):
        exporters.register_translation("aten::relu", declare(scale, "translate::Scale"))


def test_left_to_torch(export, model):
    @exporters.register_translation("aten::gelu")
    def gelu(x, *, approximate="none"):
        return exporters.opset("com.microsoft").Gelu(x) if approximate == "none" else NotImplemented

    x = torch.randn(4)
    for approximate, domain in (("none", "com.microsoft"), ("tanh", "")):
        net = model(lambda x, how=approximate: torch.nn.functional.gelu(x, approximate=how))
        program = export(net, (x,))
        assert {found for found, _ in op_types(program)} == {domain}
        assert exporters.verify(net, (x,), program).ok


@pytest.mark.parametrize(("opset_version", "ops"), [(19, {"Erf"}), (20, {"Gelu"}), (23, {"Gelu"})])
def test_left_to_what_torch_has_for_the_models_opset(model, opset_version, ops):
    exporters.register_translation("aten::gelu", lambda x, *, approximate="none": NotImplemented)
    net = model(lambda x: torch.nn.functional.gelu(x))
    program = exporters.export(net, (torch.ones(2),), opset_version=opset_version, verbose=False)
    assert {name for _, name in op_types(program)} & {"Erf", "Gelu"} == ops


def test_left_to_torch_which_has_none(export, model):
    exporters.register_translation("aten::linalg_inv", lambda A: NotImplemented)
    with pytest.raises(exporters.ExportError, match=r"aten::linalg_inv.*of its own"):
        export(model(lambda x: torch.linalg.inv(x)), (torch.eye(2),), kernels=False)


def test_who_translates(inverse):
    assert exporters.registered_by("aten::add.Tensor") == "torch"
    assert exporters.registered_by("aten::add") == "torch"
    assert exporters.registered_by("aten::linalg_inv") == "kernels"
    exporters.register_translation("aten::linalg_inv", inverse)
    assert exporters.registered_by("::linalg_inv") == "exporters"
    assert exporters.registered_by("aten::linalg_inv.default") == "exporters"
    torch_inverse = exporters.custom_op(inverse, "translate::inverse")
    assert exporters.registered_by("translate::inverse") == "exporters"
    assert torch_inverse(torch.eye(2)).shape == (2, 2)
    with pytest.raises(exporters.ExportError, match=r"torch \S+ has no operator aten::ad; near matches: .*aten::add"):
        exporters.registered_by("aten::ad")


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec:FutureWarning")  # torch's own, in its export
def test_onnxscript_functions_with_torchs_own_export(model):
    @onnxscript.script(default_opset=op18)
    def relu(x: FLOAT[...]) -> FLOAT[...]:
        return op18.Relu(x)

    @onnxscript.script(default_opset=op18)
    def unannotated(x):
        return op18.Relu(x)

    net, x = model(lambda x: torch.relu(x)), torch.randn(3)
    for function in (relu, unannotated):
        exporters.register_translation("aten::relu", function)
        program = torch.onnx.export(net, (x,), custom_translation_table=exporters.translation_table(), verbose=False)
        assert op_types(program) == [("", "Relu")]
