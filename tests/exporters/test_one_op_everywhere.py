"""One op, declared once, gives the same numbers wherever it runs."""

from typing import TypeVar

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import exporters
import pyops
from pyops import onnx_op
from tests.helpers.models import assert_same

T = TypeVar("T", np.float32, np.float64)


@onnx_op("everywhere::Blend")
def blend(
    x: NDArray[T],
    y: NDArray[T],
    weight: NDArray[T] | None = None,
    *more: NDArray[T],
    scale: float = 0.5,
    axis: int = -1,
) -> tuple[NDArray[T], NDArray[np.int64]]:
    """Weigh y, add it and all the rest to x, scaled; and say where along the axis the result is largest."""
    mixed = x + (y if weight is None else y * weight) * x.dtype.type(scale)
    for tensor in more:
        mixed = mixed + tensor * tensor
    return mixed, mixed.argmax(axis)


@blend.register_shape_inference
def _(x, y, weight=None, *more, scale=0.5, axis=-1):
    shape = pyops.shapes.broadcast(x, y)
    kept = [dim for position, dim in enumerate(shape) if position != axis % len(shape)]
    return x.like(shape=shape), x.like(shape=kept, dtype=np.int64)


torch_blend = exporters.custom_op(blend, "everywhere::blend")


def _setup_context(ctx, inputs, keyword_only_inputs, output):
    _, y, weight, more = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(y, weight, *more)
    ctx.scale = keyword_only_inputs["scale"]


def _backward(ctx, grad, _):
    y, weight, *more = ctx.saved_tensors
    scaled = grad * ctx.scale
    if weight is None:
        return grad, scaled, None, [2 * grad * tensor for tensor in more]
    return grad, scaled * weight, scaled * y, [2 * grad * tensor for tensor in more]


torch_blend.register_autograd(_backward, setup_context=_setup_context)


class Model(torch.nn.Module):
    """The op with everything it has: all inputs present, one absent, and nothing variadic."""

    def forward(self, x, y, weight):
        mixed, best = torch_blend(x, y, weight, [x, y], scale=0.25, axis=0)
        again, last = torch_blend(mixed, y, None, [])
        return mixed, best, again, last


CALLS = [
    {"weight": True, "more": 2, "scale": 0.25, "axis": 0},
    {"weight": False, "more": 1},
    {"weight": False, "more": 0, "axis": 1},
]


def tensors(dtype=torch.float32, batch=4):
    generator = torch.Generator().manual_seed(batch)
    return [torch.randn(batch, 3, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3)]


def arguments(call, dtype=torch.float32):
    x, y, weight = tensors(dtype)
    attributes = {name: value for name, value in call.items() if name in ("scale", "axis")}
    return (x, y, weight if call["weight"] else None, [x, y][: call["more"]]), attributes


def plain(args, attributes):
    x, y, weight, more = args
    arrays = [None if item is None else item.detach().numpy() for item in (x, y, weight, *more)]
    return [np.asarray(result) for result in blend(*arrays, **attributes)]


def expected(args):
    """What plain calls of the op give for the model."""
    x, y, weight = args
    mixed, best = plain((x, y, weight, [x, y]), {"scale": 0.25, "axis": 0})
    return [mixed, best, *plain((torch.from_numpy(mixed), y, None, []), {})]


def as_arrays(results):
    return [np.asarray(result.detach() if isinstance(result, torch.Tensor) else result) for result in results]


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def test_plain_call():
    x, y = np.array([[1, 2], [3, 4]], np.float32), np.array([2, -4], np.float32)
    mixed, best = blend(x, y, np.float32(3) * np.ones_like(y), x, scale=0.5, axis=0)
    assert mixed.tolist() == [[1 + 3 + 1, 2 - 6 + 4], [3 + 3 + 9, 4 - 6 + 16]]
    assert best.tolist() == [1, 1]
    mixed, best = blend(x, y)
    assert mixed.tolist() == [[2, 0], [4, 2]]
    assert best.tolist() == [0, 0]


