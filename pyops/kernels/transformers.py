"""Layers of transformers: each with the formula that it is in torch, a kernel in NumPy, and one that numba compiles.

The compiled kernel runs on the CPU, if numba is installed, and the other one elsewhere, which computes half precision
in float32, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import Op, onnx_op
from ._declarations import EVERYWHERE, Float, first_spec, in_float32, variant

_ROOT = math.sqrt(2 / math.pi)
# The coefficients of the exponent for which x / (1 + exp(...)) is the approximation of GELU by tanh.
_GELU = -2 * _ROOT, -2 * _ROOT * 0.044715

F = TypeVar("F", bound=Callable[..., Any])


def _compiled(op: Op[..., Any], parallel: str) -> Callable[[F], F]:
    """Register the decorated function as the compiled kernel of an op; without numba, the declared one runs."""

    def register(function: F) -> F:
        function.__doc__ = op.__doc__
        return op.register_kernel("cpu", compile="try", parallel=parallel)(function)

    return register


@onnx_op("pyops::RmsNorm", device_types=EVERYWHERE)
def rms_norm(
    x: NDArray[Float], weight: NDArray[Float], *, eps: float = 1e-6, out: NDArray[Float] | None = None
) -> NDArray[Float]:
    """Divide each row by the root of the mean of its squares, and multiply it by weights.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (..., N).
    weight : array of the dtype of `x`
        (N,).
    eps : float
        Added to the mean of the squares.

    Returns
    -------
    array of the dtype of `x`
        (..., N).

    Raises
    ------
    ValueError
        `weight` has another shape.
    """
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"weight has shape {weight.shape}; the rows of x have {x.shape[-1]} elements")

    def normalize(x: Any, weight: Any) -> Any:
        xp = array_namespace(x)
        return weight * (x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(eps)))

    return in_float32(normalize, x, weight)


rms_norm.register_shape_inference(first_spec)


@rms_norm.register_decomposition
def _(x: Any, weight: Any, *, eps: float) -> Any:
    return weight * (x * (x.square().mean(-1, keepdim=True) + eps).rsqrt())


@_compiled(rms_norm, "(n),(n)->(n)")
def _(x, weight, *, eps=1e-6, out=None):  # type: ignore[no-untyped-def]  # numba infers them
    n = x.shape[-1]
    if weight.shape != (n,):
        raise ValueError("the weights are not as many as the elements of a row")
    if out is None:
        out = np.empty_like(x)
    rows, results = x.reshape(-1, n), out.reshape(-1, n)
    for i in range(len(rows)):
        row, result = rows[i], results[i]
        factor = x.dtype.type(1) / np.sqrt(np.sum(row * row) / x.dtype.type(n) + x.dtype.type(eps))
        for j in range(n):
            result[j] = weight[j] * (row[j] * factor)
    return out


def _gated(op_type: str, exponent: Callable[..., Any], activation: Callable[[Any], Any], formula: str) -> Op[..., Any]:
    """Declare an op that multiplies ``gate / (1 + exp(exponent(gate)))``, which torch knows as an activation."""

    @onnx_op(f"pyops::{op_type}", device_types=EVERYWHERE)
    @variant(op_type.lower(), formula=formula)
    def kernel(gate: NDArray[Float], up: NDArray[Float], *, out: NDArray[Float] | None = None) -> NDArray[Float]:
        """Multiply by a gate: {formula}.

        Parameters
        ----------
        gate, up : array of float16, bfloat16, float32 or float64
            Of one shape and dtype.

        Returns
        -------
        array of the dtype of `gate`
            Of their shape.

        Raises
        ------
        ValueError
            The shapes differ.
        """
        if gate.shape != up.shape:
            raise ValueError(f"gate has shape {gate.shape}, and up has {up.shape}; they must be equal")

        def multiply(gate: Any, up: Any) -> Any:
            return gate / (1 + array_namespace(gate).exp(exponent(gate, *map(gate.dtype.type, _GELU)))) * up

        return in_float32(multiply, gate, up)

    kernel.register_shape_inference(first_spec)
    kernel.register_decomposition(lambda gate, up: activation(gate) * up)

    @_compiled(kernel, "(),()->()")
    def _(gate, up, *, out=None):  # type: ignore[no-untyped-def]  # numba infers them
        if gate.shape != up.shape:
            raise ValueError("gate and up differ in shape")
        if out is None:
            out = np.empty_like(gate)
        gates, ups, results = gate.reshape(-1), up.reshape(-1), out.reshape(-1)
        one, linear, cubic = gate.dtype.type(1), gate.dtype.type(_GELU[0]), gate.dtype.type(_GELU[1])
        for i in range(gates.size):
            results[i] = gates[i] / (one + np.exp(exponent(gates[i], linear, cubic))) * ups[i]
        return out

    return kernel


swiglu = _gated(
    "SwiGlu", lambda g, linear, cubic: -g, lambda gate: gate * gate.sigmoid(), "``gate * sigmoid(gate) * up``"
)
geglu = _gated(
    "GeGlu",
    lambda g, linear, cubic: g * (linear + cubic * g * g),
    lambda gate: 0.5 * gate * (1 + (_ROOT * (gate + 0.044715 * gate.pow(3))).tanh()),
    "``gelu(gate) * up``, with the approximation of GELU by tanh",
)


@onnx_op("pyops::RotaryEmbedding", device_types=EVERYWHERE)
def rotary_embedding(
    x: NDArray[Float], cos: NDArray[Float], sin: NDArray[Float], *, out: NDArray[Float] | None = None
) -> NDArray[Float]:
    """Rotate pairs of elements, each of one from the first and one from the second half of a row, by angles.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64
        (..., N), for an even N.
    cos, sin : array of the dtype of `x`
        (..., N) or (..., N / 2), where the dimensions before the last broadcast to those of `x`. The cosine and the
        sine for each element, or for each pair.

    Returns
    -------
    array of the dtype of `x`
        (..., N).

    Raises
    ------
    ValueError
        N is odd, or `cos` and `sin` have another width.
    """
    half = x.shape[-1] // 2
    if x.shape[-1] != 2 * half or cos.shape[-1:] != sin.shape[-1:] or cos.shape[-1] not in (half, 2 * half):
        raise ValueError(f"x has rows of {x.shape[-1]}, cos of {cos.shape[-1]} and sin of {sin.shape[-1]} elements")

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x[..., :half], x[..., half:]
        of_first, of_second = (slice(0, half), slice(cos.shape[-1] - half, None))
        parts = (
            first * cos[..., of_first] - second * sin[..., of_first],
            second * cos[..., of_second] + first * sin[..., of_second],
        )
        return array_namespace(x).concat(parts, axis=-1)

    return in_float32(rotate, x, cos, sin)


rotary_embedding.register_shape_inference(first_spec)


@rotary_embedding.register_decomposition
def _(x: Any, cos: Any, sin: Any) -> Any:
    import torch

    if cos.shape[-1] < x.shape[-1]:
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


@_compiled(rotary_embedding, "(n),(m),(m)->(n)")
def _(x, cos, sin, *, out=None):  # type: ignore[no-untyped-def]  # numba infers them
    n, m = x.shape[-1], cos.shape[-1]
    half = n // 2
    if n != 2 * half or m != sin.shape[-1] or (m != half and m != n):
        raise ValueError("the rows of x, cos and sin do not fit")
    if out is None:
        out = np.empty_like(x)
    rows, results, cosines, sines = x.reshape(-1, n), out.reshape(-1, n), cos.reshape(-1, m), sin.reshape(-1, m)
    # The row of angles for each row of x.
    of_cosines = np.broadcast_to(np.arange(len(cosines)).reshape(cos.shape[:-1]), x.shape[:-1]).flatten()
    of_sines = np.broadcast_to(np.arange(len(sines)).reshape(sin.shape[:-1]), x.shape[:-1]).flatten()
    for k in range(len(rows)):
        row, result, c, s = rows[k], results[k], cosines[of_cosines[k]], sines[of_sines[k]]
        first, second, c_second, s_second = row[:half], row[half:], c[m - half :], s[m - half :]
        low, high = result[:half], result[half:]
        for i in range(half):
            one, two = first[i], second[i]
            low[i] = one * c[i] - two * s[i]
            high[i] = two * c_second[i] + one * s_second[i]
    return out
