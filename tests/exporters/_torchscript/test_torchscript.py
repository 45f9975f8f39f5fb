"""What only the TorchScript exporter has: tracing, symbolic functions, dynamic axes."""

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import opset18
from torch.onnx._internal.torchscript_exporter import registration, utils

import exporters
from pyops import onnx_op, shapes

pytestmark = pytest.mark.usefixtures("own_registrations")

# A DeprecationWarning at first, and a FutureWarning as of torch 2.15.
DEPRECATED = r"ignore:`torch.jit.\w+` is deprecated"
BATCH = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}


def export(module, args, **arguments):
    return exporters.export(module, args, dynamo=False, **arguments)


def register(function, op_type, shape_function=lambda x, *args, **kwargs: x):
    op = onnx_op(op_type)(function)
    op.register_shape_inference(shape_function)
    return exporters.custom_op(op, op_type.lower())


def op_types(program):
    return [(node.domain, node.op_type) for node in program.model_proto.graph.node]


def output_shapes(program):
    dims = [item.type.tensor_type.shape.dim for item in program.model_proto.graph.output]
    return [[dim.dim_value or None for dim in shape] for shape in dims]


@pytest.fixture
def double():
    def double(x: NDArray[np.float32], *, times: int = 2, weights: list[float] | None = None) -> NDArray[np.float32]:
        return x * np.float32(times)

    return register(double, "torchscript::Double")


def symbolics():
    """How torch runs symbolic functions, and each one that it has."""
    found = {name: dict(group._functions._merged) for name, group in registration.registry._registry.items()}
    return utils._run_symbolic_function, found


def test_nothing_stays_registered(double, model):
    export(model(lambda x: x + 1), (torch.ones(2),))  # which fills the registry
    before = symbolics()
    net = model(lambda x: double(torch.nn.functional.gelu(x)))
    exporters.register_translation(
        "aten::gelu", lambda x, *, approximate="none": exporters.opset("com.microsoft").Gelu(x)
    )
    export(net, (torch.ones(2),))
    assert symbolics() == before
    assert "forward" in vars(net)  # put there by the fixture
    assert net(torch.ones(2)).shape == (2,)

    def fail(x, *, approximate="none"):
        raise LookupError

    exporters.register_translation("aten::gelu", fail)
    module = torch.nn.GELU().eval()
    with pytest.raises(LookupError):
        export(module, (torch.ones(2),))
    assert symbolics() == before
    assert "forward" not in vars(module)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's registration
def test_other_peoples_symbolics_stay(double, model):
    def gelu(g, x, approximate):
        return g.op("theirs::Gelu", x).setType(x.type())

    net = model(lambda x: torch.nn.functional.gelu(x))
    torch.onnx.register_custom_op_symbolic("aten::gelu", gelu, 20)
    try:
        assert op_types(export(net, (torch.ones(2),))) == [("theirs", "Gelu")]
        exporters.register_translation("aten::gelu", lambda x, *, approximate="none": exporters.opset("ours").Gelu(x))
        assert op_types(export(net, (torch.ones(2),))) == [("ours", "Gelu")]
        assert registration.registry.get_function_group("aten::gelu").get(20) is gelu
        exporters.register_translation("aten::gelu", lambda x, *, approximate="none": NotImplemented)
        assert op_types(export(net, (torch.ones(2),))) == [("theirs", "Gelu")]
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::gelu", 20)


def test_another_batch(double, model):
    net = model(lambda x: torch.nn.functional.adaptive_avg_pool2d(double(x), 2).flatten(1) + 1)
    program = export(net, (torch.randn(2, 3, 4, 4),), **BATCH)
    assert output_shapes(program) == [[None, 12]]
    x = torch.randn(5, 3, 4, 4)
    assert exporters.verify(net, (x,), program).ok


def test_sizes_that_change_are_not_fixed(double, model):
    net = model(lambda x: double(x).reshape(x.shape[0] * 3))
    program = export(net, (torch.randn(2, 3),), **BATCH)
    assert exporters.verify(net, (torch.randn(7, 3),), program).ok


