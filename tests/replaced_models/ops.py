"""The ops that are searched: layers of transformers, with kernels in NumPy and decompositions in torch."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from pyops import Op, onnx_op

T = TypeVar("T", np.float16, np.float32, np.float64)
Array = NDArray[Any]


def _wide(*arrays: Array) -> Any:
    """Return arrays in the type in which half precision is computed."""
    return [item.astype(np.float32) if item.dtype == np.float16 else item for item in arrays]


@onnx_op("replaced_models::OffsetRmsNorm")
def offset_rms_norm(x: NDArray[T], weight: NDArray[T], *, eps: float = 1e-6) -> NDArray[T]:
    """Normalize rows, and multiply them by one plus the weight, as Gemma does."""
    wide, own = _wide(x, weight)
    return (wide / np.sqrt(np.mean(wide * wide, -1, keepdims=True) + wide.dtype.type(eps)) * (1 + own)).astype(x.dtype)


@offset_rms_norm.register_decomposition
def _(x: Any, weight: Any, *, eps: float) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1.0 + weight)


@onnx_op("replaced_models::RmsNorm")
def rms_norm(x: NDArray[T], weight: NDArray[T], *, eps: float = 1e-6) -> NDArray[T]:
    """Normalize rows, and multiply them by the weight."""
    wide, own = _wide(x, weight)
    return (wide / np.sqrt(np.mean(wide * wide, -1, keepdims=True) + wide.dtype.type(eps)) * own).astype(x.dtype)


@rms_norm.register_decomposition
def _(x: Any, weight: Any, *, eps: float) -> Any:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


@onnx_op("replaced_models::LayerNorm")
def layer_norm(x: NDArray[T], weight: NDArray[T], bias: NDArray[T], *, eps: float = 1e-5) -> NDArray[T]:
    """Normalize rows around their mean."""
    wide, factor, term = _wide(x, weight, bias)
    centred = wide - np.mean(wide, -1, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, -1, keepdims=True) + wide.dtype.type(eps))
    return (centred / deviation * factor + term).astype(x.dtype)


@layer_norm.register_decomposition
def _(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps) * weight + bias


@onnx_op("replaced_models::Rotary")
def rotary(x: NDArray[T], cos: NDArray[T], sin: NDArray[T]) -> NDArray[T]:
    """Rotate pairs of elements of a row by angles, of which there are as many as elements, or as pairs."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    if cos.shape[-1] == half:
        return np.concatenate((first * cos - second * sin, second * cos + first * sin), -1)
    return x * cos + np.concatenate((-second, first), -1) * sin


@rotary.register_decomposition
def _(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


@rotary.register_decomposition(pattern_only=True)
def _(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


@onnx_op("replaced_models::SwiGlu")
def swiglu(gate: NDArray[T], up: NDArray[T]) -> NDArray[T]:
    """Multiply by ``gate * sigmoid(gate)``."""
    a, b = _wide(gate, up)
    with np.errstate(over="ignore"):
        return (a / (1 + np.exp(-a)) * b).astype(gate.dtype)


@swiglu.register_decomposition
def _(gate: Any, up: Any) -> Any:
    return functional.silu(gate) * up


@onnx_op("replaced_models::GeGlu")
def geglu(gate: NDArray[T], up: NDArray[T]) -> NDArray[T]:
    """Multiply by GELU, approximated by tanh."""
    a, b = _wide(gate, up)
    root = a.dtype.type(math.sqrt(2 / math.pi))
    inner = np.tanh(root * (a + a.dtype.type(0.044715) * a * a * a))
    return (a.dtype.type(0.5) * a * (1 + inner) * b).astype(gate.dtype)


@geglu.register_decomposition
def _(gate: Any, up: Any) -> Any:
    return functional.gelu(gate, approximate="tanh") * up


@onnx_op("replaced_models::Gelu")
def gelu(x: NDArray[T]) -> NDArray[T]:
    """Multiply by the cumulative distribution function of the normal distribution."""
    from scipy.special import erf

    (wide,) = _wide(x)
    half, root = map(wide.dtype.type, (0.5, math.sqrt(0.5)))
    return (half * wide * (1 + erf(wide * root))).astype(x.dtype)


@gelu.register_decomposition
def _(x: Any) -> Any:
    return functional.gelu(x)


def _attention(scores: Array, v: Array, dtype: Any) -> Array:
    powers = np.exp(scores - np.max(scores, -1, keepdims=True))
    return (powers / np.sum(powers, -1, keepdims=True) @ v).astype(dtype)


def _scores(q: Array, k: Array, scale: float) -> Array:
    return q @ np.swapaxes(k, -1, -2) * q.dtype.type(scale)


@onnx_op("replaced_models::Attention")
def attention(q: NDArray[T], k: NDArray[T], v: NDArray[T], mask: NDArray[T], *, scale: float = 1.0) -> NDArray[T]:
    """Attend, with a mask that is added to the scores."""
    a, b, c, added = _wide(q, k, v, mask)
    return _attention(_scores(a, b, scale) + added, c, q.dtype)


@attention.register_decomposition
def _(q: Any, k: Any, v: Any, mask: Any, *, scale: float) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * scale + mask, -1) @ v


@attention.register_decomposition(pattern_only=True)
def _(q: Any, k: Any, v: Any, mask: Any, *, scale: float) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)


