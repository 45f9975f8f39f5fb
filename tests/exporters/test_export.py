"""Models with declared ops, exported and run."""

from typing import NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx.defs import OpSchema
from onnxscript.values import Op as OnnxOp
from onnxscript.values import Opset
from torch.onnx.testing import assert_onnx_program

import exporters
import pyops
from pyops import onnx_op, shapes
from pyops.errors import RedeclarationWarning
from tests.exporters.declared import same
from tests.helpers.tiers import exhaustive, first_quick

T = TypeVar("T", np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
BATCH = ({0: torch.export.Dim("batch")},)


def register(function, op_type, shape_function=same, version=1):
    op = onnx_op(op_type, version=version)(function)
    op.register_shape_inference(shape_function)
    return exporters.custom_op(op, op_type.lower())


def dynamo_export(module, args, **arguments):
    return exporters.export(module, args, **{"verbose": False, **arguments})


def nodes(program, domain):
    return [node for node in program.model_proto.graph.node if node.domain == domain]


def attributes(node):
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


@pytest.fixture
def torch_add_round():
    def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
        return np.round(x + x, decimals)

    return register(add_round, "export::AddRound")


@pytest.mark.parametrize("optimize", [True, False])
def test_round_trip(export, torch_add_round, model, optimize, tmp_path):
    net = model(lambda x: torch_add_round(x + 1, decimals=2))
    x = torch.randn(4, 3)
    path = tmp_path / "model.onnx"
    program = export(net, (x,), path, optimize=optimize)
    (node,) = nodes(program, "export")
    assert (node.op_type, attributes(node)) == ("AddRound", {"decimals": 2})
    onnx.checker.check_model(program.model_proto)
    expected = net(x).numpy()
    for source in (program, program.model_proto, path):
        session = pyops.InferenceSession(source)
        np.testing.assert_array_equal(session.run(None, {"x": x.numpy()})[0], expected)


def test_the_program_runs(export, torch_add_round, model):
    net = model(lambda x: torch_add_round(x, decimals=2))
    x = torch.randn(4, 3)
    program = export(net, (x,))
    assert isinstance(program, torch.onnx.ONNXProgram)
    assert torch.equal(program(x)[0], net(x))
    program.release()
    assert torch.equal(program(x)[0], net(x))


def test_other_batch_than_exported(torch_add_round, model):
    net = model(lambda x: torch_add_round(x) * 2)
    program = dynamo_export(net, (torch.randn(4, 3),), dynamic_shapes=BATCH)
    assert program.model_proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    x = torch.randn(9, 3)
    assert torch.equal(program(x)[0], net(x))


@pytest.mark.parametrize("function", first_quick([torch.abs, torch.sum, torch.prod]), ids=lambda item: item.__name__)
def test_a_result_in_float16_that_torch_computes_in_float32_is_float16(function, model):
    module, x = model(lambda x: function(x)), torch.rand(3, 4).half()
    program = exporters.export(module, (x,), verbose=False)
    assert exporters.verify(module, (x,), program).ok
    assert program(x)[0].dtype == torch.float16


@pytest.mark.parametrize("dtype", first_quick([torch.bfloat16, torch.float16, torch.float64]), ids=str)
def test_models_of_other_dtypes(export, torch_add_round, model, dtype):
    net = model(lambda x: torch_add_round(x.transpose(0, 1)))
    x = torch.tensor([[0.5, 1.25, -3.0]], dtype=dtype)
    (result,) = export(net, (x,))(x)
    assert result.dtype is dtype
    assert torch.equal(result, net(x))


class Moments(NamedTuple):
    mean: NDArray[np.float32]
    deviation: NDArray[np.float64]


def test_several_outputs(export, model):
    def moments(x: NDArray[np.float32]) -> Moments:
        return Moments(x.mean(0), x.std(0).astype(np.float64))

    def shape(x):
        return x.like(shape=x.shape[1:]), x.like(shape=x.shape[1:], dtype=np.float64)

    torch_moments = register(moments, "export::Moments", shape)
    net = model(lambda x: torch_moments(x))
    x = torch.randn(5, 3)
    program = export(net, (x,))
    assert [item.type.tensor_type.elem_type for item in program.model_proto.graph.output] == [1, 11]
    assert all(map(torch.equal, program(x), net(x)))
    second = model(lambda x: torch_moments(x)[1])
    assert torch.equal(export(second, (x,))(x)[0], net(x)[1])


def test_optional_input(export, model):
    def blend(
        x: NDArray[np.float32], low: NDArray[np.float32] | None = None, high: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        return x + (0 if low is None else low) + (0 if high is None else 10 * high)

    torch_blend = register(blend, "export::Blend")
    x, y = torch.ones(2), torch.full((2,), 2.0)
    for call, names in [
        (lambda x, y: torch_blend(x + y), 1),
        (lambda x, y: torch_blend(x, y), 2),
        (lambda x, y: torch_blend(x, None, y), 3),
        (lambda x, y: torch_blend(x, high=y), 3),
        (lambda x, y: torch_blend(x, y, y), 3),
    ]:
        program = export(model(call), (x, y))
        (node,) = nodes(program, "export")
        assert len(node.input) == names
        assert torch.equal(program(x, y)[0], call(x, y))


def test_variadic_input_and_output(export, model):
    def pile(first: NDArray[T], *rest: NDArray[T]) -> NDArray[T]:
        return np.stack([first, *rest])

    def split(x: NDArray[T]) -> tuple[NDArray[T], ...]:
        return tuple(x)

    torch_pile = register(pile, "export::Pile", lambda first, *rest: first.like(shape=(1 + len(rest), *first.shape)))
    torch_split = register(
        split, "export::Split", lambda x: tuple(x.like(shape=x.shape[1:]) for _ in range(x.shape[0]))
    )
    net = model(lambda x, y: torch_split(torch_pile(x, [y, x])))
    x, y = torch.randn(2), torch.randn(2)
    program = export(net, (x, y))
    assert [(len(node.input), len(node.output)) for node in nodes(program, "export")] == [(3, 1), (1, 3)]
    assert all(map(torch.equal, program(x, y), (x, y, x)))


def test_variadic_input_of_mixed_types(export, model):
    def widths(*xs: NDArray[np.generic]) -> NDArray[np.int64]:
        return np.array([x.itemsize for x in xs])

    torch_widths = register(widths, "export::Widths", lambda *xs: xs[0].like(shape=(len(xs),), dtype=np.int64))
    args = (torch.ones(1), torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.int16))
    program = export(model(lambda *xs: torch_widths(list(xs))), args)
    assert program(*args)[0].tolist() == [4, 8, 2]


def test_every_attribute_kind(export, model):
    def kinds(
        x: NDArray[np.float32],
        *,
        i: int,
        f: float = 0.1,
        s: str = "text",
        b: bool = True,
        ints: list[int] = [1, -2],  # noqa: B006
        floats: list[float] = [0.5],  # noqa: B006
        strings: list[str] = ["a", "b"],  # noqa: B006
        maybe: int | None = None,
        table: np.ndarray = np.arange(3.0),  # noqa: B008
    ) -> NDArray[np.float32]:
        text = repr((i, f, s, b, ints, floats, strings, maybe, table.tolist()))
        return np.frombuffer(text.encode().ljust(400), np.uint8).astype(np.float32)

    torch_kinds = register(kinds, "export::Kinds", lambda x, **_: x.like(shape=(400,)))
    x = torch.zeros(1)
    given = {"i": 2**62, "f": 1 / 3, "s": "ä\n", "b": False, "ints": [], "floats": [0.1, 2], "strings": [], "maybe": -1}
    for call in (lambda x: torch_kinds(x, i=3), lambda x: torch_kinds(x, **given)):
        program = export(model(call), (x,))
        assert torch.equal(program(x)[0], call(x))
    found = attributes(nodes(program, "export")[0])
    assert found["f"] == np.float32(1 / 3)
    assert found["b"] == 0
    assert (list(found["ints"]), list(found["strings"])) == ([], [])
    assert onnx.numpy_helper.to_array(found["table"]).tolist() == [0, 1, 2]


def test_defaults_are_written_onto_the_node(export, torch_add_round, model):
    (node,) = nodes(export(model(lambda x: torch_add_round(x)), (torch.ones(2),)), "export")
    assert attributes(node) == {"decimals": 0}


def test_runtime_output_shape(model):
    def unique(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.unique(x)

    torch_unique = register(unique, "export::Unique", lambda x: x.like(shape=(shapes.new_dim(),)))
    program = dynamo_export(model(lambda x: torch_unique(x) * 2), (torch.tensor([1.0, 2.0, 1.0]),))
    assert program(torch.tensor([3.0, 3.0, 3.0]))[0].tolist() == [6.0]
    assert program(torch.tensor([3.0, 1.0, 2.0]))[0].tolist() == [2.0, 4.0, 6.0]


def test_a_kernels_exception_is_itself(model):
    def broken(x: NDArray[np.float32]) -> NDArray[np.float32]:
        raise LookupError("as itself")

    torch_broken = register(broken, "export::Broken")
    program = dynamo_export(model(lambda x: torch_broken(x)), (torch.ones(1),))
    with pytest.raises(LookupError, match="as itself"):
        program(torch.ones(1))


def test_redefinition(export, torch_add_round, model):
    def subtract(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
        return x - y

    x = torch.ones(2)
    before = export(model(lambda x: torch_add_round(x)), (x,))
    assert before(x)[0].tolist() == [2, 2]
    with pytest.warns(RedeclarationWarning, match=r"subtract .*previously .*add_round "):
        op = onnx_op("export::AddRound")(subtract)
    op.register_shape_inference(same)
    with pytest.raises(exporters.ExportError, match=r"declared again with another signature.*exporters.custom_op"):
        export(model(lambda x: torch_add_round(x)), (x,))
    again = exporters.custom_op(op, "export::addround")
    assert export(model(lambda x: again(x * 3, x)), (x,))(x)[0].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda op, x: op(x, count=x.shape[0]), "count"),
        (lambda op, x: op(x, scale=x.shape[0] * 0.5), "scale"),
        (lambda op, x: op(x, axes=[0, x.shape[0]]), "axes"),
        (lambda op, x: op(x, twice=x.shape[0] > 3), "twice"),
    ],
)
@pytest.mark.parametrize("dim", first_quick([torch.export.Dim("batch"), torch.export.Dim.AUTO]), ids=["named", "auto"])
def test_a_size_cannot_be_an_attribute(model, call, name, dim):
    def sized(
        x: NDArray[np.float32],
        *,
        count: int = 1,
        scale: float = 1.0,
        axes: list[int] | None = None,
        twice: bool = False,
    ) -> NDArray[np.float32]:
        return x * count * np.float32(scale) * (1 + twice)

    torch_sized = register(sized, "export::Sized")
    net = model(lambda x: call(torch_sized, x))
    message = f"export::Sized: attribute '{name}' is computed in the model.*make {name} an input"
    with pytest.raises(exporters.ExportError, match=message):
        dynamo_export(net, (torch.ones(4, 2),), dynamic_shapes=({0: dim},))
    x = torch.ones(4, 2)
    assert torch.equal(dynamo_export(net, (x,))(x)[0], net(x))