def test_all_sizes_are_fixed_without_dynamic_axes(double, model):
    program = export(model(lambda x: double(torch.nn.functional.gelu(x))), (torch.randn(2, 3),))
    assert output_shapes(program) == [[2, 3]]


def test_sizes_that_only_a_run_tells(model):
    def unique(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.unique(x)

    torch_unique = register(unique, "torchscript::Unique", lambda x: x.like(shape=(shapes.new_dim(),)))
    program = export(model(lambda x: torch_unique(x) * 2), (torch.tensor([1.0, 2.0, 1.0]),))
    assert output_shapes(program) == [[None]]
    assert program(torch.tensor([3.0, 1.0, 2.0]))[0].tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda op, x: op(x, times=x.shape[0]), "times"),
        (lambda op, x: op(x, times=x.sum()), "times"),
        (lambda op, x: op(x, weights=[0.5, x.shape[0] * 0.5]), "weights"),
    ],
)
def test_a_size_cannot_be_an_attribute(double, model, call, name):
    net = model(lambda x: call(double, x))
    message = f"torchscript::double: attribute '{name}' is computed in the model.*write int"
    for arguments in ({}, BATCH):
        with pytest.raises(exporters.ExportError, match=message):
            export(net, (torch.ones(4, 2),), **arguments)


def test_a_size_made_a_number_is_a_constant(double, model):
    net, x = model(lambda x: double(x, times=int(x.shape[0]))), torch.ones(4, 2)
    with pytest.warns(torch.jit.TracerWarning, match="Python integer"):
        program = export(net, (x,))
    assert torch.equal(program(x)[0], net(x))


def test_torch_says_what_it_does_not_take(double, model):
    with pytest.raises(RuntimeError, match="Unknown keyword argument 'tims'"):
        export(model(lambda x: double(x, tims=3)), (torch.ones(2),))


def test_no_warning_of_missing_shapes(double, model, capfd):
    exporters.register_contrib_ops()
    net = model(lambda x: double(torch.linalg.inv(x)) + torch.nn.functional.gelu(x).tril() + x.int() % 2)
    export(net, (torch.eye(3),), **BATCH)
    assert "shape inference" not in capfd.readouterr().err


@pytest.mark.parametrize("torch_op", ["::inverse", "aten::linalg_inv"])
def test_inverse(model, torch_op):
    exporters.register_translation(torch_op, lambda x: exporters.opset("com.microsoft").Inverse(x))
    x = torch.tensor([[2.0, 1.0], [0.0, 4.0]])
    net = model(lambda x: torch.inverse(x))
    for dynamo in (True, False):
        program = exporters.export(net, (x,), dynamo=dynamo, verbose=False)
        assert op_types(program) == [("com.microsoft", "Inverse")]
        assert exporters.verify(net, (x,), program).ok


def test_a_registration_of_the_operator_itself_comes_first(model):
    exporters.register_translation("aten::inverse", lambda x: exporters.opset("some").Other(x))
    exporters.register_translation("aten::linalg_inv", lambda x: exporters.opset("some").Itself(x))
    program = export(model(lambda x: torch.linalg.inv(x)), (torch.eye(2),))
    assert op_types(program) == [("some", "Itself")]


@pytest.mark.parametrize(
    ("torch_op", "call"),
    [("aten::relu", lambda x: torch.relu_(x + 1) * 2), ("aten::__lshift__.Scalar", lambda x: (x + 1).int() << 1)],
)
def test_names_that_end_with_an_underscore(model, torch_op, call):
    exporters.register_translation(torch_op, lambda x, *rest: exporters.opset("some").Ours(x))
    assert ("some", "Ours") in op_types(export(model(call), (torch.ones(2),)))