@onnx_op("replaced_models::MaskedAttention")
def masked_attention(
    q: NDArray[T], k: NDArray[T], v: NDArray[T], mask: NDArray[np.bool], *, scale: float = 1.0
) -> NDArray[T]:
    """Attend where a mask is true."""
    a, b, c = _wide(q, k, v)
    return _attention(np.where(mask, _scores(a, b, scale), a.dtype.type(-np.inf)), c, q.dtype)


@masked_attention.register_decomposition
def _(q: Any, k: Any, v: Any, mask: Any, *, scale: float) -> Any:
    return torch.softmax((q @ k.transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf), -1) @ v


@masked_attention.register_decomposition(pattern_only=True)
def _(q: Any, k: Any, v: Any, mask: Any, *, scale: float) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)


@onnx_op("replaced_models::WholeAttention")
def whole_attention(q: NDArray[T], k: NDArray[T], v: NDArray[T], *, scale: float = 1.0) -> NDArray[T]:
    """Attend without a mask."""
    a, b, c = _wide(q, k, v)
    return _attention(_scores(a, b, scale), c, q.dtype)


@whole_attention.register_decomposition
def _(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * scale, -1) @ v


@whole_attention.register_decomposition(pattern_only=True)
def _(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, scale=scale)


@onnx_op("replaced_models::CausalAttention")
def causal_attention(q: NDArray[T], k: NDArray[T], v: NDArray[T], *, scale: float = 1.0) -> NDArray[T]:
    """Attend to earlier rows."""
    a, b, c = _wide(q, k, v)
    scores = _scores(a, b, scale)
    return _attention(np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, a.dtype.type(-np.inf)), c, q.dtype)


@causal_attention.register_decomposition
def _(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    earlier = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    return torch.softmax((q @ k.transpose(-1, -2) * scale).masked_fill(~earlier, -torch.inf), -1) @ v


@causal_attention.register_decomposition(pattern_only=True)
def _(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


@onnx_op("replaced_models::SoftcappedAttention")
def softcapped_attention(
    q: NDArray[T], k: NDArray[T], v: NDArray[T], mask: NDArray[T], *, scale: float = 1.0, cap: float = 50.0
) -> NDArray[T]:
    """Attend, with scores that a tanh limits before a mask is added, as Gemma 2 does."""
    a, b, c, added = _wide(q, k, v, mask)
    limit = a.dtype.type(cap)
    return _attention(np.tanh(_scores(a, b, scale) / limit) * limit + added, c, q.dtype)


@softcapped_attention.register_decomposition
def _(q: Any, k: Any, v: Any, mask: Any, *, scale: float, cap: float) -> Any:
    return torch.softmax(torch.tanh(q @ k.transpose(-1, -2) * scale / cap) * cap + mask, -1) @ v


@onnx_op("replaced_models::BiasedAttention")
def biased_attention(
    q: NDArray[T], k: NDArray[T], v: NDArray[T], bias: NDArray[T], mask: NDArray[T], *, scale: float = 1.0
) -> NDArray[T]:
    """Attend, with a bias and a mask that are added to the scores one after the other, as T5 does."""
    a, b, c, first, second = _wide(q, k, v, bias, mask)
    return _attention(_scores(a, b, scale) + first + second, c, q.dtype)


@biased_attention.register_decomposition
def _(q: Any, k: Any, v: Any, bias: Any, mask: Any, *, scale: float) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * scale + bias + mask, -1) @ v


LAYERS: dict[str, tuple[Op[..., Any], ...]] = {
    "RMSNorm": (offset_rms_norm, rms_norm),
    "LayerNorm": (layer_norm,),
    "rotary": (rotary,),
    "SwiGLU": (swiglu,),
    "GeGLU": (geglu,),
    "GELU": (gelu,),
    "attention": (
        softcapped_attention,
        attention,
        biased_attention,
        masked_attention,
        causal_attention,
        whole_attention,
    ),
}
"""The kinds of layers, and the ops that compute them; of several, one fits a model."""
