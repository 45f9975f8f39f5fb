"""`verify(..., locate=True)` names the first node that computes something else than torch."""

import inspect
from typing import Any

import onnx_ir
import pytest
import torch

import exporters
from exporters.errors import ExportError
from tests.corrections.trials import used, without
from tests.exporters._library.test_wrong_translations import CASES, flat, shapes
from tests.helpers.tiers import exhaustive

pytestmark = [
    pytest.mark.usefixtures("own_registrations"),
    pytest.mark.filterwarnings("ignore"),
]

LAYERS = 18


class Long(torch.nn.Module):
    """A model of more than a hundred nodes, in the middle of which a function is called."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2 * LAYERS))

    def forward(self, x: torch.Tensor, *tensors: torch.Tensor) -> Any:
        for layer in self.layers[:LAYERS]:
            x = x + torch.tanh(layer(x))
        results = flat(self.function(*tensors))
        for layer in self.layers[LAYERS:]:
            x = x + torch.tanh(layer(x))
        return x, [item for item in results]  # noqa: C416  torch captures no list that a model returns


# In these, torch is wrong in digits that are below the tolerance, until the model divides by small numbers.
BELOW_THE_TOLERANCE = {"numbers near 0", "small shares of float64"}
WRONG = [name for name, case in CASES.items() if inspect.isfunction(case[0]) and name not in BELOW_THE_TOLERANCE]


# The stress tests have them all.
ROWS = [WRONG[0], *map(exhaustive, WRONG[8::8])]
ROWS += [pytest.param(title, marks=pytest.mark.stress) for title in WRONG if WRONG.index(title) % 8]


@pytest.mark.parametrize("title", ROWS)
def test_a_wrong_translation_is_located(title):
    """Without a row of the library, torch's own translation, which is wrong in numbers, computes the call."""
    function, args, others = CASES[title]
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    calls = [(x, *tensors) for tensors in (args, others or args)]
    dynamic = None if others is None else ({}, *shapes({"": CASES[title]}))
    for table, name in used(CASES[title]):
        model = Long(function).eval()
        with without(table, name):
            try:
                program = exporters.export(model, calls[0], dynamic_shapes=dynamic, verify=False)
                report = exporters.verify(model, None, program, samples=calls, locate=True)
            except Exception as error:  # torch's translation makes no model, or one that does not load
                print(f"{name}: {error}")
                continue
        if report.ok:  # another row or torch's translation computes this call
            continue
        assert len(program.model.graph) > 100
        first = report.location.first
        assert first is not None
        # Within the nodes of one torch call there are no values to compare, and a trace is two calls.
        nodes = [node for node in program.model.graph if node.name in first.nodes]
        calls_in_range = {node.metadata_props.get("pkg.torch.onnx.fx_node") for node in nodes}
        assert len(calls_in_range) <= 2 or len(first.nodes) <= 5
        lines, start = inspect.getsourcelines(function)
        file, line, _ = first.place.split(":", 2)
        assert file == inspect.getfile(function)
        assert start <= int(line) < start + len(lines)
        print("located", name)


def wrong_cumsum(model):
    """Return the model of a cumulative sum, and one that leaves the last element out of each sum."""
    net, args = model(lambda x: torch.relu(x).cumsum(0) * 2), (torch.tensor([1.0, 2.0, 3.0]),)
    program = exporters.export(net, args)
    node = next(node for node in program.model.graph if node.op_type == "CumSum")
    node.attributes.add(onnx_ir.AttrInt64("exclusive", 1))
    return net, args, program


def test_what_a_report_says(model):
    net, args, program = wrong_cumsum(model)
    report = exporters.verify(net, args, program, locate=True)
    assert report.location.steps == len(report.location.values)
    compared = [(item.name, item.ok) for item in report.location.values]
    assert compared == [("relu", True), ("cumsum", False), ("mul", False)]
    text = str(report)
    assert "the first wrong node is CumSum 'node_cumsum'; it comes from aten::cumsum in " in text
    assert "test_locating.py" in text
    assert "its output 'cumsum' differs in 3 of 3 elements, first at [0]: 0.0 where 1.0 is expected" in text
    assert 'instead: exporters.register_translation("aten::cumsum", ...)' in text
    assert "<polyline" in report._repr_html_()


def test_models_that_agree_have_no_wrong_node(model):
    net, args, _ = wrong_cumsum(model)
    report = exporters.verify(net, args, locate=True)
    assert report.ok
    assert report.location.first is None
    assert str(report).splitlines()[-1] == "3 of 3 values have a counterpart"


def test_rounding_is_told_from_a_mistake(model):
    """A model whose tolerances are too narrow for it has no wrong node."""
    net, args = model(lambda x: (x.exp().sin() * 1.1).tanh()), (torch.linspace(0, 3, 1000),)
    report = exporters.verify(net, args, locate=True, tolerances={torch.float32: (0, 1e-8)})
    assert not report.ok
    assert "values have a counterpart" in str(report)


def test_programs_without_a_graph_are_refused(model):
    net, args, program = wrong_cumsum(model)
    with pytest.raises(ExportError, match=r"locate=True needs what exporters\.export returned"):
        exporters.verify(net, args, program.model_proto, locate=True)
    with pytest.raises(ExportError, match="exported with dynamo=False"):
        exporters.verify(net, args, exporters.export(net, args, dynamo=False), locate=True)
