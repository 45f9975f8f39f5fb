"""exporters.export(fallback="verify"): calls with wrong translations, or that ONNX Runtime rejects, fall back too."""

import functools

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

import exporters
import pyops
from tests.exporters._fallback.fallback_db import rand

CASES = {
    "wrong numbers": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, True, 2), (rand(1, 1, 4, 4),), "aten::avg_pool2d"),
    "another shape": (torch.sum, (rand(2, 2).to(torch.complex64),), "aten::sum"),
    "refused": (lambda x: F.pad(x, (-1, 1), "replicate"), (rand(1, 1, 4),), ""),
    "half batch": (
        lambda x: F.batch_norm(x, x.new_zeros(2), x.new_ones(2), training=True),
        (rand(4, 2, 3, dtype=torch.float16),),
        "aten::_native_batch_norm_legit_functional",
    ),
    "no kernel": (torch.sinh, (rand(3, dtype=torch.float64),), "aten::sinh"),
}


@pytest.fixture
def model(model):
    return lambda function: model(lambda *args: function(*args))


def export(module, args, **arguments):
    return exporters.export(module, args, kernels=False, fallback="verify", verbose=False, **arguments)


@pytest.fixture(scope="module")
def exported():
    """A function that exports one of the cases, once."""

    class Case(torch.nn.Module):
        def __init__(self, function):
            super().__init__()
            self.forward = lambda *args: function(*args)

    @functools.cache
    def exported(case):
        function, args, _ = CASES[case]
        return export(Case(function).eval(), args)

    return exported


@pytest.mark.parametrize("case", ["wrong numbers", "half batch", "no kernel"])
def test_it_is_found_and_cured(case, model, exported):
    function, args, operator = CASES[case]
    program = exported(case)
    (found,) = program.fallbacks
    assert found.operator == operator
    assert found.differences or found.error
    assert exporters.verify(model(function), args, program).ok


@pytest.mark.exhaustive
def test_what_no_model_may_name_is_taken_apart(model):
    def function(x, mask, index, values):
        return torch.ops.aten._unsafe_masked_index_put_accumulate(x, mask, [index], values)

    half = rand(5, dtype=torch.float16)
    args = (half, torch.tensor([True, False, True]), torch.tensor([0, 2, 4]), half[:3])
    program = export(model(function), args)
    (found,) = program.fallbacks  # ONNX Runtime adds no float16 at indices
    assert found.operator == "aten::index_put"
    assert exporters.verify(model(function), args, program).ok


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_what_the_exporter_takes_apart_is_compared_too(model):
    x = rand(3, dtype=torch.float64)
    program = export(model(lambda x: x.clone().cauchy_()), (x,))  # of a tangent that ONNX Runtime lacks
    assert [item.operator for item in program.fallbacks] == ["aten::cauchy"]
    assert program(x)[0].shape == (3,)


def test_it_says_how_far_off_it_was(exported):
    (found,) = exported("wrong numbers").fallbacks
    assert max(item.absolute for item in found.differences) > 0.1
    assert "wrong: off by" in found.reason


def test_it_says_what_refused_it(exported):
    (found,) = exported("no kernel").fallbacks
    assert "Sinh" in found.error


def test_what_is_right_stays(model):
    def function(x):
        return torch.exp(F.avg_pool2d(x, 3, 2, 1, True, True, 2)) + x.sum()

    program = export(model(function), (rand(1, 1, 4, 4),))
    assert [item.operator for item in program.fallbacks] == ["aten::avg_pool2d"]
    assert {"Exp", "Add"} <= {node.op_type for node in program.model_proto.graph.node}


@pytest.mark.parametrize("function", [torch.linalg.inv, lambda x: torch.linalg.inv(x).sin()])
def test_what_is_right_for_complex_numbers_stays(model, function):
    x = rand(3, 3, dtype=torch.complex64) + 4 * torch.eye(3)
    program = exporters.export(model(function), (x,), fallback="verify", verbose=False)
    assert program.fallbacks == ()
    assert exporters.verify(model(function), (x,), program).ok


