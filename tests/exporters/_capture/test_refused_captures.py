"""Captures that are refused: the error says the line of the model, the reason and the fix."""

import pytest
import torch

import exporters
from exporters import ExportError
from tests.exporters._capture import capture_models as models
from tests.exporters._capture.capture_models import Affine
from tests.helpers.tiers import exhaustive

X = torch.tensor([[0.1, 0.2, 0.3], [0.9, 0.5, 0.6]])

VALUES = [
    pytest.param(models.if_on_a_sum, (X,), {}, 'capture="auto" specializes such values', id="if on a sum"),
    pytest.param(models.loop_over_an_item, (X, torch.tensor(3)), {}, "pass sizes as arguments", id="loop over item()"),
    pytest.param(models.checked_distribution, (X,), {}, "pass validate_args=False", id="checked distribution"),
    exhaustive(models.while_on_a_sum, (X,), {}, "depends on values", id="while"),
    exhaustive(models.if_on_a_buffer, (X,), {"flag": torch.tensor(True)}, "depends on values", id="if on a buffer"),
]


@pytest.mark.parametrize(("function", "args", "buffers", "hint"), VALUES)
def test_a_failure_names_the_line_and_the_fix(function, args, buffers, hint, capfd):
    with pytest.raises(
        ExportError, match=r"^torch.export cannot capture the model at .*capture_models.py:\d+: "
    ) as caught:
        exporters.export(Affine(function, **buffers), args, verbose=False)
    message = str(caught.value)
    assert hint in message
    assert len(message.splitlines()) <= 10
    assert "forward(" not in message
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


@pytest.mark.parametrize("capture", ["export", "auto"])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": {0: "n"}}, r"has the keys z, but the model's arguments are x; give each of them an entry, None where"),
        ((None, None), r"has 2 items; expected 1, because the arguments are x"),
        (({5: "n"},), r"dimension 5 of x, but x has shape \[2, 3\]"),
        ((("n",),), r"dynamic_shapes of x has 1 items; expected 2, because x has shape \[2, 3\]"),
        (("n",), r"'n' for x; expected a dict such as \{0: \"batch\"\}, or None \(x has shape \[2, 3\]\)"),
        ("n", r"dynamic_shapes is 'n'; expected a dict by the names of the model's arguments, or a tuple"),
    ],
)
def test_dynamic_shapes_of_what_there_is_not(shapes, message, capture, model):
    with pytest.raises(ExportError, match=message):
        exporters.export(model(lambda x: x), (X,), dynamic_shapes=shapes, capture=capture, verbose=False)


def test_nested_dynamic_shapes_of_what_there_is_not(model):
    def export(shapes):
        return exporters.export(
            model(lambda x: x[0] + x[1]["y"]), ([X, {"y": X}],), dynamic_shapes=(shapes,), verbose=False
        )

    with pytest.raises(ExportError, match=r"dynamic_shapes of x has 1 items; expected 2, because it has 2 items"):
        export([None])
    with pytest.raises(ExportError, match=r"dynamic_shapes of x\[1\] has the keys z, but its keys are y"):
        export([None, {"z": None}])
    with pytest.raises(ExportError, match=r"has \{0: 'n'\} for x, a list of 2 items; expected a list with an entry"):
        export({0: "n"})


def test_a_size_that_the_model_fixes(model):
    with pytest.raises(ExportError, match=r"inferred a static shape of 3 (.|\n)*leave the dimension out") as caught:
        exporters.export(
            model(lambda x: x + torch.ones(3)),
            (X,),
            dynamic_shapes=({1: torch.export.Dim.DYNAMIC},),
            verbose=False,
        )
    assert 'capture="auto"' not in str(caught.value)