@DTYPES
@pytest.mark.parametrize("call", CALLS)
def test_torch_eager(call, dtype):
    args, attributes = arguments(call, dtype)
    assert_same(as_arrays(torch_blend(*args, **attributes)), plain(args, attributes))


@pytest.mark.parametrize("call", CALLS)
def test_opcheck(call):
    args, attributes = arguments(call)
    checked = torch.library.opcheck(torch_blend, args, attributes)
    assert set(checked.values()) == {"SUCCESS"}


@pytest.mark.parametrize("call", CALLS)
def test_gradcheck(call):
    args, attributes = arguments(call, torch.float64)
    x, y, weight, more = args
    leaves = [item.clone().requires_grad_() for item in (x, y, weight, *more) if item is not None]

    def function(*values):
        rest = list(values[2:])
        third = rest.pop(0) if call["weight"] else None
        return torch_blend(values[0], values[1], third, rest, **attributes)[0]

    assert torch.autograd.gradcheck(function, leaves)


@DTYPES
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(backend, dtype):
    compiled = torch.compile(Model(), backend=backend, fullgraph=True, dynamic=True)
    for batch in (4, 7):
        args = tensors(dtype, batch)
        assert_same(as_arrays(compiled(*args)), expected(args))


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=str)
def program(request):
    dims = {0: torch.export.Dim("batch")}
    args = tuple(tensors(request.param))
    return exporters.export(Model().eval(), args, dynamic_shapes=(dims, dims, dims), verbose=False)


def feed(program, batch):
    args = tensors({1: torch.float32, 11: torch.float64}[program.model.graph.inputs[0].dtype.value], batch)
    names = [item.name for item in program.model.graph.inputs]
    return args, dict(zip(names, (item.numpy() for item in args), strict=True))


@pytest.mark.parametrize("batch", [4, 9])
def test_dynamo_export_in_the_native_engine(program, batch):
    args, values = feed(program, batch)
    assert_same(pyops.InferenceSession(program).run(None, values), expected(args))
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    plain_session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)
    assert_same(plain_session.run(None, values), expected(args))


@pytest.mark.parametrize("batch", [4, 9])
def test_dynamo_export_in_the_reference_engine(program, batch):
    args, values = feed(program, batch)
    evaluator = ReferenceEvaluator(program.model_proto, new_ops=pyops.reference_ops(program))
    assert_same(evaluator.run(None, values), expected(args))


def test_checker_and_strict_shape_inference(program):
    model = program.model_proto
    del model.graph.value_info[:]
    with pyops.register_schemas():
        onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    shapes = [
        [dim.dim_param or dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in inferred.graph.output
    ]
    assert shapes == [["batch", 3], [3], ["batch", 3], ["batch"]]


def test_both_nodes_are_as_declared(program):
    first, second = [node for node in program.model_proto.graph.node if node.domain == "everywhere"]
    assert (len(first.input), list(second.input)[2:]) == (5, [""])
    assert {item.name: onnx.helper.get_attribute_value(item) for item in first.attribute} == {"scale": 0.25, "axis": 0}


def test_verify(program):
    args, _ = feed(program, 5)
    report = exporters.verify(Model(), tuple(args), program)
    assert report.ok, report
    assert max(item.absolute for item in report.outputs) == 0


@DTYPES
def test_torchscript_export(dtype):
    args = tensors(dtype)
    axes = {name: {0: "batch"} for name in ("x", "y", "weight")}
    exported = exporters.export(Model().eval(), tuple(args), dynamo=False, dynamic_axes=axes)
    names = [item.name for item in exported.model.graph.inputs]
    evaluator = ReferenceEvaluator(exported.model_proto, new_ops=pyops.reference_ops(exported))
    for batch in (4, 9):
        given = tensors(dtype, batch)
        values = dict(zip(names, (item.numpy() for item in given), strict=True))
        assert_same(pyops.InferenceSession(exported).run(None, values), expected(given))
        assert_same(evaluator.run(None, values), expected(given))
    with pyops.register_schemas():
        onnx.checker.check_model(exported.model_proto, full_check=True, check_custom_domain=True)