def test_a_size_in_a_captured_program_cannot_be_an_attribute(model):
    def scaled(x: NDArray[np.float32], *, scale: float) -> NDArray[np.float32]:
        return x * np.float32(scale)

    torch_scaled = register(scaled, "export::Scaled")
    net = model(lambda x: torch_scaled(x, scale=x.shape[0] * 0.5))
    captured = torch.export.export(net, (torch.ones(4, 2),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    with pytest.raises(exporters.ExportError, match="attribute 'scale' is computed in the model"):
        dynamo_export(captured, ())


def test_a_captured_program(torch_add_round, model):
    x = torch.randn(2, 3)
    captured = torch.export.export(model(lambda x: torch_add_round(x)), (x,))
    assert torch.equal(dynamo_export(captured, ())(x)[0], torch_add_round(x))


def test_a_table_given_here_wins(export, torch_add_round, model):
    schema = OpSchema(
        "AddRound",
        "export",
        1,
        inputs=[OpSchema.FormalParameter("x", "tensor(float)")],
        outputs=[OpSchema.FormalParameter("y", "tensor(float)")],
        attributes=[OpSchema.Attribute("decimals", OpSchema.AttrType.INT)],
    )

    def mine(x, *, decimals=0):
        return OnnxOp(Opset("export", 1), "AddRound", schema)(x, decimals=1)

    table = {torch.ops.export.addround.default: mine}
    x = torch.tensor([0.1234])
    program = export(model(lambda x: torch_add_round(x, decimals=3)), (x,), custom_translation_table=table)
    assert attributes(nodes(program, "export")[0]) == {"decimals": 1}


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec:FutureWarning")  # torch's own, in its export
def test_translation_table_with_torchs_own_export(torch_add_round, model):
    table = exporters.translation_table()
    assert torch.ops.export.addround.default in table
    x = torch.randn(3)
    program = torch.onnx.export(
        model(lambda x: torch_add_round(x)), (x,), custom_translation_table=table, verbose=False
    )
    program.initialize_inference_session(pyops.InferenceSession)
    assert torch.equal(program(x)[0], torch_add_round(x))


def test_keyword_arguments_and_names(export, torch_add_round, model):
    net = model(lambda x, *, y: {"sum": torch_add_round(x) + y})
    x, y = torch.ones(2), torch.full((2,), 5.0)
    program = export(net, (x,), kwargs={"y": y}, input_names=["a", "b"], output_names=["c"])
    assert [item.name for item in program.model_proto.graph.input] == ["a", "b"]
    assert [item.name for item in program.model_proto.graph.output] == ["c"]
    assert program(x, y=y)[0].tolist() == [7, 7]


def test_verify_while_exporting(export, torch_add_round, model):
    x = torch.randn(3)
    export(model(lambda x: torch_add_round(x)), (x,), verify=True)

    def drifting(x: NDArray[np.float32]) -> NDArray[np.float32]:
        calls.append(0)
        return x + np.float32(len(calls))

    calls: list[int] = []
    torch_drifting = register(drifting, "export::Drifting")
    with pytest.raises(exporters.ExportError, match=r"does not compute what the torch model does\n.*differ in 1 of 1"):
        export(model(lambda x: torch_drifting(x)), (x,), verify=True)


def test_verifying_a_model_without_inputs(model):
    (result,) = dynamo_export(model(lambda: torch.ones(2)), (), verify=True)()
    assert result.tolist() == [1, 1]


def test_pruned_copies_of_one_node(torch_add_round, model):
    net = model(lambda x: torch_add_round(x) - torch_add_round(x) + torch_add_round(x, decimals=1))
    x = torch.randn(3)
    assert torch.equal(dynamo_export(net, (x,))(x)[0], net(x))


def test_what_torch_says_of_an_argument_is_as_it_is(model):
    with pytest.raises(ValueError, match=r"Input names cannot be duplicated: \['a'\]") as caught:
        dynamo_export(model(lambda x, y: x + y), (torch.ones(2), torch.ones(2)), input_names=["a", "a"], kernels=False)
    assert caught.value.__context__ is None  # torch was asked once


def test_a_report_on_a_capture_that_fails(model, tmp_path):
    module = model(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(exporters.ExportError, match="cannot capture the model"):
        exporters.export(module, (torch.ones(3),), report=True, artifacts_dir=tmp_path / "reports")
    (report,) = (tmp_path / "reports").iterdir()
    assert report.name.endswith("_pt_export.md")
    assert "the model's Python code depends on values" in report.read_text()


def test_the_program_takes_the_models_arguments(export, torch_add_round, model):
    net = model(lambda x, n, pair, *, y: torch_add_round(x) * n + pair[1] - y)
    x, args = torch.randn(2), (torch.randn(2), 3, (None, torch.randn(2)))
    program = export(net, args, kwargs={"y": x})
    assert torch.equal(program(*args, y=x)[0], net(*args, y=x))
    message = r"have 1 tensors, but the model has [34] inputs \(x, (n, )?pair_1.*, y\)"
    with pytest.raises(exporters.ExportError, match=message):
        program(args[0])


@pytest.mark.parametrize("returned", [3, exhaustive(True), exhaustive(0.5), [1, {"a": False}]], ids=str)
def test_numbers_among_the_results(export, model, returned):
    net, x = model(lambda x: {"sum": x + 1, "number": returned, "none": None, "size": x.shape[0]}), torch.ones(3)
    program = export(net, (x,), verify=True)
    expected = [array.dtype for array in exporters.to_onnx_outputs(net(x))]
    assert [array.dtype for array in exporters.to_onnx_outputs(program(x))] == expected


def test_a_number_alone_is_a_result(export, model):
    assert export(model(lambda x: 3), (torch.ones(3),))(torch.ones(3)) == (torch.tensor(3),)


@pytest.mark.parametrize(
    ("returned", "arguments"), [("text", {"fallback": True}), ("text", {"kernels": False}), exhaustive("text", {})]
)
def test_what_no_model_returns(model, returned, arguments):
    message = rf"the model returns a {type(returned).__name__}, .*return torch\.tensor\(...\) of it, or leave it out"
    with pytest.raises(exporters.ExportError, match=message):
        dynamo_export(model(lambda x: (x + 1, returned)), (torch.ones(3),), **arguments)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x: x * 2, {}),
        exhaustive(lambda x: x * 2, {"kernels": False}),
        (lambda x: (torch.lgamma(x), 3), {}),
        (lambda x: torch.special.bessel_j0(x), {"fallback": True, "kernels": False}),
    ],
    ids=["plain", "without kernels", "number", "fallback"],
)
def test_torchs_own_assertion_takes_the_program(model, function, arguments):
    program = dynamo_export(model(function), (torch.rand(3),), **arguments)
    assert_onnx_program(program)
    assert_onnx_program(program, args=(torch.rand(3),))


