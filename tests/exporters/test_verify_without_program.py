"""`exporters.verify(model, args)` verifies the program that `exporters.export` makes."""

from dataclasses import replace

import pytest
import torch

import exporters
from exporters._fallback.allowed_operators import is_arbitrary
from exporters._library.translation_order import rows
from exporters._torch.single_call import SingleCall
from tests.exporters._library.kernel_calls import calls
from tests.exporters._library.test_library_samples import samples, tried_in
from tests.helpers.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("own_registrations")


def rand(*sizes, dtype=torch.float32):
    return torch.testing.make_tensor(sizes, dtype=dtype, device="cpu", low=-2, high=2)


SQUARE, TALL = rand(4, 4) + 4 * torch.eye(4), rand(5, 3)

CASES = {
    "complex sin": (torch.sin, (rand(3, dtype=torch.complex64),)),
    "complex inv": (torch.linalg.inv, ((SQUARE + 1j * rand(4, 4)),)),
    "complex product": (torch.matmul, (rand(2, 3, dtype=torch.complex64), rand(3, 2, dtype=torch.complex64))),
    "complex sum": (torch.sum, (rand(2, 2, dtype=torch.complex64),)),
    "lstsq": (lambda a, b: torch.linalg.lstsq(a, b).solution, (TALL, rand(5, 2))),
    "strided view": (lambda x: x.t().as_strided((2, 3), (3, 1), 1) * 2, (rand(3, 4),)),
    "one_hot": (torch.nn.functional.one_hot, (torch.tensor([0, 2, 1]),)),
    "erf": (torch.erf, (rand(3, dtype=torch.float64),)),
    "index_put": (lambda x, i: x.index_put((i,), x[:2], accumulate=True), (rand(4), torch.tensor([0, 0]))),
    "floor_divide": (torch.floor_divide, (torch.tensor([-7, 7]), torch.tensor([2, -2]))),
    "number first": (lambda x: 1.5 - x, (torch.tensor([1, 2]),)),
    "svdvals": (torch.linalg.svdvals, (TALL,)),
    "lgamma": (torch.lgamma, (rand(3),)),
    "median": (lambda x: torch.median(x, 1), (rand(3, 5),)),
    "avg_pool2d": (lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1, True, True, 2), (rand(1, 1, 4, 4),)),
    "nothing": (lambda x: torch.ops.aten.bernoulli.p(x, 0.0) * torch.linalg.matrix_exp(x), (rand(2, 2),)),
}


@pytest.mark.parametrize("case", [name if name in list(CASES)[:6] else exhaustive(name) for name in CASES])
def test_it_equals_the_verification_of_an_export(model, case):
    function, args = CASES[case]
    module = model(lambda *args: function(*args))
    assert_equal(module, args)
    assert exporters.verify(module, args).ok


@pytest.mark.filterwarnings("ignore")  # torch's, of deprecated operators, and ours, of random ones
@pytest.mark.parametrize("row", list(map(exhaustive, rows)))
def test_it_equals_the_verification_of_an_export_for_the_rows_of_the_library(row):
    ops = [op for op in samples(row) if tried_in(row, op, torch.float32)]
    call = next((call for op in ops for call in calls(op, torch.float32) if call.name == row), None)
    if call is None or is_arbitrary(call.target):
        pytest.skip("torch has no sample of it in float32, or its results are arbitrary")
    module = SingleCall(call.target, call.args, call.kwargs)
    assert_equal(module, module.tensors)


def assert_equal(module, args):
    outcomes = [
        outcome(lambda: exporters.verify(module, args)),
        outcome(lambda: exporters.verify(module, args, exporters.export(module, args, verify=False, verbose=False))),
    ]
    assert outcomes[0] == outcomes[1]


def outcome(verify):
    """The comparisons of a report, or the error. LAPACK's last bits differ between runs."""
    try:
        return [replace(item, absolute=0, relative=0) for item in verify().outputs]
    except Exception as error:  # what one way raises, the other must raise too
        return str(error)
