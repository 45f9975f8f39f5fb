"""exporters.export(fallback=True): whatever the operator, the export goes through and computes what torch does."""

import dataclasses
import json
import logging
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch.onnx.verification import verify_onnx_program

import exporters
import pyops
from exporters.errors import ExportError
from pyops import onnx_op
from pyops.errors import ModelError, OutputError
from tests.exporters._fallback.fallback_db import ROWS, rand, square
from tests.helpers.scripts import run_plain_script

QUIET = {"verbose": False, "kernels": False}


@pytest.fixture
def model(model):
    """A function of any arguments as a module; torch wants to see a signature."""
    return lambda function: model(lambda *args, **kwargs: function(*args, **kwargs))


# Rows that differ from another one in the operator or its type alone, or that name an argument where it does not.
FURTHER = {
    *(
        "decomposed",
        "one of them used",
        "a str",
        "a dtype",
        "complex outputs",
        "complex inputs",
        "bfloat16",
        "covariance",
    ),
    *("one-hot", "least squares", "combinations", "complex factors", "a histogram", "equal", "close", "Gaussian"),
    *("a variance", "no dimensions"),
}
PARAMETERS = [
    pytest.param(row, id=row.name, marks=[pytest.mark.exhaustive] if row.name in FURTHER else []) for row in ROWS
]


def custom_nodes(program: exporters.Program, domain: str = "aten") -> list[onnx.NodeProto]:
    return [node for node in program.model_proto.graph.node if node.domain == domain]


@pytest.mark.filterwarnings("ignore::exporters.CaptureWarning")  # some functions fix a size
@pytest.mark.parametrize("row", PARAMETERS)
def test_it_computes_what_torch_does(row, model):
    module = model(row.function)
    dims = tuple(dict.fromkeys(range(arg.dim()), torch.export.Dim.AUTO) for arg in row.args)
    dynamic = {"dynamic_shapes": (dims,)} if row.others else {}
    program = exporters.export(module, row.args, fallback=True, **dynamic, **QUIET)
    assert tuple(sorted(item.operator for item in program.fallbacks)) == tuple(sorted(row.fallbacks))
    samples = [row.args, *([row.others] if row.others else [])]
    report = exporters.verify(module, samples=samples, program=program)
    assert report.ok, report


def test_it_is_off_by_default(model):
    with pytest.raises(ExportError, match="has no translation for aten::lgamma"):
        exporters.export(model(torch.lgamma), (rand(3),), **QUIET)


def test_nothing_falls_back_where_nothing_is_missing(model):
    program = exporters.export(model(torch.exp), (rand(3),), fallback=True, **QUIET)
    assert program.fallbacks == ()
    assert [node.op_type for node in program.model_proto.graph.node] == ["Exp"]


class Twice(torch.nn.Module):
    def forward(self, x):
        return torch.lgamma(torch.lgamma(x) + 2)  # in one line


def test_where_nothing_is_missing_it_costs_what_the_plain_export_does(model, monkeypatch):
    exports = []
    plain = torch.onnx.export
    monkeypatch.setattr(torch.onnx, "export", lambda *args, **kwargs: exports.append(1) or plain(*args, **kwargs))
    exporters.export(torch.nn.Linear(2, 2).eval(), (rand(1, 2),), fallback=True, **QUIET)
    assert exports == [1]


def test_the_program_tells_what_fell_back():
    program = exporters.export(Twice().eval(), (rand(3) + 3,), fallback=True, **QUIET)
    (found,) = program.fallbacks
    assert isinstance(found, exporters.Fallback)
    assert (found.operator, found.count, found.differences, found.error) == ("aten::lgamma", 2, (), "")
    (source,) = found.sources
    assert source.startswith(f"{__file__}:")
    assert source.endswith("return torch.lgamma(torch.lgamma(x) + 2)  # in one line")
    assert 'exporters.register_translation("aten::lgamma", op)' in found.replacement
    assert "no translation" in found.reason
    assert str(found) in repr(program)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.count = 3


def helper(x):
    return torch.lgamma(x)  # in the helper


@pytest.mark.parametrize(
    ("function", "line"),
    [(lambda x: helper(x) + 1, "in the helper"), (lambda x: torch.lgamma(x) + 1, "(lambda x: torch.lgamma(x) + 1,")],
    ids=["function", "lambda"],
)
def test_the_innermost_line_of_the_users_is_named(function, line, model):
    program = exporters.export(model(function), (rand(3),), fallback=True, **QUIET)
    ((source,),) = [item.sources for item in program.fallbacks]
    assert source.startswith(__file__)
    assert line in source


def test_a_line_that_calls_a_module_of_torch_is_named():
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LocalResponseNorm(2)

        def forward(self, x):
            return self.norm(torch.special.i1e(x))

    item = next(item for item in exporters.explain(Recurrent().eval(), (rand(1, 2, 3),)) if "pow" in item.operator)
    assert [line.partition(": ")[2] for line in item.sources] == ["return self.norm(torch.special.i1e(x))"]


