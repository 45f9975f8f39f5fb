"""Which arguments of a model become inputs of the exported one, and what happens to the others."""

import functools

import pytest
import torch

import exporters
import pyops
from tests.helpers.tiers import exhaustive, first_quick

X = torch.tensor([1.0, 2.0, 3.0])


class Scaled(torch.nn.Module):
    """Takes a number and a flag beside tensors."""

    def forward(self, x, n, flag=True, *, shift=None):
        result = x * n if flag else x
        return result if shift is None else result + shift


def forms(program, path):
    """A program in all the forms that `to_onnx_inputs` reads."""
    program.save(path)
    return [program, program.model_proto, path, pyops.InferenceSession(path)]


CHANGED = "exported with n=2, which is a constant in it, but is called with n=3; export another model with that value"


def test_a_changed_number_is_refused(export, tmp_path):
    net = Scaled().eval()
    program = export(net, (X, 2))
    assert torch.equal(program(X, 2)[0], net(X, 2))
    assert torch.equal(program(X, n=2)[0], net(X, 2))
    assert torch.equal(program(X)[0], net(X, 2))
    for args, kwargs in (((X, 3), {}), ((X,), {"n": 3})):
        with pytest.raises(exporters.ExportError, match=CHANGED):
            program(*args, **kwargs)
        for form in forms(program, tmp_path / "model.onnx"):
            with pytest.raises(exporters.ExportError, match=CHANGED):
                exporters.to_onnx_inputs(form, *args, **kwargs)
    with pytest.raises(exporters.ExportError, match=CHANGED):
        exporters.verify(net, samples=[(X, 2), (X, 3)])


@pytest.mark.parametrize("arguments", [{}, {"fallback": True, "kernels": False}], ids=["kernels", "fallback"])
def test_a_changed_number_beside_what_torch_cannot_translate_is_refused(model, arguments):
    net = model(lambda x, n: torch.special.bessel_j0(x) * n)
    program = exporters.export(net, (X, 2), verbose=False, **arguments)
    with pytest.raises(exporters.ExportError, match="=2, which is a constant in it"):
        program(X, 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: torch.stack([x, x], -1).softmax(n - 2),
        lambda x, n: x * n + len(range(n)),
        exhaustive(lambda x, n: x * n if n > 1 else x),
        exhaustive(lambda x, n: x * [0.0, 1.0, 4.0, 9.0][n] * n),
        exhaustive(lambda x, n: x * {2: 4.0, 3: 9.0}[n]),
        lambda x, n: torch.nn.functional.interpolate(x[None, None], scale_factor=n) * n,
    ],
    ids=["a dimension", "a loop", "a condition", "an index", "a key", "a factor"],
)
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_a_number_that_the_graph_depends_on_is_a_constant(model, function, dynamo):
    net = model(function)
    program = exporters.export(net, (X, 2), dynamo=dynamo, verbose=False)
    torch.testing.assert_close(program(X, 2)[0], net(X, 2))
    with pytest.raises(exporters.ExportError, match=r"=2, which is a constant in it, but is called with \w+=3"):
        program(X, 3)


@pytest.mark.parametrize(("exported", "called"), [(True, False), ("sum", "mean"), (None, "mean")], ids=str)
@pytest.mark.parametrize("keyword", first_quick([True, False]), ids=["keyword", "positional"])
def test_other_values_that_change_are_refused(export, exported, called, keyword):
    class Chosen(torch.nn.Module):
        def forward(self, x, how=None):
            return x - 1 if how in (False, "mean") else x + 1

    def arguments(how):
        return ((X,), {"how": how}) if keyword else ((X, how), {})

    args, kwargs = arguments(exported)
    program = export(Chosen().eval(), args, kwargs=kwargs)
    assert torch.equal(program(*args, **kwargs)[0], X + 1)
    assert torch.equal(program(X)[0], X + 1)
    args, kwargs = arguments(called)
    message = f"exported with how={exported!r}, which is a constant in it, but is called with how={called!r}"
    with pytest.raises(exporters.ExportError, match=message):
        program(*args, **kwargs)


def test_a_number_that_the_export_did_not_have(export):
    class Default(torch.nn.Module):
        def forward(self, x, n=2):
            return x * n

    program = export(Default().eval(), (X,))
    with pytest.raises(
        exporters.ExportError, match=r"have 1 tensors and the values 5, but the model has 1 inputs \(x\); pass"
    ):
        program(X, 5)


def test_dynamic_and_constant_numbers_beside_each_other():
    net = Scaled().eval()
    dynamic = {"x": None, "n": torch.export.Dim.DYNAMIC, "flag": None}
    program = exporters.export(net, (X, 4, True), dynamic_shapes=dynamic, verbose=False)
    assert torch.equal(program(X, 7, True)[0], net(X, 7))
    with pytest.raises(exporters.ExportError, match="exported with flag=True, which is a constant"):
        program(X, 7, False)


def test_what_torchscript_leaves_out_may_change():
    class Unused(torch.nn.Module):
        def forward(self, x, unused, y):
            return x + y

    program = exporters.export(Unused().eval(), (X, X, 2 * X), dynamo=False)
    assert [item.name for item in program.model.graph.inputs] == ["x", "y"]
    assert torch.equal(program(X, 7 * X, 3 * X)[0], 4 * X)


