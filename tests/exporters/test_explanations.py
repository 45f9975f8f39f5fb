"""Errors of torch come out as an explanation with the fix, and the original as its cause."""

import re

import numpy as np
import onnx
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnx.defs import OpSchema
from onnxscript import opset18 as op18

import exporters
import pyops
from exporters._lowering import translations
from exporters._lowering.lower import causes
from pyops import onnx_op
from pyops.errors import ModelError
from tests.helpers.tiers import exhaustive

F32 = NDArray[np.float32]


@onnx_op("explained::Twice")
def twice(x: F32) -> F32:
    return x + x


@twice.register_shape_inference
def _(x):
    return x


torch_twice = exporters.custom_op(twice, "explained::twice")


@pytest.fixture(autouse=True)
def _own_registrations(monkeypatch):
    monkeypatch.setattr(translations, "_translations", dict(translations._translations))


@pytest.fixture(params=[True, False], ids=["dynamo", "torchscript"])
def dynamo(request):
    return request.param


def export(module, **arguments):
    return exporters.export(module, (torch.ones(2),), verbose=False, **arguments)


def refusal(model, function, **arguments):
    with pytest.raises(exporters.ExportError) as caught:
        export(model(function), **arguments)
    return caught.value


@pytest.mark.parametrize(
    ("function", "name", "outputs"),
    [
        (lambda x: torch.lgamma(x), "aten::lgamma", 1),
        (lambda x: torch.linalg.qr(x[None])[0], "aten::linalg_qr", 2),
        (lambda x: torch.ops.aten.igamma(x, x), "aten::igamma", 1),
    ],
)
def test_no_translation(model, function, name, outputs):
    error = refusal(model, function, kernels=False)
    message, line = str(error).splitlines()
    assert message == (
        f"torch's exporter has no translation for {name}, which the model calls; register one before the export: "
        f'exporters.register_translation("{name}", op), with an Op of yours or a function that calls '
        "exporters.opset(...)"
    )
    assert re.fullmatch(rf"  .*test_explanations\.py:{function.__code__.co_firstlineno}: \(lambda x: .*", line)
    exporters.register_translation(
        name, lambda *args, **kwargs: exporters.opset("some").Thing(args[0], _outputs=outputs)
    )
    assert "Thing" in {node.op_type for node in export(model(function)).model.graph}


