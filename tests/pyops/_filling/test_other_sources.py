"""onnx's reference implementation, compared with torch, for operators that ONNX Runtime has for no type."""

import io
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import pyops
from pyops.errors import FilledNodeWarning

SHAPES = [(4,), (2, 3), (1, 5, 2)]
TRAINING = '<ir_version: 10, opset_import: ["": 22, "ai.onnx.preview.training": 1]>'


def run(text: str, header: str = '<ir_version: 10, opset_import: ["": 26]>', **feeds: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FilledNodeWarning)
        session = pyops.InferenceSession(onnx.parser.parse_model(header + text), fill_missing=True)
    return session.run(None, {name: np.asarray(value) for name, value in feeds.items()})


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def values(count: int, shape: tuple[int, ...]) -> list[Any]:
    generator = np.random.default_rng(len(shape))
    return [generator.standard_normal(shape, np.float32) for _ in range(count)]


OPTIMIZERS = {
    "Adagrad": (
        "{ u, h = ai.onnx.preview.training.Adagrad <epsilon = 1e-10> (r, t, x, g, s) }",
        lambda torch, x: torch.optim.Adagrad([x], lr=0.1),
        lambda state: state["sum"],
    ),
    "Momentum": (
        '{ u, h = ai.onnx.preview.training.Momentum <alpha = 0.9, beta = 1.0, mode = "standard", '
        "norm_coefficient = 0.0> (r, t, x, g, s) }",
        lambda torch, x: torch.optim.SGD([x], lr=0.1, momentum=0.9),
        lambda state: state["momentum_buffer"],
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_step_of_an_optimizer_is_torchs(name: str, shape: tuple[int, ...], torch: Any) -> None:
    text, make, kept = OPTIMIZERS[name]
    x, g = values(2, shape)
    parameter = torch.nn.Parameter(torch.tensor(x))
    optimizer = make(torch, parameter)
    state = np.zeros_like(x)
    for step in range(2):
        sizes = f"[{', '.join('abc'[: len(shape)])}]"
        inputs = f"float r, int64 t, float{sizes} x, float{sizes} g, float{sizes} s"
        header = f"main ({inputs}) => (float{sizes} u, float{sizes} h) "
        x, state = run(header + text, TRAINING, r=np.float32(0.1), t=np.int64(step), x=x, g=g, s=state)
        parameter.grad = torch.tensor(g)
        optimizer.step()
        np.testing.assert_allclose(x, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state, kept(optimizer.state[parameter]).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_of_adam_are_torchs(shape: tuple[int, ...], torch: Any) -> None:
    x, g = values(2, shape)
    parameter = torch.nn.Parameter(torch.tensor(x))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    v, h = np.zeros_like(x), np.zeros_like(x)
    sizes = f"[{', '.join('abc'[: len(shape)])}]"
    tensors = [f"float{sizes} {name}" for name in ("x", "g", "v", "h", "x1", "v1", "h1")]
    text = (
        f"main (float r, int64 t, {', '.join(tensors[:4])}) => ({', '.join(tensors[4:])}) "
        "{ x1, v1, h1 = ai.onnx.preview.training.Adam <alpha = 0.9, beta = 0.999, epsilon = 1e-8> (r, t, x, g, v, h) }"
    )
    for step in (1, 2, 3):
        x, v, h = run(text, TRAINING, r=np.float32(0.1), t=np.int64(step), x=x, g=g, v=v, h=h)
        parameter.grad = torch.tensor(g)
        optimizer.step()
        np.testing.assert_allclose(x, parameter.detach().numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(h, optimizer.state[parameter]["exp_avg_sq"].numpy(), rtol=1e-4, atol=1e-6)


def test_an_image_is_decoded_as_it_was_encoded() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "png")
    (y,) = run(
        'main (uint8[n] x) => (uint8[a, b, c] y) { y = ImageDecoder <pixel_format = "RGB"> (x) }',
        x=np.frombuffer(file.getvalue(), np.uint8),
    )
    np.testing.assert_array_equal(y, pixels)


def test_flex_attention_is_torchs(torch: Any) -> None:
    generator = np.random.default_rng(0)
    q, k, v = (generator.standard_normal((1, 2, 5, 4)) for _ in range(3))
    header = '<ir_version: 10, opset_import: ["": 26, "ai.onnx.preview": 1]>'
    text = (
        "main (double[b, h, s, d] q, double[b, h, s, d] k, double[b, h, s, d] v) => (double[b, h, s, d] y) "
        "{ y = ai.onnx.preview.FlexAttention (q, k, v) }"
    )
    (y,) = run(text, header, q=q, k=k, v=v)
    expected = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)))
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-6)