def test_names_are_for_tensors():
    def names(*given):
        program = exporters.export(Scaled().eval(), (X, 2), kwargs={"shift": X}, dynamo=False, input_names=given)
        return [item.name for item in program.model.graph.inputs]

    assert names("a") == ["a", "shift"]
    assert names("a", "b") == ["a", "b"]


@pytest.mark.filterwarnings("ignore:.isinstance.treespec:FutureWarning")  # of torch's own
def test_a_model_of_another_exporter_takes_the_tensors(tmp_path):
    torch.onnx.export(Scaled().eval(), (X, 2), tmp_path / "model.onnx", dynamo=True, verbose=False)
    assert list(exporters.to_onnx_inputs(tmp_path / "model.onnx", X, 3)) == ["x"]


def test_a_model_whose_inputs_were_edited():
    program = exporters.export(Scaled().eval(), (X, 2), verbose=False)
    program.model.graph.inputs.pop()
    assert exporters.to_onnx_inputs(program) == {}


class Masked(torch.nn.Module):
    def forward(self, x, *, mask):
        return torch.where(mask, x, 0)


class MaskedToo(torch.nn.Module):
    def forward(self, x, scale=None, mask=None):
        return torch.where(mask, x, 0)


@pytest.mark.filterwarnings("ignore:# 'dynamic_axes' is not recommended")
@pytest.mark.parametrize("net", [Masked(), MaskedToo()], ids=["keyword-only", "default"])
@pytest.mark.parametrize("named", [True, False], ids=["kwargs", "trailing dict"])
def test_dynamic_axes_of_keyword_arguments(export, net, named):
    x, mask = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
    args, kwargs = ((x,), {"mask": mask}) if named else ((x, {"mask": mask}), None)
    axes = {"input_names": ["x", "mask"], "dynamic_axes": {"x": {0: "rows"}, "mask": {0: "rows"}}}
    program = export(net.eval(), args, kwargs=kwargs, verify=True, **axes)
    assert [str(item.shape[0]) for item in program.model.graph.inputs] == ["rows", "rows"]
    assert program(torch.ones(5, 3), mask=torch.zeros(5, 3, dtype=torch.bool))[0].shape == (5, 3)


def test_a_trailing_dict_that_is_an_argument(export):
    class Nested(torch.nn.Module):
        def forward(self, x, past):
            return x + past["key"]

    program = export(Nested().eval(), (X, {"key": 2 * X}), verify=True)
    assert torch.equal(program(X, {"key": X})[0], 2 * X)


FUNCTIONS = [exporters.export, exporters.explain, exporters.verify]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("args", [{X}, [X]], ids=["set", "list"])
def test_arguments_are_a_tuple(function, args):
    message = rf"^{function.__name__} takes a model's arguments as a tuple, not \w+; write \(x,\)$"
    with pytest.raises(exporters.ExportError, match=message):
        function(torch.nn.ReLU().eval(), args)


def test_one_tensor_needs_no_tuple(model):
    net = model(lambda x: x + 1)
    for dynamo in (True, False):
        program = exporters.export(net, X, dynamo=dynamo, verbose=False)
        assert torch.equal(program(X)[0], X + 1)
    assert exporters.verify(net, X).ok
    assert exporters.verify(net, program=program, samples=[X, (X,)]).ok
    assert [item.operator for item in exporters.explain(net, X)] == ["aten::add.Tensor"]


@pytest.mark.parametrize("function", [*FUNCTIONS, functools.partial(exporters.export, dynamo=False)])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.nn.ReLU, r"not the class ReLU; write ReLU\(\.\.\.\)$"),
        (torch.relu, "not a builtin_function_or_method; write a subclass of torch.nn.Module whose forward calls it$"),
    ],
)
def test_what_is_no_model(function, given, message):
    with pytest.raises(exporters.ExportError, match=f"takes an instance of torch.nn.Module or .*, {message}"):
        function(given, (X,))


@pytest.mark.parametrize("argument", ["dynamic_axes", "dynamic_shapes"])
@pytest.mark.parametrize("names", [{0: "0", 2: "2"}, {0: "7", 2: "b"}], ids=str)
def test_a_dimension_may_have_digits_for_a_name(model, argument, names):
    net, x = model(lambda x: x + 1), torch.randn(2, 3, 4)
    shapes = {"input": names} if argument == "dynamic_axes" else (names,)
    program = exporters.export(net, (x,), input_names=["input"], verbose=False, **{argument: shapes})
    (item,) = program.model_proto.graph.input
    assert [dim.dim_param or dim.dim_value for dim in item.type.tensor_type.shape.dim] == [names[0], 3, names[2]]
    assert exporters.verify(net, samples=[(x,), (torch.randn(5, 3, 6),)], program=program).ok


@pytest.mark.parametrize("flag", [True, 3, None])
def test_names_of_dimensions_stay_beside_arguments_that_are_no_tensors(model, flag):
    net = model(lambda x, flag=True, y=None: x + 1 if flag else x - y["a"])
    args = (torch.ones(3, 4), flag, {"a": torch.ones(3, 4)})
    program = exporters.export(net, args, dynamic_shapes=({0: "rows"}, None, {"a": {0: "rows"}}), verbose=False)
    sizes = [[dim.dim_param for dim in item.type.tensor_type.shape.dim] for item in program.model_proto.graph.input]
    assert sizes[0] == ["rows", ""]