def test_an_operator_without_a_fake(model):
    @torch.library.custom_op("explained::no_fake", mutates_args=())
    def no_fake(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    error = refusal(model, lambda x: no_fake(x))
    assert "explained::no_fake, since it has no fake implementation that gives the shape" in str(error)
    assert "exporters.custom_op(op, 'explained::no_fake')" in str(error)
    assert "There was no fake impl registered for" in str(error.__cause__)


def test_an_operator_without_a_translation(model):
    @torch.library.custom_op("explained::untranslated", mutates_args=())
    def untranslated(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    untranslated.register_fake(lambda x: torch.empty_like(x))
    error = refusal(model, lambda x: untranslated(x))
    assert 'exporters.register_translation("explained::untranslated", op)' in str(error)


def test_an_operator_that_writes_to_its_argument(model):
    @torch.library.custom_op("explained::writing", mutates_args=("x",))
    def writing(x: torch.Tensor) -> None:
        x.add_(1)

    def forward(x):
        x = x.clone()
        writing(x)
        return x

    error = refusal(model, forward)
    assert "explained::writing writes to its arguments" in str(error)


def test_a_generator(model):
    error = refusal(model, lambda x: torch.bernoulli(x, generator=torch.Generator()))
    assert str(error) == (
        "the model passes aten::bernoulli a torch.Generator, which ONNX models do not support; leave the generator out"
    )


def test_an_operator_that_the_torchscript_exporter_lacks(model):
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("some").Thing(x))
    export(model(lambda x: torch.lgamma(x)), dynamo=False)
    translations._translations.clear()  # what was registered before changes nothing
    error = refusal(model, lambda x: torch.lgamma(x), dynamo=False)
    assert str(error) == (
        "nothing translates aten::lgamma for opset 20: the TorchScript exporter has no translation of its own, and "
        "none is registered that takes this call; register one before the export: "
        'exporters.register_translation("aten::lgamma", op), or export with another opset_version'
    )
    assert "Exporting the operator 'aten::lgamma' to ONNX opset version 20 is not" in str(error.__cause__)


def test_a_schema_that_onnx_lacks(model, dynamo):
    exporters.register_translation("aten::lgamma", lambda x: onnx.defs.get_schema("Twice", 1, "explained"))
    error = refusal(model, lambda x: torch.lgamma(x), dynamo=dynamo)
    assert (
        "onnx has no schema for Twice; import the module that declares the op, and call pyops.register_schemas()"
        in str(error)
    )
    assert "No schema registered" in str(list(causes(error))[-1])


def test_an_operator_of_a_later_opset(model, dynamo):
    exporters.register_translation("aten::gelu", lambda x, *, approximate="none": exporters.opset("", 20).Gelu(x))
    error = refusal(model, lambda x: torch.nn.functional.gelu(x), opset_version=18, dynamo=dynamo)
    assert "export" in str(error)
    assert "opset_version=20" in str(error)


def test_an_operator_that_no_opset_has(model, dynamo):
    @onnxscript.script(default_opset=op18)
    def function(x):
        return op18.Twise(x)

    exporters.register_translation("aten::lgamma", function)
    error = refusal(model, lambda x: torch.lgamma(x), dynamo=dynamo)
    assert str(error).startswith("no version of ONNX has an operator Twise: a node of another domain must name")


@pytest.mark.parametrize(
    ("translation", "original", "meaning"),
    [
        (
            lambda x: exporters.opset("elsewhere").Thing(x),
            "is not a registered function/op",
            "elsewhere::Thing is not declared; import the module that declares it before creating the session",
        ),
        (
            lambda x: exporters.opset("com.microsoft").BiasGelu(None, x),
            "is marked single but has an empty string in the graph",
            "leaves out its input 0, which its operator requires; if the operator is yours, declare that input as",
        ),
    ],
)
def test_from_the_export_to_the_session(model, dynamo, translation, original, meaning):
    exporters.register_translation("aten::lgamma", translation)
    program = export(model(lambda x: torch.lgamma(x)), dynamo=dynamo)
    for run in (pyops.InferenceSession, lambda program: program(torch.ones(2))):
        with pytest.raises(ModelError) as caught:
            run(program)
        assert meaning in str(caught.value)
        assert original in str(caught.value.__cause__)


def test_what_is_not_known_is_told_with_its_line(model):
    with pytest.raises(
        exporters.ExportError, match=r"test_explanations.py:\d+: raise .*\n  ZeroDivisionError: not known$"
    ) as caught:
        export(model(of_its_own))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def of_its_own(x):
    raise ZeroDivisionError("not known")


@pytest.mark.parametrize(
    "arguments",
    [{}, {"kernels": False}, {"fallback": True}, {"dynamo": False}],
    ids=["kernels", "none", "fallback", "torchscript"],
)
def test_what_a_translation_raises_comes_out_as_itself(model, arguments):
    mine = KeyError("mine")

    def lgamma(x):
        raise mine

    exporters.register_translation("aten::lgamma", lgamma)
    with pytest.raises(KeyError) as caught:
        export(model(lambda x: torch.lgamma(x)), **arguments)
    assert caught.value is mine
    assert mine.__notes__ == ["raised by the translation of aten::lgamma"]


def test_a_question_about_data_is_explained(model):
    with pytest.raises(exporters.ExportError, match="Python code depends on values that are known only when it runs"):
        export(model(lambda x: x if x.sum() > 0 else -x))


@pytest.mark.parametrize(
    ("name", "function", "returned"),
    [
        ("aten::lgamma", lambda x: None, "None; return one value of the graph"),
        exhaustive("aten::lgamma", lambda x: 3, "3; return one value"),
        exhaustive("aten::lgamma", lambda x: np.ones(2), "ndarray; return one value"),
        ("aten::lgamma", lambda x: exporters.opset("some").Two(x, _outputs=2), "a tuple of 2; return one value"),
        ("aten::frexp.Tensor", lambda x: exporters.opset("some").One(x), "; return 2 values of the graph"),
        exhaustive(
            "aten::frexp.Tensor",
            lambda x: exporters.opset("some").Three(x, _outputs=3),
            "a tuple of 3; return 2 values",
        ),
        exhaustive(
            "aten::unbind.int", lambda x: exporters.opset("some").One(x), "; return a list of values of the graph"
        ),
        ("aten::unbind.int", lambda x: [x, None], "a list of 2; return a list of values of the graph"),
    ],
)
def test_a_translation_whose_outputs_do_not_match(model, name, function, returned, dynamo):
    exporters.register_translation(name, function)
    operators = {
        "aten::lgamma": torch.lgamma,
        "aten::frexp.Tensor": lambda x: torch.frexp(x)[0],
        "aten::unbind.int": lambda x: torch.unbind(x)[0],
    }
    error = refusal(model, lambda x: operators[name](x), dynamo=dynamo)
    assert f"the translation of {name} returned" in str(error)
    assert returned in str(error)


def test_a_misspelt_operator_in_a_translation(model):
    exporters.register_translation("aten::lgamma", lambda x: exporters.opset("explained").Twise(x))
    error = refusal(model, lambda x: torch.lgamma(x))
    assert "explained::Twise is not declared; did you mean explained::Twice?" in str(error)


def test_a_misspelt_operator_in_an_onnxscript_function():
    library = exporters.opset("explained")

    with pytest.raises(
        exporters.ExportError, match=r"explained::Twise is not declared; did you mean explained::Twice\?"
    ):

        @onnxscript.script(default_opset=op18)
        def function(x: onnxscript.FLOAT[...]) -> onnxscript.FLOAT[...]:
            return library.Twise(x)


def test_a_table_whose_nodes_do_not_fit(model):
    @onnx_op("explained::Scale")
    def scale(x: F32, *, by: float) -> F32:
        return x

    parameter = OpSchema.FormalParameter("x", "tensor(float)")
    schema = OpSchema("Scale", "explained", 1, inputs=[parameter], outputs=[parameter])

    def mine(x):
        return onnxscript.values.Op(onnxscript.values.Opset("explained", 1), "Scale", schema)(x)

    table = {torch.ops.aten.lgamma.default: mine}
    with pytest.raises(exporters.ExportError, match=r"\(explained::Scale\): attribute 'by' is missing"):
        export(model(lambda x: torch.lgamma(x)), custom_translation_table=table)