class Spectral(torch.nn.Module):
    """Writes a complex parameter, which needs a gradient, into a slice."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, x):
        padded = torch.zeros(6, dtype=torch.complex64)
        padded[:4] = self.weight * x
        return torch.view_as_real(padded)


def test_what_stops_an_export_is_the_same_with_gradients_and_without():
    net, x, messages = Spectral().eval(), torch.ones(4), []
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            try:
                messages.append(str(dynamo_export(net, (x,), kernels=False).model.graph))
            except exporters.ExportError as error:
                messages.append(str(error))
            assert exporters.explain(net, (x,)).problem == ""
    assert messages[0] == messages[1]


class Biased(torch.nn.Module):
    """Attention with a bias that is learned for each distance, as in T5."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(16, 16)
        self.biases = torch.nn.Embedding(9, 2)

    def forward(self, x):
        query = self.project(x).view(2, 5, 2, 8).transpose(1, 2)
        places = torch.arange(5)
        bias = self.biases(places[None, :] - places[:, None] + 4).permute(2, 0, 1).unsqueeze(0)
        found = torch.nn.functional.scaled_dot_product_attention(query, query, query, bias, scale=1.0)
        return found.transpose(1, 2).reshape(2, 5, 16)


@pytest.mark.parametrize("fallback", [False, True])
def test_attention_with_a_permuted_bias(fallback):
    net, x = Biased().eval(), torch.randn(2, 5, 16)
    program = exporters.export(net, (x,), fallback=fallback, verbose=False)
    assert program.fallbacks == ()
    assert exporters.verify(net, (x,), program).ok