def test_nothing_wrong_leaves_the_plain_export(model):
    program = export(model(lambda x: torch.relu(x) + 1), (rand(3),))
    assert program.fallbacks == ()
    assert all(not node.domain for node in program.model_proto.graph.node)


def test_torchs_own_bounds_of_a_size_do_not_count(model):
    module, args = model(torch.masked_select), (torch.arange(3.0), torch.ones(2, 3, dtype=torch.bool))
    program = export(module, args)  # of which torch says that it returns 3 elements at the most
    assert exporters.verify(module, args, program).ok


@pytest.mark.exhaustive
def test_missing_and_wrong_ones_together(model):
    module = model(lambda x: torch.lgamma(F.avg_pool2d(x, 3, 2, 1, True, True, 2)))
    args = (rand(1, 1, 4, 4) + 1,)
    program = export(module, args)
    assert {item.operator for item in program.fallbacks} == {"aten::lgamma", "aten::avg_pool2d"}
    assert exporters.verify(module, args, program).ok


def test_a_complex_constant_that_the_exporter_gets_wrong(model):
    module, x = model(lambda x: x * torch.full((3,), 1 + 2j)), torch.tensor([1j, 1, 2])
    program = export(module, (x,))
    assert program.fallbacks == ()
    assert exporters.verify(module, (x,), program).ok


def test_both_branches_are_checked(model):
    def function(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: F.avg_pool2d(y, 3, 1, 1, True, True, 2) - 1, (x,))

    module, args, others = model(function), (rand(1, 1, 4, 4),), (-rand(1, 1, 4, 4),)
    program = export(module, args)
    assert [item.operator for item in program.fallbacks] == ["aten::avg_pool2d"]
    assert exporters.verify(module, samples=[args, others], program=program).ok


@pytest.mark.filterwarnings("ignore::pyops.errors.FilledNodeWarning")
def test_what_the_session_fills_stays(model):
    module, args = model(lambda x: F.silu(x) @ x), (rand(3, 3, dtype=torch.bfloat16),)
    assert [item.operator for item in export(module, args).fallbacks] == ["aten::silu", "aten::matmul"]
    program = export(module, args, fill_missing=True, verify=True)
    assert program.fallbacks == ()
    assert exporters.verify(module, args, program, fill_missing=True).ok
    assert pyops.InferenceSession(program.model_proto, fill_missing=True).get_outputs()[0].type == "tensor(bfloat16)"


@pytest.mark.filterwarnings("ignore::pyops.errors.FilledNodeWarning")
def test_the_session_fills_nodes_after_those_that_fell_back(model):
    module, args = model(lambda x: torch.lgamma(x) @ x), (rand(3, 3, dtype=torch.bfloat16),)
    program = export(module, args, fill_missing=True)
    assert [item.operator for item in program.fallbacks] == ["aten::lgamma"]
    assert exporters.verify(module, args, program, fill_missing=True).ok


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_random_operators_are_not_compared(model):
    program = export(model(lambda x: torch.rand_like(x) * 0 + x), (rand(3),))
    assert program.fallbacks == ()
    assert np.isfinite(program(rand(3))[0].numpy()).all()


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_random_operators_that_are_refused_fall_back(model):
    module = model(lambda x: torch.multinomial(x, 1))
    program = export(module, (rand(3, dtype=torch.float64),))
    assert [item.operator for item in program.fallbacks] == ["aten::multinomial"]


def test_another_size_is_checked_where_dimensions_are_dynamic(model):
    module = model(lambda x: F.adaptive_avg_pool1d(x, 3))
    shapes = (({2: torch.export.Dim.AUTO},),)
    program = export(module, (rand(1, 2, 7),), dynamic_shapes=shapes)
    (found,) = program.fallbacks
    assert (found.operator, bool(found.differences)) == ("aten::adaptive_avg_pool1d", True)
    assert exporters.verify(module, samples=[(rand(1, 2, size),) for size in (7, 8, 9)], program=program).ok
