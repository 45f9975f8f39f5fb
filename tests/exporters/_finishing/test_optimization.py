"""Optimizing an export changes no value: epsilons, infinities, NaNs, negative zeros and subnormals stay as they are."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional

import exporters
import pyops

_TINY = {torch.float16: (6e-5, 6e-8), torch.float32: (1.2e-38, 1e-45), torch.float64: (2.3e-308, 5e-324)}


def planted(dtype: torch.dtype) -> list[float]:
    normal, subnormal = _TINY[dtype]
    small = [normal, -normal, subnormal, -subnormal, 1e-5, 1e-8, 1e-10, -1e-12]
    return [0.0, -0.0, 1.0, -1.0, 1.000001, 0.999999, 2.0, 0.5, -7.25, 40.0, -120.0, *small, np.inf, -np.inf, np.nan]


def computed(program, *args):
    """What the model computes as it is: ONNX Runtime optimizes nothing of it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = pyops.InferenceSession(program, options)
    names = [item.name for item in session.get_inputs()]
    return session.run(None, {name: arg.numpy() for name, arg in zip(names, args, strict=True)})


def same(actual, expected, steps=0):
    """Whether two arrays are equal to so many steps of the last digit, zeros' signs included."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype.kind != "f":
        return np.array_equal(actual, expected)
    exact = ~np.isfinite(expected) | (expected == 0) | (actual == 0) | (steps == 0)
    with np.errstate(all="ignore"):
        near = np.abs(actual - expected) <= steps * np.spacing(np.abs(expected))
    equal = (actual == expected) & (np.signbit(actual) == np.signbit(expected))
    return bool(np.all(np.where(exact, equal | (np.isnan(actual) & np.isnan(expected)), near)))


def changed(module, args=(), steps=0, **arguments):
    """The numbers of the outputs that optimizing changes."""
    programs = [exporters.export(module, args, optimize=how, verbose=False, **arguments) for how in (False, True)]
    expected, actual = [computed(program, *args) for program in programs]
    return [number for number, pair in enumerate(zip(actual, expected, strict=True)) if not same(*pair, steps)]


_ARITHMETIC = [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        *(pytest.param(dtype, marks=pytest.mark.exhaustive) for dtype in (torch.float16, torch.float64)),
    ],
)
def test_arithmetic_with_a_constant(model, dtype):
    constants = [torch.tensor(value, dtype=dtype) for value in planted(dtype)]

    def forward(x):
        results = [function(x, constant) for constant in constants for function in _ARITHMETIC]
        return results + [function(constant, x) for constant in constants for function in (torch.sub, torch.div)]

    assert changed(model(forward), (torch.tensor(planted(dtype), dtype=dtype),)) == []


_FUNCTIONS = [
    *(torch.abs, torch.acos, torch.acosh, torch.asin, torch.asinh, torch.atan, torch.atanh, torch.ceil, torch.cos),
    *(torch.cosh, torch.erf, torch.exp, torch.expm1, torch.floor, torch.isinf, torch.isnan, torch.log, torch.log1p),
    *(torch.neg, torch.reciprocal, torch.relu, torch.round, torch.rsqrt, torch.sigmoid, torch.sign, torch.sin),
    *(torch.sinh, torch.sqrt, torch.square, torch.tan, torch.tanh, torch.trunc, functional.elu, functional.celu),
    *(functional.gelu, functional.hardsigmoid, functional.hardswish, functional.leaky_relu, functional.logsigmoid),
    *(functional.mish, functional.relu6, functional.selu, functional.silu, functional.softplus, functional.softsign),
    *(lambda x: functional.softplus(x, threshold=1e4), lambda x: x.clamp(-1, 2), lambda x: torch.nan_to_num(x)),
    *(lambda x: x.to(torch.float16), lambda x: x.to(torch.float64), lambda x: x.to(torch.bool)),
    *(lambda x: x.sum(), lambda x: x.amax(), lambda x: x.argmin(), lambda x: x.cumsum(0), lambda x: x.norm()),
    *(lambda x: x.softmax(0), lambda x: x.log_softmax(0), lambda x: x.logsumexp(0), lambda x: x.mean()),
    *(lambda x: x.flip(0), lambda x: x.tile(2), lambda x: functional.pad(x, (1, 1)), lambda x: torch.outer(x, x)),
    *(lambda x: x + torch.arange(0, len(x)) / 7, lambda x: x.abs() ** 0.3, lambda x: 2.5**x, lambda x: x % 0.3),
]


def test_functions_of_constants(model):
    every = torch.tensor(planted(torch.float32))
    finite = torch.tensor([0.0, -0.0, 150.0, -200.0, 1e-45, 3e38, 1e-10])

    def forward(x):
        return [x, *(function(constant) for constant in (every, finite) for function in _FUNCTIONS)]

    # NumPy's exp, sin and the like are other code than ONNX Runtime's.
    assert changed(model(forward), (torch.zeros(1),), steps=4) == []


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int64,
        *(pytest.param(dtype, marks=pytest.mark.exhaustive) for dtype in (torch.int8, torch.uint8, torch.int32)),
    ],
)
def test_integers(model, dtype):
    info = torch.iinfo(dtype)
    constants = torch.tensor([1, 2, 7, info.max, info.max - 1, *([-1, -2, -7] if info.min else [])], dtype=dtype)
    numbers = torch.tensor([0, 1, 7, info.max, info.min + 1], dtype=dtype)

    def forward(x):
        results = [x]
        for constant in constants.unbind():
            for given in (x, numbers):
                results += [torch.div(given, constant, rounding_mode=mode) for mode in ("floor", "trunc")]
                results += [given + constant, given * constant, given % constant, given == constant]
        return results

    assert changed(model(forward), (numbers,)) == []


def _number(value):
    return torch.tensor(value)


_X = torch.tensor([0.0, -0.0, 1.0, -3.0, 2.5, torch.inf, torch.nan])

_MERGED = {
    "epsilon in a logarithm": lambda x: (x + 1e-10).log(),
    "epsilon in a square root": lambda x: (x + 1e-9).rsqrt(),
    "epsilon in a quotient": lambda x: x / ((0 * x[:2]).norm() + 1e-12),
    "almost one": lambda x: x * 1.000001 / 0.999999,
    "a relu of bounds": lambda x: functional.relu(functional.hardtanh(x, -3.0, -1.0)),
    "a relu of a clamp": lambda x: functional.relu(x.clamp(-3, -1)),
    "bounds of a relu": lambda x: functional.relu(x).clamp(-3, -1),
    "bounds apart": lambda x: x.clamp(0, 1).clamp(2, 3),
    "NaN as a bound": lambda x: torch.minimum(torch.maximum(x, _number(torch.nan)), _number(1.0)),
    "bounds of two dimensions": lambda x: torch.minimum(torch.maximum(x, _number([[0.0]])), _number([[1.0]])),
    "added to all": lambda x: x.index_put((torch.arange(7),), 2 * x, accumulate=True),
    "infinity to integers": lambda x: torch.full((3,), torch.inf).to(torch.int32) + x[0].to(torch.int32),
    "slopes of both zeros": lambda x: [functional.leaky_relu(x, 0.0), functional.leaky_relu(x, -0.0)],
}


def test_what_a_rule_could_merge(model):
    def forward(x):
        results = [function(x) for function in _MERGED.values()]
        return [item for result in results for item in (result if isinstance(result, list) else [result])]

    assert changed(model(forward), (_X,)) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("opset_version", [None, 23])
@pytest.mark.parametrize("name", _MERGED)
def test_what_a_rule_could_merge_if_it_is_the_whole_model(model, name, opset_version):
    assert changed(model(_MERGED[name]), (_X,), opset_version=opset_version) == []


def test_a_norm_of_almost_squares(model):
    def forward(x, scale):
        return x * torch.reciprocal(torch.sqrt(torch.pow(x, 2.00001).mean(-1, keepdim=True) + 1e-6)) * scale

    assert changed(model(forward), (torch.tensor([[1e9, 3.0]]), torch.ones(2)), opset_version=23) == []


def test_matrices_in_blocks(model):
    def forward(a, b):
        return torch.bmm(a.view(4, 2, 2), b.view(4, 2, 2)).view(4, 4)

    assert changed(model(forward), (torch.randn(4, 4), torch.randn(4, 4))) == []


@pytest.mark.usefixtures("registrations_end_with_the_test")
def test_slices_of_unequal_size(model):
    @exporters.register_translation("aten::relu")
    def halves(x):
        opset = exporters.opset("", 18)
        zero, two, five, axis = (opset.Constant(value_ints=[value]) for value in (0, 2, 5, -1))
        parts = opset.Slice(x, two, five, axis), opset.Slice(x, zero, two, axis)
        return opset.Concat(*parts, axis=-1)

    program = exporters.export(model(lambda x: torch.relu(x)), (torch.arange(5.0),), verbose=False)
    assert program(torch.arange(5.0))[0].tolist() == [2, 3, 4, 0, 1]
    assert changed(model(lambda x: torch.relu(x)), (torch.arange(5.0),)) == []


def test_convolutions_of_extremes():
    convolution = torch.nn.Conv2d(1, 3, 2)
    normalization = torch.nn.BatchNorm2d(3, eps=0.0)
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor([0.0, 3e38, 1e-45])[:, None, None, None].expand(3, 1, 2, 2))
        convolution.bias.zero_()
        normalization.running_var.copy_(torch.tensor([0.0, 1e-8, 1e-30]))
    module = torch.nn.Sequential(torch.nn.ZeroPad2d(1), convolution, normalization).eval()
    assert changed(module, (torch.tensor([[[[1e-20, 0.0], [-0.0, 1e-3]]]]),)) == []


@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode:UserWarning")
@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_equal_dropouts_draw_their_own_numbers(model):
    module = model(lambda x: functional.dropout(x, 0.5, True) - functional.dropout(x, 0.5, True)).train()
    program = exporters.export(module, (torch.ones(1000),), verbose=False)
    assert set(program(torch.ones(1000))[0].unique().tolist()) == {-2.0, 0.0, 2.0}


def test_optimizing_afterwards(model):
    x = torch.tensor([0.0, 1.0])
    program = exporters.export(model(lambda x: (x.t().t() + 1e-10).log()), (x,), optimize=False, verbose=False)
    expected = computed(program, x)
    program.optimize()
    assert [node.op_type for node in program.model.graph] == ["Add", "Log"]
    assert same(*computed(program, x), *expected)


def test_calls_of_declared_ops_stay(model, inverse):
    exporters.custom_op(inverse, "optimization::inverse")
    called = torch.ops.optimization.inverse

    def forward(x):
        called(2 * x)
        return called(x) - called(x)

    program = exporters.export(model(forward), (torch.eye(2),), optimize=False, verbose=False)
    program.optimize()
    assert [node.op_type for node in program.model.graph].count("Inverse") == 3
    assert all(len(node.attributes) == 0 for node in program.model.graph)


def test_values_that_are_only_moved_are_moved_once(model):
    def forward(x):
        return x.t().t().reshape(2, 3, 1).reshape(3, 2).unsqueeze(0).unsqueeze(0).to(torch.float32)[:, :, 0:]

    program = exporters.export(model(forward), (torch.zeros(2, 3),), verbose=False)
    assert [node.op_type for node in program.model.graph] == ["Reshape", "Unsqueeze"]