def test_casts_to_four_bits_round_to_the_nearest_value() -> None:
    finite = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)  # all that float4e2m1 has, besides their negatives
    x = np.array([0.1, 0.3, 0.8, 1.2, -1.8, -2.6, 3.4, 5.5, 100], np.float32)
    (y,) = run("main (float[n] x) => (float4e2m1[n] y) { y = Cast <to = 23> (x) }", x=x)
    nearest = finite[np.abs(np.abs(x)[:, np.newaxis] - finite).argmin(axis=1)] * np.sign(x)
    np.testing.assert_array_equal(y.astype(np.float32), nearest)


def test_four_bits_are_dequantized_by_their_values() -> None:
    x = np.array([1.5, -3, 6], ml_dtypes.float4_e2m1fn)
    text = "main (float4e2m1[n] x, float s) => (float[n] y) { y = DequantizeLinear (x, s) }"
    (y,) = run(text, x=x, s=np.float32(0.25))
    np.testing.assert_array_equal(y, x.astype(np.float32) * 0.25)


def test_bits_are_numpys() -> None:
    if not onnx.defs.has("BitCast"):
        pytest.skip("this onnx has no BitCast")
    x = np.array([True, False])
    (y,) = run("main (bool[n] x) => (uint8[n] y) { y = BitCast <to = 2> (x) }", x=x)
    np.testing.assert_array_equal(y, x.view(np.uint8))
    narrow = np.array([1.5, -2], ml_dtypes.float8_e5m2)
    (bits,) = run("main (float8e5m2[n] x) => (uint8[n] y) { y = BitCast <to = 2> (x) }", x=narrow)
    np.testing.assert_array_equal(bits, narrow.view(np.uint8))


@pytest.mark.parametrize(("name", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers_take_batches_first_as_they_take_time_first(name: str, gates: int) -> None:
    if onnx.defs.onnx_opset_version() < 28:
        pytest.skip("the reference implementation of onnx before 1.23 cannot do it")
    generator, rows = np.random.default_rng(0), 5 * gates
    x, w, r = (generator.standard_normal(shape, np.float32) for shape in ((3, 2, 4), (1, rows, 4), (1, rows, 5)))
    text = (
        f"main (float[a, b, c] x, float[1, {rows}, 4] w, float[1, {rows}, 5] r) => "
        f"(float[d, e, f, g] y, float[h, i, j] z) {{ y, z = {name} <hidden_size = 5, layout = %d> (x, w, r) }}"
    )
    first, last = run(text % 1, x=x, w=w, r=r)
    again, state = run(text % 0, x=np.ascontiguousarray(x.transpose(1, 0, 2)), w=w, r=r)
    np.testing.assert_allclose(first, again.transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, state.transpose(1, 0, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(6,), (2, 4), (3, 1, 2)], ids=str)
def test_swiglu_is_that_of_torch(shape: tuple[int, ...], torch: Any) -> None:
    if onnx.defs.onnx_opset_version() < 28:
        pytest.skip("this onnx has no SwiGLU")
    x, gate = values(2, shape)
    sizes = f"[{', '.join('abc'[: len(shape)])}]"
    text = f"main (float{sizes} x, float{sizes} g) => (float{sizes} y) {{ y = SwiGLU (g, x) }}"
    (y,) = run(text, '<ir_version: 10, opset_import: ["": 28]>', x=x, g=gate)
    expected = torch.nn.functional.silu(torch.tensor(gate)) * torch.tensor(x)
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-5, atol=1e-6)