def test_overloads_and_arguments(model):
    seen = []

    @exporters.register_translation("aten::add.Tensor")
    def add(x, y, *, alpha=1):
        seen.append(alpha)
        return exporters.opset("", 18).Add(x, y)

    @exporters.register_translation("aten::sum.dim_IntList")
    def total(x, dim, keepdim=False, *, dtype=None):
        seen.append((dim, keepdim, dtype))
        return opset18.ReduceSum(x, opset18.Constant(value_ints=dim), keepdims=keepdim)

    x = torch.ones(2, 3)
    export(model(lambda x: x + 1 + torch.add(x, x, alpha=3)), (x,))
    assert seen == [3, 1, 1] or sorted(seen) == [1, 1, 3]
    seen.clear()
    net = model(lambda x: (x.sum([0, 1]), x.sum(1, keepdim=True), x.sum(0, dtype=torch.float32), x.sum()))
    program = export(net, (x,))
    assert seen == [([0, 1], False, None), ([1], True, None), ([0], False, onnx.TensorProto.FLOAT)]
    assert exporters.verify(net, (x,), program).ok


def test_a_list_of_outputs(model):
    @exporters.register_translation("aten::unbind.int")
    def unbind(x, dim=0):
        first, second = opset18.Split(x, axis=dim, num_outputs=2)
        axes = opset18.Constant(value_ints=[dim])
        return [opset18.Squeeze(first, axes), opset18.Squeeze(second, axes)]

    net = model(lambda x: sum(torch.unbind(x, 1)))
    program = export(net, (torch.randn(3, 2),), **BATCH)
    assert "Split" in [name for _, name in op_types(program)]
    assert exporters.verify(net, (torch.randn(5, 2),), program).ok


def test_a_list_that_torch_unpacks_itself(model):
    @exporters.register_translation("aten::tensor_split.sections")
    def tensor_split(x, sections, dim=0):
        return opset18.Split(x, axis=dim, num_outputs=sections) if sections == 2 else NotImplemented

    net = model(lambda x: (*torch.tensor_split(x, 2), *torch.tensor_split(x, 3)))
    program = export(net, (torch.randn(6, 2),))
    assert [name for _, name in op_types(program)].count("Split") == 1
    assert exporters.verify(net, (torch.randn(6, 2),), program).ok


def test_a_list_with_a_size_in_it(model):
    @exporters.register_translation("aten::expand")
    def expand(x, size, *, implicit=False):
        batch, columns = size
        sizes = opset18.Reshape(batch, [1]), opset18.Constant(value_ints=[columns])
        return opset18.Expand(x, opset18.Concat(*sizes, axis=0))

    net = model(lambda x: x[:1].expand(x.shape[0], 3))
    program = export(net, (torch.randn(2, 3),), **BATCH)
    assert exporters.verify(net, (torch.randn(5, 3),), program).ok


def test_an_argument_returned_as_it_is(model):
    exporters.register_translation("aten::gelu", lambda x, *, approximate="none": x)
    program = export(model(lambda x: torch.nn.functional.gelu(x) + torch.nn.functional.gelu(x + 1)), (torch.ones(2),))
    assert program(torch.ones(2))[0].tolist() == [3, 3]


def test_a_call_that_no_registration_takes(model):
    exporters.register_translation("aten::lgamma", lambda x: NotImplemented)
    with pytest.raises(exporters.ExportError, match=r"nothing translates aten::lgamma .*that takes this call"):
        export(model(lambda x: torch.lgamma(x)), (torch.ones(2),))


def test_a_call_without_tensors_is_no_constant(model):
    def noise(*, n: int) -> NDArray[np.float32]:
        return np.random.rand(n).astype(np.float32)

    torch_noise = register(noise, "traced::Noise", lambda *, n: shapes.TensorSpec((n,), np.float32))
    x = torch.zeros(2)
    program = export(model(lambda x: x + torch_noise(n=2)), (x,))
    assert not torch.equal(program(x)[0], program(x)[0])


def test_a_custom_operator_that_its_translation_leaves_to_torch(double, model):
    exporters.register_translation("torchscript::double", lambda x, *, times=2, weights=None: NotImplemented)
    with pytest.raises(exporters.ExportError, match="for torchscript::double returns NotImplemented for this call"):
        export(model(lambda x: double(x)), (torch.ones(2),))


def test_sizes_of_torchs_own_arguments(model):
    exporters.register_contrib_ops()
    net = model(lambda x: torch.triu(x, x.shape[0] - 2))
    program = export(net, (torch.ones(3, 3),), **BATCH)
    assert exporters.verify(net, (torch.ones(2, 3),), program).ok