def test_threads_export_one_after_the_other(model):
    module = model(lambda x: torch.linalg.inv(x) + torch.lgamma(x))

    def export(size):
        return exporters.verify(
            module, (square(size),), exporters.export(module, (square(size),), fallback=True, **QUIET)
        )

    with ThreadPoolExecutor(2) as pool:
        assert all(report.ok for report in pool.map(export, [3, 4]))


def test_names_are_readable(model):
    def function(x):
        q, r = torch.linalg.qr(x)
        return torch.linalg.inv(q) + r

    program = exporters.export(
        model(function),
        (square(3),),
        fallback=True,
        input_names=["left"],
        output_names=["sum"],
        dynamic_shapes=(({0: "rows"},),),
        **QUIET,
    )
    graph = program.model_proto.graph
    assert [node.op_type for node in graph.node] == ["linalg_qr", "linalg_inv", "Add"]
    assert [graph.node[1].output[0], graph.output[0].name] == ["linalg_inv", "sum"]
    assert graph.input[0].name == "left"
    json.loads(onnx.helper.get_node_attr_value(graph.node[0], "arguments"))


def test_complex_values_are_named_after_their_operators(model):
    program = exporters.export(model(torch.linalg.eigvals), (square(3),), fallback=True, **QUIET)
    assert [item.name for item in program.model_proto.graph.output] == ["linalg_eigvals"]


def test_a_named_dimension_stays_named(model):
    program = exporters.export(model(torch.lgamma), (rand(3),), fallback=True, dynamic_shapes=(({0: "n"},),), **QUIET)
    assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert program.model_proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"


@pytest.mark.parametrize("axes", [{0: "n"}, [0]], ids=["names", "numbers"])
def test_dynamic_axes_stay_dynamic(axes):
    class LogGamma(torch.nn.Module):
        def forward(self, x):
            return torch.lgamma(x)

    arguments = {"dynamic_axes": {"x": axes, "y": axes}, "input_names": ["x"], "output_names": ["y"], **QUIET}
    program = exporters.export(LogGamma().eval(), (rand(3),), fallback=True, **arguments)
    assert [item.operator for item in program.fallbacks] == ["aten::lgamma"]
    assert program(rand(5))[0].shape == (5,)
    assert program.model_proto.graph.input[0].name == "x"


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_equal_random_calls_are_two(model):
    program = exporters.export(
        model(lambda x: (torch._standard_gamma(x), torch._standard_gamma(x))), (rand(3) + 1,), fallback=True, **QUIET
    )
    first, second = (onnx.helper.get_node_attr_value(node, "call") for node in custom_nodes(program))
    assert first != second


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_a_model_that_writes_to_its_input(model):
    x = torch.ones(3, dtype=torch.complex64)
    program = exporters.export(model(lambda x: x.uniform_(2, 3)), (x.clone(),), fallback=True, **QUIET)
    assert [item.operator for item in program.fallbacks] == ["aten::uniform"]
    assert len(program.model.graph.outputs) == 1
    (result,) = program(x)
    assert result.shape == (3, 2)
    assert ((result >= 2) & (result < 3)).all()


def test_an_exported_program_falls_back_too(model):
    captured = torch.export.export(model(torch.lgamma), (rand(3),))
    program = exporters.export(captured, fallback=True, **QUIET)
    assert exporters.verify(captured, program=program).ok


def test_keyword_arguments(model):
    module = model(lambda x, scale: torch.lgamma(x) * scale)
    kwargs = {"scale": rand(3)}
    program = exporters.export(module, (rand(3),), fallback=True, kwargs=kwargs, **QUIET)
    assert exporters.verify(module, (rand(3),), program, kwargs=kwargs).ok


def test_intermediate_values_are_compared(model):
    module = model(lambda x: torch.exp(torch.lgamma(x)))
    program = exporters.export(module, (rand(3),), fallback=True, **QUIET)
    found = verify_onnx_program(program, (rand(3),), compare_intermediates=True)
    assert {"lgamma", "exp"} <= {item.name for item in found if item.max_abs_diff < 1e-5}


def test_a_registered_translation_goes_before(model, own_registrations):
    @exporters.register_translation("aten::lgamma")
    def lgamma(x):
        return exporters.opset("").Exp(x)

    program = exporters.export(model(lambda x: torch.erfinv(torch.lgamma(x))), (rand(3),), fallback=True, **QUIET)
    assert [item.operator for item in program.fallbacks] == ["aten::erfinv"]


def test_a_registered_translation_goes_before_a_fake_of_ours(model, own_registrations):
    @exporters.register_translation("aten::geqrf")
    def geqrf(x):
        return exporters.opset("").Exp(x), exporters.opset("").Log(x)

    module = model(lambda x: (torch.geqrf(x), torch.lgamma(x)))
    program = exporters.export(module, (rand(3, 3),), fallback=True, **QUIET)
    assert [item.operator for item in program.fallbacks] == ["aten::lgamma"]


