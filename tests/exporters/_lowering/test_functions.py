"""onnxscript functions in exported models: kept as functions of the model, or inlined."""

import numpy as np
import onnx
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import FLOAT, opset18, opset20

import exporters
from pyops import onnx_op

pytestmark = pytest.mark.usefixtures("own_registrations")

mine = onnxscript.values.Opset("functions", 2)


@onnxscript.script(mine)
def halved(x):
    return opset18.Div(x, opset18.CastLike(2.0, x))


@onnxscript.script(mine)
def scaled(x, by: float = 3.0, less: int = 0):
    factor = opset18.CastLike(by, x)
    return halved(opset18.Mul(x, factor)) - opset18.CastLike(less, x)


@onnxscript.script(mine)
def both(x: FLOAT[...]):
    return opset18.Neg(x), halved(x)


def functions(program):
    return sorted((item.domain, item.name) for item in program.model_proto.functions)


def nodes(program):
    return [(node.domain, node.op_type) for node in program.model_proto.graph.node]


@pytest.fixture
def leaky(model):
    @exporters.register_translation("aten::leaky_relu")
    def leaky_relu(x, negative_slope=0.01):
        return scaled(x, by=4.0) if negative_slope == 0.01 else scaled(x, 2, less=1)

    return model(lambda x: torch.nn.functional.leaky_relu(x) + torch.nn.functional.leaky_relu(x, 0.5))


def test_called_in_a_translation(export, leaky):
    x = torch.ones(2)
    for keep in (True, False):
        program = export(leaky, (x,), keep_functions=keep)
        assert bool(functions(program)) == keep
        assert program(x)[0].tolist() == [2.0, 2.0]


def test_functions_that_call_functions(export, model):
    exporters.register_translation("aten::relu", scaled)
    net, x = model(lambda x: torch.relu(x) + torch.relu(x + 1)), torch.ones(2)
    kept = export(net, (x,), keep_functions=True)
    assert functions(kept) == [("functions", "halved"), ("functions", "scaled")]
    assert nodes(kept).count(("functions", "scaled")) == 2
    onnx.checker.check_model(kept.model_proto)
    inlined = export(net, (x,))
    assert functions(inlined) == []
    assert {domain for domain, _ in nodes(inlined)} == {""}
    for program in (kept, inlined):
        assert program(x)[0].tolist() == [4.5, 4.5]
        assert program.model.opset_imports["functions" if program is kept else ""] == (2 if program is kept else 20)


def test_several_outputs(export, model):
    @torch.library.custom_op("functions::both", mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor)")
    def torch_both(x):
        return -x, x / 2

    torch_both.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))
    exporters.register_translation("functions::both", both)
    net, x = model(lambda x: torch_both(x)), torch.ones(2)
    for keep in (True, False):
        program = export(net, (x,), keep_functions=keep)
        assert bool(functions(program)) == keep
        assert exporters.verify(net, (x,), program).ok


def test_numbers_take_the_annotated_type(export, model):
    @onnxscript.script(mine)
    def added(x: FLOAT[...], y: FLOAT[...], alpha: float = 1.0):
        return opset18.Add(x, y)

    exporters.register_translation("aten::add.Tensor", added)
    net, x = model(lambda x: x + 2), torch.ones(2)
    for keep in (True, False):
        assert export(net, (x,), keep_functions=keep)(x)[0].tolist() == [3, 3]


def test_two_functions_of_one_name(export, model):
    def declare(by: float):
        @onnxscript.script(mine)
        def multiplied(x):
            return opset18.Mul(x, opset18.CastLike(by, x))

        return multiplied

    exporters.register_translation("aten::relu", declare(2.0))
    exporters.register_translation("aten::neg", declare(3.0))
    message = r"two onnxscript functions are called functions::multiplied; give one another name"
    with pytest.raises(exporters.ExportError, match=message):
        export(model(lambda x: torch.relu(-x)), (torch.ones(2),))


def test_a_function_and_an_operator_of_one_domain(export, model):
    @onnx_op("functions::Tripled", version=3)
    def tripled(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x * 3

    @onnx_op("functions::Negated", version=2)
    def negated(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return -x

    @onnxscript.script(mine)
    def negated_twice(x):
        return mine.Negated(mine.Negated(x))

    exporters.register_translation("aten::relu", negated_twice)
    exporters.register_translation("aten::neg", tripled)
    net, x = model(lambda x: torch.relu(-x)), torch.ones(2)
    for keep in (True, False):
        program = export(net, (x,), keep_functions=keep)
        assert program.model.opset_imports["functions"] == 3
        assert program(x)[0].tolist() == [3, 3]

    @onnx_op("functions::Negated", version=3)
    def replaced(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    with pytest.raises(exporters.ExportError, match=r"functions::Negated of version 2, but imports version 3"):
        export(net, (x,))


def test_functions_that_nothing_calls_are_left_out(export, model):
    exporters.register_translation("aten::relu", scaled)
    program = export(model(lambda x: (torch.relu(x), x + 1)[1]), (torch.ones(2),), keep_functions=True)
    assert functions(program) == []


def test_an_attribute_that_is_computed(model):
    exporters.register_translation("aten::triu", viewed_triu)
    net = model(lambda x: torch.triu(x, x.shape[0]))
    with pytest.raises(exporters.ExportError, match="attribute 'diagonal' is computed in the model"):
        exporters.export(net, (torch.ones(3, 3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False)


@onnxscript.script(mine)
def viewed_triu(x, diagonal: int = 0):
    return opset18.Sub(x, opset18.CastLike(diagonal, x))


@onnxscript.script(mine)
def resampled(x, y):
    return opset18.GridSample(x, y, mode="bilinear")


@onnxscript.script(mine)
def newer(x):
    return opset20.Gelu(x)


def test_operators_that_are_others_in_the_models_opset(export, model):
    exporters.register_translation("aten::mul.Tensor", resampled)
    net, args = model(lambda x, y: x * y), (torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    message = r"function functions::resampled uses GridSample of opset 18, which differs from .* opset 20"
    with pytest.raises(exporters.ExportError, match=message):
        export(net, args, opset_version=20)
    exporters.register_translation("aten::relu", newer)
    with pytest.raises(exporters.ExportError, match=r"Gelu of opset 20, .* export with opset_version=20"):
        export(model(lambda x: torch.relu(x)), (torch.ones(2),), opset_version=18)
    x = torch.ones(2)
    assert export(model(lambda x: torch.relu(x)), (x,), opset_version=20)(x)[0].shape == (2,)