def test_the_lines_that_ask_for_a_size_that_the_model_fixes(model):
    def forward(x):
        count = 0
        while count < x.shape[0]:
            count += 1
        return x + count

    message = r"specializes that size(.|\n)*asks for sizes here: .*refused_captures.py:\d+: while count < x.shape\[0\]:"
    with pytest.raises(ExportError, match=message):
        exporters.export(model(forward), (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False)


@pytest.mark.parametrize("capture", ["export", "auto"])
@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (lambda x: x.narrow("a", 0, 1), (X,), r"\n  TypeError: narrow\(\) received an invalid .*$"),
        (lambda x: torch.ops.aten.relu(x, 2), (X,), r"\n  RuntimeError: .* expected at most 1 argument"),
        (lambda x: torch.mm(x, x), (X,), r"\n  RuntimeError: .*"),
        (lambda x: x + torch.ones(3, device="meta"), (X,), r"\n  .*device meta.*|\n  .*cpu and meta.*"),
        (lambda x, y: x, (X,), r"^the model's forward\(x, y\) does not take .* example arguments: missing .* 'y'$"),
        (lambda x: x, (X, X), r"^the model's forward\(x\) does not take the example arguments: too many .*$"),
        (
            lambda x: x + 1,
            (X.numpy(),),
            r"^the example arguments contain a NumPy array; pass torch.from_numpy\(array\)$",
        ),
    ],
    ids=["kind", "count of a call", "shape", "device", "too few", "too many", "array"],
)
def test_an_error_that_no_capture_avoids(model, function, args, message, capture):
    with pytest.raises(ExportError, match=message) as caught:
        exporters.export(model(function), args, capture=capture, verbose=False)
    assert "capture=" not in str(caught.value)


@pytest.mark.parametrize("file", ["<stdin>", "<ipython-input-1-abc>", "<python-input-0>"])
def test_a_failure_names_the_line_in_a_shell(file, model):
    source = "def function(x):\n    if x.sum() > 0:\n        return x\n    return -x"
    names = {}
    exec(compile(source, file, "exec"), names)
    with pytest.raises(ExportError, match=f"cannot capture the model at {file}:2: "):
        exporters.export(model(names["function"]), (X,), verbose=False)


def test_no_line_of_a_library_is_named_for_the_model():
    with pytest.raises(ExportError, match=r"^torch.export cannot capture the model\n"):
        exporters.export(torch.nn.Linear(4, 3).eval(), (X,), verbose=False)


def test_a_container_that_is_no_tree():
    class Linked:
        def __init__(self) -> None:
            self.value, self.own = X, self

    with pytest.raises(ExportError, match=r"Unsupported input type.*\n  register the class as a pytree: torch.export"):
        exporters.export(Affine(lambda model, linked: linked.value + 1), (Linked(),), verbose=False)


@pytest.mark.parametrize("capture", ["export", "auto", "trace"])
def test_what_the_model_raises_is_told_with_its_line(capture):
    def function(model, x):
        raise KeyError("of the model")

    with pytest.raises(
        ExportError, match=r"test_refused_captures.py:\d+: raise KeyError.*\n  KeyError: 'of the model'$"
    ) as caught:
        exporters.export(Affine(function), (X,), capture=capture, verbose=False)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("function", [exporters.export, exporters.explain])
def test_an_unknown_way_of_capturing(function):
    with pytest.raises(ExportError, match='capture is \'draft\'; expected "export", "trace" or "auto"'):
        function(torch.nn.ReLU(), (X,), capture="draft")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dynamo": False, "capture": "auto"}, "leave out dynamo=False"),
        ({"guards": True}, 'pass capture="auto" or capture="trace"'),
    ],
)
def test_arguments_that_exclude_each_other(arguments, message):
    with pytest.raises(ExportError, match=message):
        exporters.export(torch.nn.ReLU(), (X,), verbose=False, **arguments)


def test_a_captured_program_is_not_captured_again():
    program = torch.export.export(torch.nn.ReLU(), (X,))
    for arguments in ({"capture": "trace"}, {"capture": "auto", "guards": True}):
        with pytest.raises(ExportError, match="is an ExportedProgram already"):
            exporters.export(program, verbose=False, **arguments)
    assert exporters.export(program, verbose=False, capture="auto", verify=True).decisions == ()
