"""Nodes that translations emit by `exporters.opset`: of declared ops, of ONNX's operators, and of others."""

from typing import TypeVar

import numpy as np
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import FLOAT
from onnxscript import opset18 as op18

import exporters
import pyops
from pyops import onnx_op
from pyops.errors import InputError
from tests.exporters.declared import declare, op_types

T = TypeVar("T", np.float32, np.float64)


pytestmark = pytest.mark.usefixtures("own_registrations")


def test_a_declared_op_in_a_function(export, model, inverse):
    @exporters.register_translation("aten::linalg_inv")
    def inv(A):
        return exporters.opset("translate").Inverse(exporters.opset("", 18).Neg(A))

    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    program = export(model(lambda x: torch.linalg.inv(x)), (x,))
    assert op_types(program) == [("", "Neg"), ("translate", "Inverse")]
    assert program(x)[0].diagonal().tolist() == [-0.5, -0.25]


def test_a_declared_op_is_checked(export, model, inverse):
    x = torch.eye(2)

    @exporters.register_translation("aten::linalg_inv")
    def wrong_attribute(A):
        return exporters.opset("translate").Inverse(A, decimals=1)

    with pytest.raises(InputError, match=r"unknown attribute 'decimals'; translate::Inverse"):
        export(model(lambda x: torch.linalg.inv(x)), (x,))

    @exporters.register_translation("aten::linalg_inv")
    def wrong_count(A):
        return exporters.opset("translate").Inverse(A, A)

    with pytest.raises(InputError, match=r"got 2 inputs; translate::Inverse.* takes 1"):
        export(model(lambda x: torch.linalg.inv(x)), (x,))


def test_a_declared_op_with_any_number_of_outputs(export, model):
    def halves(x: NDArray[np.float32], y: NDArray[np.float32] | None = None) -> tuple[NDArray[np.float32], ...]:
        return tuple(np.split(x, 2))

    declare(halves, "translate::Halves", lambda x, y=None: (x.like(shape=(x.shape[0] // 2,)),) * 2)
    ours = exporters.opset("translate")
    net, x = model(lambda x: torch.relu(x)), torch.ones(4)
    exporters.register_translation("aten::relu", lambda x: op18.Concat(*ours.Halves(x, None), axis=0))
    assert exporters.verify(net, (x,), export(net, (x,))).ok
    exporters.register_translation("aten::relu", lambda x: op18.Concat(*ours.Halves(op18.Relu(x), _outputs=2), axis=0))
    assert exporters.verify(net, (x,), export(net, (x,))).ok
    exporters.register_translation("aten::relu", lambda x: op18.Concat(*ours.Halves(op18.Relu(x)), axis=0))
    with pytest.raises(
        exporters.ExportError, match=r"^translate::Halves: .* whose shape or element type is not known; pass _outputs"
    ):
        export(net, (x,))


def test_an_input_that_is_not_optional(export, model, inverse):
    exporters.register_translation("aten::linalg_inv", lambda A: exporters.opset("translate").Inverse(None))
    with pytest.raises(InputError, match=r"translate::Inverse: input '.*' is None, but it is not optional"):
        export(model(lambda x: torch.linalg.inv(x)), (torch.eye(2),))


def test_an_undeclared_op(export, model):
    @exporters.register_translation("aten::lgamma")
    def lgamma(x):
        nodes = exporters.opset("somebody.else", 3)
        first, _ = nodes.Gamma(
            x,
            None,
            x,
            i=1,
            f=0.5,
            s="a",
            b=True,
            ints=[1],
            floats=[1, 0.5],
            strings=["x"],
            t=np.eye(2),
            no=None,
            _outputs=2,
        )
        return first

    program = export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))
    (node,) = program.model_proto.graph.node
    assert (node.domain, node.op_type, list(node.input), len(node.output)) == (
        "somebody.else",
        "Gamma",
        ["x", "", "x"],
        2,
    )
    assert {item.name: item.type for item in node.attribute} == {
        "i": 2, "f": 1, "s": 3, "b": 2, "ints": 7, "floats": 6, "strings": 8, "t": 4
    }  # fmt: skip
    assert program.model.opset_imports["somebody.else"] == 3


def test_an_undeclared_op_with_an_attribute_of_no_kind(export, model):
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("somebody").Gamma(x, axes=[]))
    with pytest.raises(exporters.ExportError, match=r"somebody::Gamma: attribute 'axes' is \[\]; expected int"):
        export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("somebody").Gamma(x, axes=x))
    with pytest.raises(exporters.ExportError, match="attribute 'axes' is computed in the model"):
        export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))