def test_numbers_among_the_results(double, model):
    net, x = model(lambda x: {"doubled": double(x), "number": 3, "half": 0.5}), torch.ones(2)
    assert [result.tolist() for result in export(net, (x,))(x)] == [[2, 2], 3, 0.5]


class Unknown(dict):
    """A dict that torch does not know."""


def test_dicts_that_torch_does_not_know(model):
    net = model(lambda given: Unknown(sum=given["a"] + given["b"], pair=(Unknown(a=given["a"]), 2)))
    program = export(net, (Unknown(a=torch.ones(2), b=torch.zeros(2)),))
    assert len(program.model.graph.inputs) == 2
    assert exporters.verify(net, (Unknown(a=torch.zeros(2), b=torch.ones(2)),), program).ok


@pytest.mark.parametrize("result", ["text", object()], ids=["str", "object"])
def test_what_no_model_returns(model, result):
    message = f"the model returns a {type(result).__name__}; .*tensors and numbers.*return those, or leave it out"
    with pytest.raises(exporters.ExportError, match=message):
        export(model(lambda x: (x * 2, result)), (torch.ones(2),))


def test_names_of_nested_arguments(model):
    net = model(lambda x, *rest, **more: x + rest[0] + rest[1]["deep"][0] + more["last"])
    x = torch.ones(2)
    program = export(net, (x, x, {"deep": [x]}), kwargs={"last": x})
    assert [item.name for item in program.model.graph.inputs] == ["x", "rest_0", "rest_1_deep_0", "last"]


def test_keywords_in_another_order(model):
    net = model(lambda *, first, second: first["a b"] - second["a b"])
    x, y = torch.ones(2), torch.zeros(2)
    program = export(net, (), kwargs={"first": {"a b": x}, "second": {"a b": y}})
    assert program(second={"a b": y}, first={"a b": x})[0].tolist() == [1, 1]


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.scale = torch.nn.Parameter(torch.full((2,), 3.0))
        self.register_buffer("shift", torch.ones(2), persistent=False)
        self.modes = []

    def forward(self, x, factor=None):
        self.modes.append(self.training)
        result = self.layer(x) * self.scale + self.shift
        return {"first": result if factor is None else result * factor, "second": x}


def swap(module, args, result):
    return {"first": result["second"] + 1, "second": result["first"]}


def halve(module, args, kwargs):
    return args, {**kwargs, "factor": kwargs["factor"] / 2}


