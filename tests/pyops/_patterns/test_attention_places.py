"""`pyops.replace` on attention and rotary embeddings as exporters write them."""

from typing import Any, TypeVar

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

import pyops
from pyops import onnx_op
from tests.helpers.tiers import first_quick

T = TypeVar("T", np.float16, np.float32, np.float64)

Q, K, V = ("float[b, 2, s, 8] q", "float[b, 2, s, 8] k", "float[b, 2, s, 8] v")


@pytest.fixture(scope="module", autouse=True)
def isolated():
    with pyops.testing.isolated_declarations():
        yield


def softmax(x: Any) -> Any:
    powers = np.exp(x - np.max(x, -1, keepdims=True))
    return powers / np.sum(powers, -1, keepdims=True)


@pytest.fixture(scope="module")
def masked_attention() -> Any:
    @onnx_op("attending::Masked")
    def masked(q: NDArray[T], k: NDArray[T], v: NDArray[T], mask: NDArray[np.bool], *, scale: float) -> NDArray[T]:
        scores = np.where(mask, q @ np.swapaxes(k, -1, -2) * q.dtype.type(scale), q.dtype.type(-np.inf))
        return (softmax(scores) @ v).astype(q.dtype)

    @masked.register_decomposition
    def _(q, k, v, mask, *, scale):
        scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf)
        return torch.softmax(scores, -1) @ v

    @masked.register_decomposition(pattern_only=True)
    def _(q, k, v, mask, *, scale):
        return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)

    return masked


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def check(model: onnx.ModelProto, op: Any, feed: dict[str, Any], **attributes: float) -> None:
    replaced = pyops.replace(model, [op], inputs=feed)
    assert replaced.counts == {op.signature.qualified_name: 1}, replaced
    assert replaced.places[0].attributes == pytest.approx(attributes)
    plain = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pyops.testing.assert_close(pyops.InferenceSession(replaced.model).run(None, feed), plain.run(None, feed))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*shares the same shape")  # of torch's own exporter
@pytest.mark.parametrize("opset", first_quick([18, 23]))
def test_torchs_own_export_of_attention_with_a_mask(masked_attention, opset):
    class Attention(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
            return functional.scaled_dot_product_attention(q, k, v, mask)

    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 2, 5, 8, generator=random) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    dims = {name: torch.export.Dim(name) for name in ("batch", "length")}
    whole = {0: dims["batch"], 2: dims["length"]}
    program = torch.onnx.export(
        Attention().eval(),
        (q, k, v, mask),
        dynamo=True,
        verbose=False,
        opset_version=opset,
        input_names=["q", "k", "v", "mask"],
        dynamic_shapes=(whole, whole, whole, {0: dims["length"], 1: dims["length"]}),
    )
    assert program is not None
    feed = {"q": q.numpy(), "k": k.numpy(), "v": v.numpy(), "mask": mask.numpy()}
    check(program.model_proto, masked_attention, feed, scale=8**-0.5)


@pytest.mark.parametrize(
    "mask", ["Where(mask, a, low)", "Where(other, low, a)", "Add(a, added)"], ids=["chosen", "replaced", "added"]
)
def test_a_mask_of_booleans_in_all_spellings(masked_attention, mask):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        main ({Q}, {K}, {V}, bool[s, s] mask) => (float[b, 2, s, 8] y)
        <float scale = {{0.25}}, float low = {{-inf}}, float zero = {{0}}> {{
            t = Transpose<perm=[0, 1, 3, 2]>(k)  u = Mul(t, scale)  a = MatMul(q, u)
            other = Not(mask)  added = Where(mask, zero, low)
            m = {mask}  p = Softmax<axis=-1>(m)  y = MatMul(p, v)
        }}"""
    )
    q, k, v = arrays((3, 2, 5, 8), (3, 2, 5, 8), (3, 2, 5, 8))
    check(model, masked_attention, {"q": q, "k": k, "v": v, "mask": np.tri(5, dtype=np.bool)}, scale=0.25)


def test_a_mask_that_is_too_large_to_be_infinite_is_another_mask(masked_attention):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        main ({Q}, {K}, {V}, bool[s, s] mask) => (float[b, 2, s, 8] y)
        <float scale = {{0.25}}, float low = {{-10000}}> {{
            t = Transpose<perm=[0, 1, 3, 2]>(k)  u = Mul(t, scale)  a = MatMul(q, u)
            m = Where(mask, a, low)  p = Softmax<axis=-1>(m)  y = MatMul(p, v)
        }}"""
    )
    replaced = pyops.replace(model, [masked_attention], verify=False)
    assert not replaced.places
    assert "-inf" in str(replaced)


def test_attributes_that_occur_in_one_factor_are_read_together():
    @onnx_op("attending::Softcapped")
    def softcapped(x: NDArray[T], y: NDArray[T], *, scale: float, cap: float) -> NDArray[T]:
        limit = x.dtype.type(cap)
        return (np.tanh(x @ y * x.dtype.type(scale) / limit) * limit).astype(x.dtype)

    @softcapped.register_decomposition
    def _(x, y, *, scale, cap):
        return torch.tanh(x @ y * scale / cap) * cap

    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        main (float[n, 8] x, float[8, m] y) => (float[n, m] z)
        <float scale = {0.25}, float cap = {50}> {
            a = MatMul(x, y)  b = Mul(a, scale)  c = Div(b, cap)  d = Tanh(c)  z = Mul(d, cap)
        }"""
    )
    x, y = arrays((5, 8), (8, 3))
    check(model, softcapped, {"x": x, "y": y}, scale=0.25, cap=50.0)


@pytest.mark.parametrize("batches", first_quick([3, 1]))
def test_rotary_embeddings_as_one_operator(batches):
    @onnx_op("attending::Rotary")
    def rotary(x: NDArray[T], cos: NDArray[T], sin: NDArray[T]) -> NDArray[T]:
        a, b = np.split(x, 2, -1)
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)

    @rotary.register_decomposition
    def _(x, cos, sin):
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    x_type, angles = f"float[{batches}, 2, s, 8]", f"float[{batches}, s, 4]"
    text = f"""<ir_version: 11, opset_import: ["": 23]>
    main ({x_type} x, {angles} cos, {angles} sin) => ({x_type} y) {{ y = RotaryEmbedding(x, cos, sin) }}"""
    x, cos, sin = arrays((batches, 2, 5, 8), (batches, 5, 4), (batches, 5, 4))
    if batches == 1:
        check(onnx.parser.parse_model(text), rotary, {"x": x, "cos": cos, "sin": sin})
    else:  # the op would need an axis for the heads
        assert not pyops.replace(onnx.parser.parse_model(text), [rotary], verify=False).places


@pytest.mark.parametrize("first", [-1, 6])
def test_axes_that_are_swapped_while_others_are_one(first):
    @onnx_op("attending::Scores")
    def scores(q: NDArray[T], k: NDArray[T]) -> NDArray[T]:
        return q @ np.swapaxes(k, -1, -2)

    @scores.register_decomposition
    def _(q, k):
        return q @ k.transpose(-1, -2)

    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        main (float[3, 2, 5, 8] q, float[3, 2, 5, 8] k) => (float[3, 2, 5, 5] y)
        <int64[3] flat = {{{first}, 5, 8}}, int64[4] whole = {{3, 2, 8, 5}}> {{
            f = Reshape(k, flat)  t = Transpose<perm=[0, 2, 1]>(f)  u = Reshape(t, whole)  y = MatMul(q, u)
        }}"""
    )
    q, k = arrays((3, 2, 5, 8), (3, 2, 5, 8))
    check(model, scores, {"q": q, "k": k})
