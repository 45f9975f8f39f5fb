"""Models that carry what their ops are, and run without pyops."""

from typing import Any, Literal, TypeVar

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import onnxruntime
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnxscript import opset18

import exporters
import pyops
from pyops._display.inspection import inspect
from pyops._onnx import bodies
from pyops.errors import DeclarationError
from pyops.shapes import RuntimeDim, SymbolicDim, TensorSpec
from pyops.testing import Sample, assert_close, check
from pyops.testing._decomposition_checks import model_with_body
from tests.helpers.tiers import first_quick

pytestmark = pytest.mark.usefixtures("own_registrations")

Float = TypeVar("Float", np.float16, np.float32, np.float64)


def clamped():
    @pyops.onnx_op("bodies::Clamped")
    def clamped(
        x: NDArray[Float], low: NDArray[Float] | None = None, high: NDArray[Float] | None = None
    ) -> NDArray[Float]:
        low = x.dtype.type(-1) if low is None else low
        return np.clip(x, low, high)

    @clamped.register_decomposition
    def _(x, low=None, high=None):
        x = torch.maximum(x, torch.full_like(x, -1.0) if low is None else low)
        return x if high is None else torch.minimum(x, high)

    return clamped, lambda x: (x, None, x + 1), {}


def total():
    @pyops.onnx_op("bodies::Total")
    def total(x: NDArray[Float], *others: NDArray[Float], scale: float = 0.1) -> NDArray[Float]:
        return (sum((other.astype(np.float64) for other in others), x.astype(np.float64)) * scale).astype(x.dtype)

    @total.register_decomposition
    def _(x, *others, scale):
        return sum(others, x) * scale

    return total, lambda x: (x, x + 1, x - 2), {"scale": 0.3}


def parts():
    @pyops.onnx_op("bodies::Parts")
    def parts(x: NDArray[Float], *, floor: bool = True) -> tuple[NDArray[Float], NDArray[np.int64]]:
        whole = np.floor(x) if floor else np.trunc(x)
        return x - whole, whole.astype(np.int64)

    @parts.register_decomposition
    def _(x, *, floor):
        whole = x.floor() if floor else x.trunc()
        return x - whole, whole.long()

    return parts, lambda x: (x,), {"floor": False}


def polynomial():
    @pyops.onnx_op("bodies::Polynomial")
    def polynomial(x: NDArray[Float], *, factors: list[float]) -> NDArray[Float]:
        return np.polyval([np.float64(item) for item in factors], x.astype(np.float64)).astype(x.dtype)

    @polynomial.register_decomposition
    def _(x, *, factors):
        result = torch.zeros_like(x)
        for factor in factors:
            result = result * x + factor
        return result

    return polynomial, lambda x: (x,), {"factors": [0.5, -1.0, 0.1]}


def looked_up():
    @pyops.onnx_op("bodies::LookedUp")
    def looked_up(x: NDArray[Float], *, table: np.ndarray) -> NDArray[Float]:
        return (x * table[: x.shape[-1]].astype(x.dtype)).astype(x.dtype)

    @looked_up.register_decomposition
    def _(x, *, table):
        return x * table[: x.shape[-1]].to(x.dtype)

    return looked_up, lambda x: (x,), {"table": np.arange(1, 9, dtype=np.float32)}


def spread():
    @pyops.onnx_op("bodies::Spread")
    def spread(x: NDArray[Float], *, axis: int = -1, kind: Literal["range", "mean"] = "range") -> NDArray[Float]:
        wide = x.astype(np.float64)
        found = wide.max(axis) - wide.min(axis) if kind == "range" else wide.max(axis) - wide.mean(axis)
        return found.astype(x.dtype)

    @spread.register_decomposition
    def _(x, *, axis, kind):
        return x.amax(axis) - (x.amin(axis) if kind == "range" else x.mean(axis))

    return spread, lambda x: (x,), {"axis": 0, "kind": "mean"}


OPS = [total, clamped, parts, polynomial, looked_up, spread]


