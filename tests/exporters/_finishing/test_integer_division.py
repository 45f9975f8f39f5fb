"""Integer divisions in exported models: none ends the process, and none differs from torch."""

import operator

import numpy as np
import onnxscript
import pytest
import torch
from onnxscript import opset18

import exporters
from tests.helpers.scripts import run_beside_torch
from tests.helpers.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("own_registrations")

mine = onnxscript.values.Opset("divisions", 1)


@onnxscript.script(mine)
def remainder_of(x, y):
    return opset18.Mod(x, y, fmod=1)


@onnxscript.script(mine)
def part_of(x, y):
    return opset18.Div(x, remainder_of(y, opset18.Add(y, y)))


# Each is one expression of x and y, whose values are the smallest integer and -1 among others.
TRAPS = """
import logging, sys, warnings
import numpy as np, onnxruntime, onnxscript, torch
import exporters
from numpy.typing import NDArray
from onnxscript import opset18
from pyops import InferenceSession, onnx_op

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
mine = onnxscript.values.Opset("divisions", 1)
I64 = NDArray[np.int64]

@onnx_op("divisions::Copy")
def copy(x: I64) -> I64:
    return x.copy()

@exporters.register_translation("aten::maximum")
def maximum(x, y):
    ops = exporters.opset("divisions")
    return exporters.opset("", 18).Sub(exporters.opset("", 18).Div(ops.Copy(x), ops.Copy(y)), x)

@onnxscript.script(mine)
def quotient(x, y):
    return opset18.Div(x, y)

@exporters.register_translation("aten::gcd")
def gcd(x, y):
    return quotient(x, y)

@exporters.register_translation("aten::lcm")
def lcm(x, y):
    return exporters.opset("", 18).Mod(x, y)

class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)

def truncated(x, y):
    return torch.div(x, y, rounding_mode="trunc")

def branch(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: x // y, lambda x, y: x % y + x // y, (x, y))

def of_copies(x, y):
    return torch.maximum(x, y)

def ran(function, x, y, **options):
    examples = torch.ones_like(x), torch.ones_like(y)
    program = exporters.export(Model(function).eval(), examples, input_names=["x", "y"], **options)
    session = InferenceSession(program) if function is of_copies else onnxruntime.InferenceSession(
        program.model_proto.SerializeToString()
    )
    return session.run(None, {"x": x.numpy(), "y": y.numpy()})

for dtype in (torch.int64, torch.int32):
    lowest = torch.iinfo(dtype).min
    x, y = torch.tensor([lowest, lowest, 7, -7], dtype=dtype), torch.tensor([-1, 3, -1, 2], dtype=dtype)
    minus_ones = torch.tensor([-1, 3, -1, 2], dtype=dtype)

    def defined(x, y):
        floored = torch.div(x, y, rounding_mode="floor"), torch.div(x, -1, rounding_mode="floor"), x // y, lowest // y
        return *floored, x % y, x % -1, torch.fmod(x, y), torch.fmod(x, -1), x // minus_ones

    # Where torch ends the process too, and where a user's nodes divide.
    def others(x, y):
        return truncated(x, y), torch.gcd(x, y), torch.lcm(x, y)

    wanted = [lowest, -(-lowest // 3), -7, -3]
    for options in [{}, {"optimize": False}, {"dynamo": False}][: 3 if dtype == torch.int64 else 1]:
        for got, right in zip(ran(defined, x, y, **options), defined(x, y), strict=True):
            np.testing.assert_array_equal(got, right.numpy())
        found = ran(others, x, y, **options, keep_functions=True)
        assert [item.tolist() for item in found] == [wanted, wanted, torch.remainder(x, y).tolist()], options
x, y = x.long(), y.long()
lowest = -(2**63)
x[x == -(2**31)] = lowest
np.testing.assert_array_equal(ran(branch, x, y)[0], branch(x, y).numpy())
for options in ({}, {"optimize": False}):
    assert ran(of_copies, x, y, **options)[0].tolist() == [0, -(-lowest // 3) - lowest, -14, 4]
for version in (11, 17):
    found = ran(truncated, x, y, dynamo=False, opset_version=version)[0]
    assert found.tolist() == [lowest, -(-lowest // 3), -7, -3]

def all_three(x, y):
    return x // y, x % y, torch.fmod(x, y)

for shapes in [((0, 3), (3,)), ((2, 0), (0,)), ((), ()), ((), (2,)), ((2,), ())]:
    x, y = torch.full(shapes[0], lowest), torch.full(shapes[1], -1)
    for got, right in zip(ran(all_three, x, y), all_three(x, y), strict=True):
        np.testing.assert_array_equal(got, right.numpy(), strict=True)
print("all ran")
"""


def test_the_smallest_integer_by_minus_one(tmp_path):
    (tmp_path / "traps.py").write_text(TRAPS)  # onnxscript reads the functions' source
    done = run_beside_torch("import traps", tmp_path)
    assert (done.returncode, done.stdout) == (0, "all ran\n"), done.stderr[-4000:]