@pytest.mark.parametrize(("opset_version", "fused"), [(18, False), (23, True)])
def test_attention_is_one_node_where_onnx_has_it(model, opset_version, fused):
    net = model(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x))
    x = torch.randn(1, 2, 4, 8)
    program = exporters.export(net, (x,), opset_version=opset_version, verbose=False)
    assert ([node.op_type for node in program.model.graph] == ["Attention"]) == fused
    assert exporters.verify(net, (x,), program).ok


@pytest.mark.parametrize("opset_version", [0, 99])
def test_an_opset_that_onnx_lacks_is_refused_without_nodes_of_onnx_too(opset_version):
    @pyops.onnx_op("tests::Alone")
    def alone(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    alone.register_shape_inference(lambda x: x)
    op = exporters.custom_op(alone, "tests::alone_op")

    class Alone(torch.nn.Module):
        def forward(self, x):
            return op(x)

    with pytest.raises(exporters.ExportError, match=f"{opset_version}.*opset_version"):
        exporters.export(Alone().eval(), (torch.ones(2),), opset_version=opset_version)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("inputs", [None, ["a", "b"]])
@pytest.mark.parametrize("outputs", [None, ["c", "d", "e", "f", "g"]])
def test_an_input_that_is_returned_keeps_its_name(inputs, outputs, optimize):
    class Passing(torch.nn.Module):
        def forward(self, x, y):
            z = x + y
            return x.contiguous(), z, y.mean(dim=0), y, z

    model, given = Passing().eval(), (torch.tensor([1.0, 2.0]), torch.tensor(3.0))
    program = exporters.export(model, given, input_names=inputs, output_names=outputs, optimize=optimize, verbose=False)
    names = inputs or ["x", "y"]
    assert [item.name for item in program.model.graph.inputs] == names
    assert outputs is None or [item.name for item in program.model.graph.outputs] == outputs
    found = pyops.InferenceSession(program).run(None, dict(zip(names, map(np.asarray, given), strict=True)))
    for actual, expected in zip(found, model(*given), strict=True):
        np.testing.assert_array_equal(actual, expected.numpy())
    if inputs is None:
        assert exporters.verify(model, (), program, kwargs={"x": given[0] + 1, "y": given[1]}).ok