@pytest.mark.parametrize("declare", first_quick(OPS))
def test_a_body_computes_what_the_op_is_without_pyops(declare):
    op, inputs, attributes = declare()
    x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
    report = check(op, *inputs(x), checks=["decomposition", "body"], **attributes)
    assert [result.status for result in report] == ["passed", "passed"], report
    sample = Sample(op, *inputs(x), **attributes)
    assert sample.expected() == ReferenceEvaluator(model_with_body(sample)).run(None, sample.feed)


def root_mean_square():
    @pyops.onnx_op("bodies::RootMeanSquare")
    def norm(x: NDArray[Float], w: NDArray[Float], *, eps: float = 1e-6) -> NDArray[Float]:
        return np.full_like(x, 7)  # so that a result shows what computed it

    @norm.register_shape_inference
    def _(x, w, *, eps):
        return x

    @norm.register_decomposition
    def _(x, w, *, eps):
        return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    return exporters.custom_op(norm, "bodies::root_mean_square")


class Norms(torch.nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.norm = norm
        self.weight = torch.nn.Parameter(torch.linspace(1, 2, 6))

    def forward(self, x):
        return self.norm(self.norm(x, self.weight), self.weight, eps=0.5)


def expected(x):
    weight = np.linspace(1, 2, 6)
    for eps in (1e-6, 0.5):
        x = weight * x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps)
    return x.astype(np.float32)


@pytest.mark.parametrize("opset_version", first_quick([18, 21, 23]))
def test_an_exported_model_runs_without_pyops_and_with_it_by_the_kernel(opset_version):
    model, x = Norms(root_mean_square()).eval(), torch.linspace(-1, 2, 18).reshape(3, 6)
    program = exporters.export(
        model, (x,), dynamic_shapes=({0: "n"},), opset_version=opset_version, bodies=True, verify=False
    )
    proto, feed = program.model_proto, {"x": np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)}
    onnx.checker.check_model(proto, full_check=True)
    onnx.shape_inference.infer_shapes(proto, strict_mode=True)
    plain = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert_close(plain.run(None, feed)[0], expected(feed["x"]))
    assert_close(ReferenceEvaluator(proto).run(None, feed)[0], expected(feed["x"]))
    inlined = onnx.inliner.inline_local_functions(proto)
    assert {node.domain for node in inlined.graph.node} == {""}
    assert_close(ReferenceEvaluator(inlined).run(None, feed)[0], expected(feed["x"]))
    assert (pyops.InferenceSession(proto).run(None, feed)[0] == 7).all()
    assert inspect(proto).bodies == (
        "bodies::RootMeanSquare: the kernel runs here, and the body of the model runs elsewhere, in ONNX Runtime for "
        "Float = float16, float32, float64",
    )
    program.optimize()
    assert (pyops.InferenceSession(program).run(None, feed)[0] == 7).all()