def exported(module, *args, **options):
    return exporters.export(module, args, verbose=False, **options)


def operators(program):
    return [node.op_type for node in program.model_proto.graph.node]


ONES = torch.ones(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: torch.div(x, 7, rounding_mode="trunc"), ["Div"]),
        (lambda x: torch.div(x, -1, rounding_mode="trunc"), ["Mul"]),
        (lambda x: torch.div(7, x, rounding_mode="trunc"), ["Div"]),
        (lambda x: x % 7, ["Mod"]),
        (lambda x: 7 % x, ["Mod"]),
        (lambda x: torch.div(x, torch.tensor([1, 2, 3, 4]), rounding_mode="trunc"), ["Div"]),
    ],
)
def test_a_constant_costs_nothing(model, function, wanted):
    assert operators(exported(model(function), ONES)) == wanted


@pytest.mark.parametrize("dtype", [torch.int8, exhaustive(torch.int16), exhaustive(torch.uint8), torch.float32])
def test_other_types_have_no_guard(model, dtype):
    ones = torch.ones(3, dtype=dtype)
    assert "If" not in operators(exported(model(lambda x, y: x % y), ones, ones))


def test_sizes_have_no_guard(model):
    def windows(x, y):
        count = (x.shape[0] * 2 - 1) // y.shape[0] + x.shape[0] % y.shape[0]
        return x[: x.shape[0] // (y.shape[0] + 1)].sum() + y.new_ones(-(-count // 2)).sum()

    net = model(lambda x, y: windows(x, y))
    program = exported(net, torch.ones(9), torch.ones(5), dynamic_shapes=({0: "n"}, {0: "m"}))
    assert {"Div", "Mod"} & set(operators(program))
    assert "If" not in operators(program)
    x, y = torch.ones(13), torch.ones(4)
    assert program(x, y)[0] == windows(x, y)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, exhaustive(torch.int16), exhaustive(torch.int64)])
def test_a_divisor_of_zero_is_an_error(export, model, dtype, mode):
    program = export(model(lambda x, y: torch.div(x, y, rounding_mode=mode)), (ONES.to(dtype), ONES.to(dtype)))
    with pytest.raises(Exception, match="by zero"):
        program(ONES.to(dtype), torch.tensor([1, 0, 1, 1], dtype=dtype))


DIVISIONS = [operator.floordiv, operator.mod, torch.fmod]


@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("dtype", [torch.int64, exhaustive(torch.int32), torch.uint8])
def test_no_elements_are_divided_by_a_size_of_zero(model, dtype, division):
    module, x = model(lambda x: division(x, x.shape[0])), torch.full((3, 2), 7, dtype=dtype)
    samples = [(x[:0],), (x.repeat(2, 1),)]
    assert exporters.verify(module, program=exported(module, x[:0]), samples=samples[:1]).ok
    assert exporters.verify(module, program=exported(module, x, dynamic_shapes=({0: "n"},)), samples=samples).ok


@pytest.mark.parametrize("division", DIVISIONS)
def test_elements_divided_by_a_size_of_zero_are_an_error(model, division):
    module = model(lambda x, y: division(x, y.shape[0]))
    program = exported(module, ONES, ONES, dynamic_shapes=({0: "n"}, {0: "m"}))
    with pytest.raises(Exception, match="by zero"):
        program(ONES, ONES[:0])


@pytest.mark.parametrize("division", [operator.floordiv, operator.mod])
def test_a_constant_divided_by_zero_is_not_folded(model, division):
    program = exported(model(lambda x: x + division(torch.tensor([7, 8]), torch.tensor([0, 1])).sum()), ONES)
    with pytest.raises(Exception, match="by zero"):
        program(ONES)


def test_long_remainders_are_exact(export, model):
    x = torch.tensor([2**62 + 1, -(2**62) - 1, 2**53 + 1, -(2**63), 5])
    y = torch.tensor([3, 10, 2**53, -1, -3])
    program = export(model(lambda x, y: torch.fmod(x, y)), (x, y))
    assert program(x, y)[0].tolist() == torch.fmod(x, y).tolist()
    # Releases of ONNX Runtime that compute the remainder in float64 do not compute these.
    node = program.model_proto.graph.node[-1]
    rare = next(item.g for item in node.attribute if item.name == "then_branch")
    assert "Mod" not in [item.op_type for item in rare.node]


def test_functions_are_kept_unless_they_divide_integers(export, model):
    exporters.register_translation("aten::maximum", lambda x, y: part_of(x, y))
    for dtype, kept in [(torch.float32, True), (torch.int64, False), (torch.int16, True)]:
        program = export(
            model(lambda x, y: torch.maximum(x, y)), (torch.ones(2, dtype=dtype),) * 2, keep_functions=True
        )
        assert bool(program.model_proto.functions) == kept
        assert np.all(program(torch.full((2,), 6, dtype=dtype), torch.full((2,), 2, dtype=dtype))[0].numpy() == 3)