def test_nodes_outside_an_export(inverse):
    for call in (exporters.opset("translate").Inverse, exporters.opset("other").Gamma, exporters.opset("", 18).Relu):
        with pytest.raises(exporters.ExportError, match="was called outside an export"):
            call(None if call is exporters.opset else np.eye(2))


def test_an_operator_onnx_lacks(export, model):
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("", 18).Lgamma(x))
    with pytest.raises(exporters.ExportError, match="ONNX has no operator Lgamma in opset 18"):
        export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("").Gelu(x))
    with pytest.raises(exporters.ExportError, match=r'in opset 1; .* exporters.opset\("", 20\)'):
        export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (
            lambda op, x: op.Softmax(x, axes=0),
            r"opset\('', 18\).Softmax has no attribute axes; its attributes are: axis",
        ),
        (lambda op, x: op.Relu(x, alpha=1.0, beta=2.0), r"Relu has no attribute alpha, beta; its attributes are: none"),
        (lambda op, x: op.Relu(x, x), r"Relu got 2 inputs; its inputs are: X; pass attributes as keywords"),
        (lambda op, x: op.Cast(x, 1), r"Cast got 2 inputs; its inputs are: input; pass attributes as keywords"),
        (lambda op, x: op.Clip(x, x, x, max=x), r"Clip got 4 inputs; its inputs are: input, min, max;"),
        (lambda op, x: op.Relu(x, _outputs=2), r"Relu got _outputs=2; its outputs are: Y"),
        (lambda op, x: op.MatMul(x), r"MatMul got 1 inputs; its inputs are: A, B;"),
    ],
)
def test_what_an_operator_of_onnx_does_not_take(export, model, emit, message):
    exporters.register_translation("aten::lgamma", lambda x: emit(exporters.opset("", 18), x))
    with pytest.raises(exporters.ExportError, match=message):
        export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))


def test_an_input_of_an_operator_of_onnx_by_its_name(export, model):
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("", 18).Clip(x, max=2.0))
    program = export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))
    assert program(torch.tensor([1.0, 3.0]))[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("emit", "expected"),
    [
        (lambda op, x: op.Split(x, num_outputs=2, _outputs=2)[1], [3.0]),
        (lambda op, x: op.Split(x, op.Constant(value_ints=[1, 2]), _outputs=2)[1], [2.0, 3.0]),
        (lambda op, x: op.Neg(x, _outputs=1), [-1.0, -2.0, -3.0]),
    ],
)
def test_the_number_of_outputs_of_an_operator_of_onnx(export, model, emit, expected):
    exporters.register_translation("aten::lgamma", lambda x: emit(exporters.opset("", 18), x))
    x = torch.tensor([1.0, 2.0, 3.0])
    (computed,) = export(model(lambda x: torch.lgamma(x)), (x,))(x)
    assert computed.tolist() == expected


def test_the_ops_in_an_onnxscript_function():
    @onnx_op("known::Shift")
    def shift(x: NDArray[T], bias: NDArray[T] | None = None, *, axis: int = 0) -> NDArray[T]:
        return x if bias is None else x + bias

    known = exporters.opset("known")
    assert "Shift" in known
    assert "Nothing" not in known

    @onnxscript.script(default_opset=op18)
    def function(x: FLOAT["n", 3], bias: FLOAT[3]) -> FLOAT["n", 3]:  # noqa: F821
        return op18.Add(known.Shift(op18.Relu(x), None, axis=1), bias)

    model = function.to_model_proto()
    (node,) = [node for node in model.graph.node if node.domain == "known"]
    assert [(item.name, item.i) for item in node.attribute] == [("axis", 1)]
    x, bias = np.array([[-1, 2, 3]], np.float32), np.ones(3, np.float32)
    assert pyops.InferenceSession(model).run(None, {"x": x, "bias": bias})[0].tolist() == [[1, 3, 4]]
    # onnxscript runs the function itself where it is called with arrays.
    assert function(x, bias).tolist() == [[1, 3, 4]]