class Joined(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = root_mean_square()

    def forward(self, x, y, weight):
        return self.norm(torch.cat([x, y]), weight), self.norm(x[None], weight, eps=0.5)


def test_calls_of_other_ranks_and_of_sizes_that_are_sums_share_a_body():
    args, sizes = (torch.ones(3, 6), torch.ones(4, 6), torch.linspace(1, 2, 6)), ({0: "n"}, {0: "m"}, None)
    proto = exporters.export(Joined().eval(), args, dynamic_shapes=sizes, bodies=True, verify=False).model_proto
    assert len(proto.functions) == 1
    x, y = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    weight = np.linspace(1, 2, 6, dtype=np.float32)
    plain = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    one, two = plain.run(None, {"x": x, "y": y, "weight": weight})
    for result, given, eps in ((one, np.concatenate([x, y]), 1e-6), (two, x[None], 0.5)):
        scale = np.sqrt(np.square(given.astype(np.float64)).mean(-1, keepdims=True) + eps)
        assert_close(result, (weight * given / scale).astype(np.float32))


FUNCTIONS = """
<ir_version: 10, opset_import: ["": 20, "bodies": 1, "elsewhere": 1]> main (float[n] x) => (float[n] y) {
    z = elsewhere.Same(x)
    y = bodies.Error(z)
}
<domain: "elsewhere", opset_import: ["": 20]> Same (x) => (y) { y = Identity(x) }
<domain: "bodies", opset_import: ["": 20]> Error (x) => (y) { y = Erf(x) }"""


def test_inspect_says_what_runs_and_for_which_types():
    @pyops.onnx_op("bodies::Error")
    def error(x: NDArray[Float]) -> NDArray[Float]:
        return x

    report = inspect(onnx.parser.parse_model(FUNCTIONS))
    assert report.bodies == (
        "elsewhere::Same: the body of the model runs",
        "bodies::Error: the kernel runs here, and the body of the model runs elsewhere, in ONNX Runtime for "
        "Float = float16, float32, float64 (no: Erf)",
    )
    assert "float64 (no: Erf)" in str(report)


def test_a_model_has_one_body_of_an_op():
    op, _, _ = spread()
    op.register_shape_inference(lambda x, *, axis, kind: x.like(shape=x.shape[1 - axis : 2 - axis]))
    torch_op = exporters.custom_op(op, "bodies::spread")

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch_op(x, axis=0), torch_op(x, axis=1)

    with pytest.raises(exporters.ExportError, match="two calls of bodies::Spread need different bodies"):
        exporters.export(Model().eval(), (torch.ones(3, 3),), bodies=True, verify=False)


class Rows(torch.nn.Module):
    def __init__(self, torch_op) -> None:
        super().__init__()
        self.torch_op = torch_op

    def forward(self, x):
        return self.torch_op(x)[1] + 1


def test_an_op_with_a_variable_number_of_outputs_needs_a_shape_function_to_be_exported():
    @pyops.onnx_op("bodies::Rows")
    def rows(x: NDArray[Float]) -> tuple[NDArray[Float], ...]:
        return tuple(row + 7 for row in x)

    rows.register_decomposition(lambda x: tuple(x))
    with pytest.raises(exporters.ExportError, match="Rows has no shape function"):
        exporters.custom_op(rows, "bodies::rows")
    rows.register_shape_inference(lambda x: (x.like(shape=x.shape[1:]),) * x.shape[0])
    x = torch.arange(6.0).reshape(3, 2)
    model = Rows(exporters.custom_op(rows, "bodies::rows")).eval()
    proto = exporters.export(model, (x,), bodies=True, verify=False).model_proto
    assert pyops.InferenceSession(proto).run(None, {"x": x.numpy()})[0].tolist() == [10, 11]
    plain = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert plain.run(None, {"x": x.numpy()})[0].tolist() == [3, 4]


def test_an_op_without_a_decomposition_is_named():
    @pyops.onnx_op("bodies::Bare")
    def bare(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    bare.register_shape_inference(lambda x: x)
    torch_op = exporters.custom_op(bare, "bodies::bare")

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch_op(x)

    with pytest.warns(UserWarning, match="needs pyops for bodies::Bare"):
        exporters.export(Model().eval(), (torch.ones(3),), bodies=True)


def test_errors_name_the_line_of_the_declaration():
    @pyops.onnx_op("bodies::Wrong")
    def wrong(x: NDArray[np.float32]) -> NDArray[np.int64]:
        return x.astype(np.int64)

    with pytest.raises(DeclarationError, match=r"Wrong: the decomposition at .*test_bodies.py:\d+: .*parameters"):

        @wrong.register_decomposition
        def _(x, y):
            return x

    @wrong.register_decomposition
    def _(x):
        return x + 1

    with pytest.raises(DeclarationError, match=r"test_bodies.py:\d+ returns float32 for output 'output'.*int64"):
        model_with_body(Sample(wrong, np.ones(2, np.float32)))

    @wrong.register_decomposition
    def _(x):
        return x.long().reshape(7)

    with pytest.raises(DeclarationError, match=r"test_bodies.py:\d+ cannot be exported: .*shape"):
        model_with_body(Sample(wrong, np.ones(2, np.float32)))


UNUSUAL = {
    "an input": lambda x, *, a: x,
    "a function that takes numbers": lambda x, *, a: torch.nn.functional.layer_norm(x, (4,), eps=a),
    "a condition": lambda x, *, a: x if a > 0.2 else -x,
    "an operator of the library": lambda x, *, a: torch.nn.functional.gelu(x) * a,
    "a type": lambda x, *, a: x * a if isinstance(a, float) else x,
    "integers": lambda x, *, a: (x.long() * a).to(x.dtype),
    "a number alone": lambda x, *, a: torch.full_like(x, a),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("dtype", first_quick([np.float32, np.float16]))
def test_a_body_is_right_for_other_numbers_if_it_takes_them(name, dtype):
    @pyops.onnx_op("bodies::Unusual")
    def unusual(x: NDArray[Float], *, a: float = 0.3) -> NDArray[Float]:
        return x

    unusual.register_decomposition(UNUSUAL[name])
    sample = Sample(unusual, np.linspace(-4, 4, 12, dtype=dtype).reshape(3, 4), a=0.3)
    model, a = model_with_body(sample), 0.3
    if any(attribute.ref_attr_name for node in model.functions[0].node for attribute in node.attribute):
        model.graph.node[0].attribute[0].f = a = 0.7
    (expected,) = bodies.reference(unusual.decomposition, sample.inputs, {"a": a})
    plain = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    limit = 1e-6 if dtype is np.float32 else 4e-3
    np.testing.assert_allclose(plain.run(None, sample.feed)[0], expected, atol=limit, rtol=limit)


def test_a_type_with_limits_gets_a_body_of_its_own():
    @pyops.onnx_op("bodies::Masked")
    def masked(x: NDArray[Float], keep: NDArray[np.bool_]) -> NDArray[Float]:
        return np.where(keep, x, np.finfo(x.dtype).min)

    @masked.register_decomposition
    def _(x, keep):
        return torch.where(keep, x, torch.finfo(x.dtype).min)

    x = np.ones((2, 3), np.float32)
    report = check(masked, x, x > np.eye(2, 3), checks="body")
    assert report["body"].status == "passed"


@onnxscript.script(onnxscript.values.Opset("bodies", 1))
def scaled_in_onnx(x, bias, factor: float = 2.0):
    return opset18.Clip(x * opset18.CastLike(factor, x), bias)


def test_a_function_of_onnxscript_is_a_body_already():
    @pyops.onnx_op("bodies::Scaled")
    def scaled(x: NDArray[Float], bias: NDArray[Float] | None = None, *, factor: float = 2.0) -> NDArray[Float]:
        wide = (x * np.float64(factor)).astype(x.dtype)
        return wide if bias is None else np.maximum(wide, bias)

    scaled.register_decomposition(scaled_in_onnx)
    x = np.linspace(-2, 2, 6, dtype=np.float32)
    for inputs in ((x, np.array(0.5, np.float32)), (x,), (x, None)):
        report = check(scaled, *inputs, checks=["decomposition", "body"], factor=0.3)
        assert [result.status for result in report] == ["passed", "passed"], report


def test_a_function_of_onnxscript_takes_what_the_op_takes():
    @pyops.onnx_op("bodies::Other")
    def other(x: NDArray[Float], *, factor: float = 2.0) -> NDArray[Float]:
        return x

    with pytest.raises(DeclarationError, match=r"bodies::Other: .*test_bodies.py:\d+ has 2 inputs, 1 outputs"):
        other.register_decomposition(scaled_in_onnx)

    @pyops.onnx_op("bodies::Many")
    def many(*xs: NDArray[Float]) -> NDArray[Float]:
        return xs[0]

    with pytest.raises(DeclarationError, match="cannot be variadic"):
        many.register_decomposition(scaled_in_onnx)


def test_shapes_follow_from_the_body():
    n, spec = SymbolicDim("n"), TensorSpec
    assert spread()[0].infer_shapes(spec((n, 3, 4), np.float32), axis=1, kind="mean") == (spec((n, 4), np.float32),)
    inputs = spec((2, 3), np.float16), None, spec((3,), np.float16)
    assert clamped()[0].infer_shapes(*inputs) == (spec((2, 3), np.float16),)
    assert parts()[0].infer_shapes(spec((2,), np.float64)) == (spec((2,), np.float64), spec((2,), np.int64))


def test_shapes_that_depend_on_values_are_unknown():
    @pyops.onnx_op("bodies::Positive")
    def positive(x: NDArray[Float]) -> NDArray[Float]:
        return x[x > 0]

    @positive.register_decomposition
    def _(x):
        return x[x > 0]

    (found,) = positive.infer_shapes(TensorSpec((3,), np.float32))
    assert found.ndim == 1
    assert isinstance(found.shape[0], RuntimeDim)
