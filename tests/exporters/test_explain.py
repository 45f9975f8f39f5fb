"""`exporters.explain`: what an export would need."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch._higher_order_ops.map import map as torch_map

import exporters
from exporters._torch.single_call import SingleCall
from pyops import onnx_op
from pyops._core import satellites
from tests.helpers.tiers import exhaustive, first_quick
from tests.operator_coverage.samples import op_database, sample_inputs

pytestmark = pytest.mark.usefixtures("own_registrations")
_x = torch.eye(3) + 1


def _explained(model, function, *args, **arguments):
    return exporters.explain(model(function), args or (_x,), **arguments)


def _named(explanation):
    return [(item.operator, item.calls, item.by) for item in explanation]


def test_who_exports_what(model):
    def forward(x):
        y = torch.linalg.inv(torch.relu(x))
        return torch.linalg.inv(y) + torch.lgamma(x)

    found = _explained(model, forward, kernels=False)
    assert _named(found) == [
        ("aten::relu", 1, "torch"),
        ("aten::linalg_inv", 2, "fallback"),
        ("aten::lgamma", 1, "fallback"),
        ("aten::add.Tensor", 1, "torch"),
    ]
    relu, inverse, lgamma, _ = found
    assert (relu.reason, lgamma.reason) == ("", "torch's exporter has no translation")
    assert inverse.reason == "torch decomposes it into aten::linalg_inv_ex, for which its exporter has no translation"
    assert [source.partition(": ")[2] for source in inverse.sources] == [
        "y = torch.linalg.inv(torch.relu(x))",
        "return torch.linalg.inv(y) + torch.lgamma(x)",
    ]
    assert found.verdict == "export(..., fallback=True) lets torch run aten::linalg_inv, aten::lgamma"


def test_the_kernel_library(model):
    def forward(x):
        y = torch.diagonal_scatter(x, x[0])  # at which torch's exporter stops by itself
        return torch.linalg.cond(x) + torch.lgamma(y) + torch.cov(x), torch.special.bessel_j0(x)

    found = {item.operator: (item.by, item.reason) for item in _explained(model, forward)}
    assert found["aten::linalg_cond"] == ("kernel", "torch decomposes it into aten::_linalg_svd")
    assert {found[f"aten::{name}"] for name in ("diagonal_scatter", "lgamma", "cov", "special_bessel_j0")} == {
        ("kernel", "ops of pyops.kernels")
    }
    assert found["aten::add.Tensor"] == ("torch", "")


def test_a_constant_that_torch_makes_others_of(model):
    found = _explained(model, lambda x: x[tuple(torch.tril_indices(2, 2))] + torch.triu_indices(2, 2).float().sum())
    assert {item.by for item in found} == {"torch"}


@pytest.mark.parametrize("function", first_quick([lambda x: x.sort(stable=True)[0], lambda x: x.cumprod(0)]))
def test_calls_on_what_a_mask_selects(model, function):
    net = model(lambda x: function(x[x > 0.5]))
    x = torch.rand(3, 4)
    assert exporters.verify(net, (x,), exporters.export(net, (x,), verbose=False)).ok
    found = exporters.explain(net, (x,))
    assert (found.problem, found.by("fallback"), found.by("unsupported")) == ("", [], [])


def test_torch_where_its_own_translation_is_right(model):
    def forward(x, scalar):
        drawn = torch.rand(x.shape[0]), torch.rand(x.shape[0], dtype=torch.half)
        real = torch.view_as_real(x.to(torch.complex32))
        return x.all(0), scalar.all(0), x.amax(1), x.amax(), x.half(), real, drawn

    x = torch.ones(2, 3)
    dynamic = ({0: torch.export.Dim.DYNAMIC}, None)
    found = exporters.explain(model(forward), (x, x.sum()), dynamic_shapes=dynamic)
    assert {(name, calls, by) for name, calls, by in _named(found) if "metadata" not in name} == {
        *((f"aten::{name}", 1, by) for name in ("all.dim", "amax", "to.dtype", "rand") for by in ("torch", "kernel")),
        ("aten::sym_size.int", 1, "torch"),
        ("aten::view_as_real", 1, "torch"),
    }


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
@pytest.mark.parametrize("kernels", first_quick([True, False]))
def test_it_agrees_with_the_export(model, kernels):
    module = model(lambda x: torch.special.bessel_j0(torch.digamma(torch.poisson(torch.nn.functional.gelu(x)))))
    found = exporters.explain(module, (_x,), kernels=kernels)
    program = exporters.export(module, (_x,), kernels=kernels, fallback=True, verbose=False)
    assert found.by("fallback") == [item.operator for item in program.fallbacks]
    assert len(found.by("kernel")) == sum(node.domain == "pyops" for node in program.model_proto.graph.node)


def test_complex_calls_that_the_kernel_library_does_not_take(model):
    function = model(lambda x: (torch.logcumsumexp(x, 0), torch.cov(x), torch.linalg.qr(x), torch.linalg.inv(x.real)))
    found = exporters.explain(function, (torch.complex(_x, _x),))
    assert found.by("fallback") == ["aten::logcumsumexp", "aten::cov"]
    assert found.by("kernel") == ["aten::linalg_qr", "aten::linalg_inv"]


def test_registrations(model):
    @onnx_op("explain::Twice")
    def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + x

    twice.register_shape_inference(lambda x: x)
    own = exporters.custom_op(twice, "explain::twice")
    exporters.register_translation("aten::lgamma", twice)

    @exporters.register_translation("aten::gelu")
    def gelu(x, *, approximate="none"):
        return exporters.opset("com.microsoft").Gelu(x)

    found = _explained(
        model,
        lambda x: torch.digamma(torch.lgamma(torch.nn.functional.gelu(own(x)))),
        custom_translation_table={torch.ops.aten.digamma.default: gelu},
    )
    assert {item.by for item in found} == {"registration"}
    assert [(item.operator, item.reason) for item in found] == [
        ("explain::twice", "the op explain::Twice"),
        ("aten::gelu", "the function gelu"),
        ("aten::lgamma", "the op explain::Twice"),
        ("aten::digamma", "custom_translation_table: the function gelu"),
    ]
    assert found.verdict == "every operator has a translation"


@pytest.mark.parametrize(
    ("function", "operator", "reason"),
    [
        (lambda x: x.to_sparse(), "aten::to_sparse", "it takes or returns a sparse tensor"),
        (lambda x: torch.randperm(x.shape[0]) + x[0, 0], "aten::randperm", "this call takes no tensor"),
        (lambda x: torch_map(torch.sin, x), "map_impl", "torch's exporter has no translation"),
    ],
    ids=["sparse", "size", "map"],
)
def test_what_cannot_be_had(model, function, operator, reason):
    shapes = ({0: torch.export.Dim.DYNAMIC},) if operator == "aten::randperm" else None
    found = next(item for item in _explained(model, function, dynamic_shapes=shapes) if item.by == "unsupported")
    assert (found.operator, found.calls) == (operator, 1)
    assert reason in found.reason


def test_both_branches_of_cond(model):
    found = _explained(
        model, lambda x: torch.cond(x.sum() > 0, lambda a: torch.digamma(a), lambda a: torch.sin(a), (x,))
    )
    assert {("aten::digamma", 1, "kernel"), ("aten::sin", 1, "torch")} <= set(_named(found))


def test_a_model_without_a_graph(model):
    found = _explained(model, lambda x: x if x.sum() > 0 else -x)
    assert len(found) == 0
    assert found.problem.startswith("torch.export cannot capture the model at ")
    assert "test_explain.py" in found.problem
    assert "the model's Python code depends on values" in found.problem
    assert found.verdict == repr(found) == found.problem


def test_a_model_that_torchs_exporter_stops_at(model):
    generator = torch.Generator()
    found = _explained(model, lambda x: torch.bernoulli(x / 2, generator=generator))
    assert found.problem == (
        "torch's exporter stops before it translates anything: the model passes aten::bernoulli a torch.Generator, "
        "which ONNX models do not support; leave the generator out"
    )


def test_a_model_that_raises(model):
    found = _explained(model, lambda x: x.reshape(7))
    assert "RuntimeError: shape '[7]' is invalid for input of size 9" in found.problem
    assert "test_explain.py" in found.problem


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dynamic_shapes": {"y": {0: "rows"}}}, "dynamic_shapes has the keys y"),
        ({"kwargs": {"y": torch.ones(1)}}, "forward.* does not take the example arguments"),
    ],
)
def test_arguments_that_do_not_fit(model, given, message):
    with pytest.raises(exporters.ExportError, match=message):
        _explained(model, lambda x: torch.relu(x), **given)


def test_dynamic_shapes_and_keywords(model):
    found = _explained(
        model,
        lambda x, *, other: torch.lgamma(x) + other,
        kwargs={"other": _x},
        dynamic_shapes={"x": {0: "rows"}, "other": {0: "rows"}},
    )
    assert ("aten::lgamma", 1, "kernel") in _named(found)


def test_a_captured_program(model):
    program = torch.export.export(model(lambda x: torch.lgamma(x)), (_x,))
    assert _named(exporters.explain(program)) == [("aten::lgamma", 1, "kernel")]


def test_it_allows_nothing(model):
    before = set(satellites.providers)
    _explained(model, lambda x: torch.lgamma(x))
    assert set(satellites.providers) == before


def test_tables(model):
    found = _explained(model, lambda x: torch.lgamma(x), kernels=False)
    assert str(found).splitlines()[0].split() == ["operator", "calls", "exported", "by", "reason", "called", "in"]
    assert "<td>aten::lgamma</td><td>1</td><td>fallback</td><td>torch&#x27;s exporter" in found._repr_html_()
    assert found.by("fallback") == ["aten::lgamma"]
    assert found[0].operator == "aten::lgamma"


# All of them take minutes: the exhaustive tests have every sixteenth.
SIXTEENTHS = [exhaustive(0), *(pytest.param(first, marks=pytest.mark.stress) for first in range(1, 16))]


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
@pytest.mark.filterwarnings("ignore")  # torch's, of its samples
@pytest.mark.parametrize("first", SIXTEENTHS)
def test_it_agrees_with_the_export_of_every_operator_of_torch(first):
    for info in list(op_database())[first::16]:
        dtypes = info.supported_dtypes("cpu") & {torch.float32, torch.int64}
        if not dtypes:
            continue
        dtype = torch.float32 if torch.float32 in dtypes else torch.int64
        sample = next(sample_inputs(info, dtype))
        call = SingleCall(info.op, (sample.input, *sample.args), sample.kwargs)
        found = exporters.explain(call, call.tensors)
        try:
            program = exporters.export(call, call.tensors, fallback=True, verbose=False)
        except Exception:
            assert found.problem or found.by("unsupported"), info.full_name
        else:
            assert (found.problem, found.by("unsupported")) == ("", []), info.full_name
            assert found.by("fallback") == [item.operator for item in program.fallbacks], info.full_name