def test_what_a_registered_translation_raises_comes_out(model, own_registrations):
    @exporters.register_translation("aten::lgamma")
    def lgamma(x):
        raise ExportError("of the user's own")

    with pytest.raises(ExportError, match="of the user's own"):
        exporters.export(model(torch.lgamma), (rand(3),), fallback=True, **QUIET)


def test_a_translation_that_leaves_a_call_leaves_it_to_the_fallback(model, own_registrations):
    exporters.register_translation("aten::lgamma", lambda x: NotImplemented)
    program = exporters.export(model(torch.lgamma), (rand(3),), fallback=True, **QUIET)
    assert [item.operator for item in program.fallbacks] == ["aten::lgamma"]


def test_a_custom_operator_falls_back(model):
    @torch.library.custom_op("fallback_tests::plus", mutates_args=())
    def plus(x: torch.Tensor, y: float) -> torch.Tensor:
        return x + y

    plus.register_fake(lambda x, y: torch.empty_like(x))
    module = model(lambda x: plus(x, 2.5))
    program = exporters.export(module, (rand(3),), fallback=True, **QUIET)
    assert [node.op_type for node in custom_nodes(program, "torch.fallback_tests")] == ["plus"]
    assert exporters.verify(module, (rand(3),), program).ok


def test_a_custom_operator_that_returns_another_layout_than_its_fake(model):
    @torch.library.custom_op("fallback_tests::thinned", mutates_args=())
    def thinned(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse()

    thinned.register_fake(torch.empty_like)
    program = exporters.export(model(lambda x: thinned(x)), (rand(3),), fallback=True, **QUIET)
    with pytest.raises(OutputError, match=r"thinned returned a tensor that is not dense \(torch.sparse_coo\)"):
        program(rand(3))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: x if x.sum() > 0 else -x,
            r"Python code depends on values that are known only when it runs.*use torch.where",
        ),
        (lambda x: torch.sparse.mm(x.to_sparse(), x), "aten::to_sparse cannot fall back: .*sparse"),
        (lambda x: torch.special.zeta(x, x.sum().item()), "cannot fall back: it takes or returns a float or a bool"),
        (
            lambda x: torch.bernoulli(x, generator=torch.Generator()),
            "passes aten::bernoulli a torch.Generator, which ONNX models do not support; leave the generator out",
        ),
    ],
    ids=["if", "sparse", "number", "generator"],
)
def test_what_cannot_be_had_says_why(function, message, model):
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ExportError, match=message):
            exporters.export(model(function), (rand(3, 3),), fallback=True, **QUIET)


def test_an_op_of_the_operators_name_is_in_the_way(model, own_registrations):
    @onnx_op("aten::lgamma")
    def lgamma(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    with pytest.raises(
        ExportError, match="aten::lgamma cannot fall back: another op is declared with its domain and name"
    ):
        exporters.export(model(torch.lgamma), (rand(3),), fallback=True, **QUIET)


def test_the_torchscript_exporter_has_none(model):
    with pytest.raises(ExportError, match="leave out dynamo=False"):
        exporters.export(model(torch.lgamma), (rand(3),), fallback=True, dynamo=False, **QUIET)


def test_another_value_is_refused(model):
    with pytest.raises(ExportError, match='expected False, True or "verify"'):
        exporters.export(model(torch.lgamma), (rand(3),), fallback="yes")


@pytest.mark.exhaustive
def test_another_process_asks_for_it(model, tmp_path):
    path = tmp_path / "model.onnx"
    exporters.export(model(torch.lgamma), (rand(3),), path, fallback=True, **QUIET)
    script = f"""
import numpy as np, pyops
from pyops.errors import ModelError
try:
    pyops.InferenceSession({str(path)!r})
except ModelError as error:
    print("exporters.register_fallback()" in str(error))
import exporters
exporters.register_fallback()
session = pyops.InferenceSession({str(path)!r})
(name,) = [item.name for item in session.get_inputs()]
print(session.run(None, {{name: np.array([3, 4], np.float32)[[0, 1, 1]]}})[0].round(3).tolist())
"""
    run_plain_script(script, "True\n[0.6930000185966492, 1.7920000553131104, 1.7920000553131104]")


def test_the_reference_evaluator_runs_it(model):
    program = exporters.export(model(torch.lgamma), (rand(3),), fallback=True, **QUIET)
    evaluator = onnx.reference.ReferenceEvaluator(program.model_proto, new_ops=pyops.reference_ops(program.model_proto))
    (name,) = evaluator.input_names
    np.testing.assert_allclose(evaluator.run(None, {name: rand(3).numpy()})[0], torch.lgamma(rand(3)), rtol=1e-5)


def test_use_fallback_names_the_namespace():
    with pytest.raises(ExportError, match="no operators in the namespace 'nonsense'"):
        exporters.register_fallback("nonsense")


def test_a_model_error_of_a_custom_namespace_names_the_call():
    node = onnx.helper.make_node("plus", ["x"], ["y"], domain="torch.nonsense")
    value = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("torch.nonsense", 1)]
    with pytest.raises(ModelError, match=r'exporters.register_fallback\("nonsense"\)'):
        pyops.InferenceSession(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10))