def test_hooks_see_what_the_model_takes_and_returns():
    net, x, factor = Scaled().eval(), torch.randn(3, 2), torch.full((2,), 5.0)
    net.register_forward_hook(swap)
    net.register_forward_pre_hook(halve, with_kwargs=True)
    net.layer.register_forward_hook(lambda module, args, result: result * 2)
    program = export(net, (x,), kwargs={"factor": factor})
    assert exporters.verify(net, (torch.randn(3, 2),), program, kwargs={"factor": factor}).ok
    assert torch.equal(program(x, factor=factor)[0], x + 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_are_those_of_torchs_own_export(tmp_path):
    net, x = Scaled().eval(), torch.randn(3, 2)
    torch.onnx.export(net, (x,), tmp_path / "plain.onnx", dynamo=False, input_names=["x"])
    plain, ours = onnx.load(tmp_path / "plain.onnx").graph, export(net, (x,)).model_proto.graph
    assert {node.name for node in ours.node} >= {node.name for node in plain.node if node.op_type == "Gemm"} > set()
    assert [node.op_type for node in ours.node] == [node.op_type for node in plain.node]
    assert {item.name for item in ours.initializer} == {item.name for item in plain.initializer}


@pytest.mark.parametrize("mode", [torch.onnx.TrainingMode.EVAL, torch.onnx.TrainingMode.TRAINING], ids=str)
def test_the_model_is_in_the_mode_that_was_asked_for(mode):
    net = Scaled().train(mode is torch.onnx.TrainingMode.EVAL)
    before = net.training
    export(net, (torch.ones(3, 2),), training=mode, do_constant_folding=False)
    assert net.modes == [not before]
    assert net.training is net.layer.training is before


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return torch.nn.functional.gelu(x)
        return torch.nn.functional.gelu(-x) * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", DEPRECATED, "ignore::torch.jit.TracerWarning")
def test_a_scripted_model(model):
    exporters.register_translation(
        "aten::gelu", lambda x, *, approximate="none": exporters.opset("com.microsoft").Gelu(x)
    )
    scripted = torch.jit.script(Branching().eval())
    x = torch.randn(4)
    program = export(scripted, (x,), input_names=["x"])
    branches = next(node for node in program.model_proto.graph.node if node.op_type == "If").attribute
    assert all("Gelu" in [node.op_type for node in item.g.node] for item in branches)
    for sign in (1, -1):
        torch.testing.assert_close(program(sign * x)[0], scripted(sign * x))


class Biased(torch.nn.Module):
    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.linear(x, x, bias)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", DEPRECATED)
def test_an_optional_tensor_of_a_scripted_model(model):
    exporters.register_translation(
        "aten::linear", lambda x, weight, bias=None: exporters.opset("some").Linear(x, weight, bias)
    )
    program = export(torch.jit.script(Biased().eval()), (torch.ones(2, 2), torch.ones(2)))
    (node,) = program.model_proto.graph.node
    assert list(node.input) == ["x", "x", "bias"]


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    DEPRECATED,
    "ignore:no signature found:UserWarning",  # of torch's
)
@pytest.mark.parametrize("kind", ["traced", "built in"])
def test_a_forward_without_a_signature(model, kind):
    net, x = model(torch.sin), torch.ones(2)
    program = export(torch.jit.trace(net, x) if kind == "traced" else net, (x,))
    assert [item.name for item in program.model_proto.graph.input] == ["args_0"]


class Listing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [x]
        for number in range(x.size(0)):
            found.append(x + number)
        return torch.cat(found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", DEPRECATED)
def test_a_list_that_only_a_run_tells_is_left_to_torch():
    exporters.register_translation("aten::cat", lambda tensors, dim=0: exporters.opset("some").Joined(*tensors))
    program = export(torch.jit.script(Listing().eval()), (torch.ones(2),))
    assert op_types(program)[-1] == ("", "ConcatFromSequence")


def test_shared_weights_and_modes(double):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(3, 3)
            self.second = torch.nn.Linear(3, 3)
            self.second.weight = self.first.weight
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, x):
            return double(self.second(self.dropout(self.first(x))))

    net = Tied().eval()
    program = export(net, (torch.randn(2, 3),), verify=True)
    assert "first.weight" in program.model.graph.initializers
    assert not net.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"dynamic_shapes": ({0: "batch"},)},
            "does not take dynamic_shapes; leave .*pass dynamic_axes and input_names",
        ),
        ({"report": True, "profile": True}, "does not take report, profile"),
        ({"opset_version": 21}, r"supports opset 7 to 20, not 21; leave out dynamo=False"),
    ],
)
def test_what_it_does_not_take(model, arguments, message):
    with pytest.raises(exporters.ExportError, match=message):
        export(model(lambda x: x + 1), (torch.ones(2),), **arguments)
    with pytest.raises(exporters.ExportError, match=r"takes a model's arguments as a tuple, not list; write \(x,\)"):
        export(model(lambda x: x + 1), [torch.ones(2)])


def test_a_captured_program_needs_none(model):
    captured = torch.export.export(model(lambda x: x + 1), (torch.ones(2),))
    with pytest.raises(exporters.ExportError, match="this model is an ExportedProgram; leave out dynamo=False"):
        export(captured, ())


def test_quotients_remainders_and_shifts_of_integers(model):
    x, y = torch.tensor([-7, 7, -1], dtype=torch.int16), torch.tensor([2, -2, 20], dtype=torch.int16)
    net = model(lambda x, y: (x // y, x % y, x >> y, x << y, torch.div(x, 2, rounding_mode="floor")))
    program = exporters.export(net, (x, y), dynamo=False, verbose=False)
    for got, wanted in zip(program(x, y), net(x, y), strict=True):
        assert (got.dtype, got.tolist()) == (wanted.dtype, wanted.tolist())
