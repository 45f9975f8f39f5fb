"""Lowering of layers (convolutions, normalization, attention, LSTMs) where torch's exporter or ONNX Runtime fails."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from pyops.kernels import pooling

from .._lowering.node_emission import opset
from .._torch.private.onnx_exporter import recorded_nodes, recording
from ..errors import ExportError
from .operands import by_torch, constant, dtype_of, like, onnx_ops, transposed, vector, widened
from .row_table import lower


@lower("aten::convolution", replaces=True)
def _convolution(input: Any, weight: Any, bias: Any, **given: Any) -> Any:
    # ONNX Runtime rejects a transposed convolution whose output padding is as large as a stride.
    stride, padding, more = given["stride"], given["padding"], given["output_padding"]
    if not given["transposed"] or all(size < step for size, step in zip(more, stride, strict=False)):
        return NotImplemented
    none = [0] * len(stride)
    whole = by_torch("aten::convolution", input, weight, None, **{**given, "padding": none, "output_padding": none})
    others = [0] * (len(input.shape) - len(stride))
    begins = [-size for size in padding]
    ends = [after - size for after, size in zip(more, padding, strict=True)]
    padded = onnx_ops.Pad(whole, constant([*others, *begins, *others, *ends]))
    return padded if bias is None else onnx_ops.Add(padded, onnx_ops.Reshape(bias, constant([-1] + [1] * len(stride))))


def _spread(numbers: Sequence[int] | int, rank: int) -> list[int]:
    """Return one number per dimension; torch accepts a single one for all."""
    return ([numbers] * rank if isinstance(numbers, int) else list(numbers) * rank)[:rank]


@lower("aten::replication_pad1d", replaces=True)
@lower("aten::replication_pad2d", replaces=True)
@lower("aten::replication_pad3d", replaces=True)
def _replication_pad(self: Any, padding: Sequence[Any]) -> Any:
    if not any(isinstance(size, int) and size < 0 for size in padding):
        return NotImplemented
    axes = constant([len(self.shape) - 1 - back for back in range(len(padding) // 2)])
    before, after, zero = vector(padding[::2]), vector(padding[1::2]), constant(0)
    padded = onnx_ops.Pad(self, onnx_ops.Max(onnx_ops.Concat(before, after, axis=0), zero), None, axes, mode="edge")
    ends = onnx_ops.Where(onnx_ops.Less(after, zero), after, constant(2**63 - 1))
    return onnx_ops.Slice(padded, onnx_ops.Neg(onnx_ops.Min(before, zero)), ends, axes)


@lower("aten::pad", replaces=True)
def _pad(self: Any, pad: Sequence[Any], mode: str = "constant", **_: Any) -> Any:
    return _replication_pad(self, pad) if mode == "replicate" else NotImplemented


def _avg_pool(rank: int) -> Callable[..., Any]:
    def translation(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        divisor_override: int | None = None,
        **_: Any,
    ) -> Any:
        # ONNX's AveragePool has every argument but divisor_override, which leaves count_include_pad without effect.
        if divisor_override is None:
            return NotImplemented
        windows = list(
            zip(*(_spread(item, rank) for item in (kernel_size, stride or kernel_size, padding)), strict=True)
        )
        # A window may reach beyond the padding at the end, but not begin there.
        ends = [pad + ceil_mode * (min(step, size - pad) - 1) for size, step, pad in windows]
        others = [0] * (len(self.shape) - rank)
        x = widened(self)
        total = onnx_ops.Pad(x, constant([*others, *(pad for *_, pad in windows), *others, *ends]))
        for axis, (size, step, _pad) in enumerate(windows, len(others)):
            total = _window_sums(total, axis, size, step)
        return onnx_ops.CastLike(onnx_ops.Div(total, like(divisor_override, x)), self)

    return translation


def _window_sums(x: Any, axis: int, size: int, step: int) -> Any:
    """Return the sums of windows of `size` elements, `step` apart."""
    ends = [first - size + 1 or np.iinfo(np.int64).max for first in range(size)]
    parts = (
        onnx_ops.Slice(x, constant([first]), constant([end]), constant([axis]), constant([step]))
        for first, end in enumerate(ends)
    )
    return functools.reduce(onnx_ops.Add, parts)


def _adaptive_avg_pool(self: Any, output_size: Sequence[Any]) -> Any:
    # torch's own nodes are for the example's size alone.
    sizes = list(self.shape)[-len(output_size) :]
    lengths = [size // count for size, count in zip(sizes, output_size, strict=True) if _divides(count, size)]
    if len(lengths) == len(sizes) == len(self.shape) - 2 and dtype_of(self) != torch.bfloat16:
        return onnx_ops.AveragePool(self, kernel_shape=lengths, strides=lengths)
    x = widened(self)
    for axis, count in enumerate(output_size, len(self.shape) - len(sizes)):
        x = _adaptive_means(x, axis, len(self.shape), count)
    return onnx_ops.CastLike(x, self)


def _divides(count: Any, size: Any) -> bool:
    return isinstance(count, int) and isinstance(size, int) and count > 0 == size % count


def _adaptive_means(x: Any, axis: int, rank: int, count: Any) -> Any:
    """Return the means of the windows along an axis.

    Window i of m along n positions begins at floor(i n / m) and ends before ceil((i + 1) n / m).
    """
    zero, one, m = constant(0), constant(1), constant(count) if isinstance(count, int) else count
    n, i = onnx_ops.Gather(onnx_ops.Shape(x), constant(axis), axis=0), onnx_ops.Range(zero, m, one)
    starts = onnx_ops.Div(onnx_ops.Mul(i, n), m)
    ends = onnx_ops.Div(onnx_ops.Add(onnx_ops.Mul(onnx_ops.Add(i, one), n), onnx_ops.Sub(m, one)), m)
    lengths = onnx_ops.Unsqueeze(onnx_ops.Sub(ends, starts), one)
    longest = onnx_ops.ReduceMax(onnx_ops.Concat(constant([[0]]), lengths, axis=0), keepdims=0)
    positions = onnx_ops.Range(zero, longest, one)
    places = onnx_ops.Min(onnx_ops.Add(onnx_ops.Unsqueeze(starts, one), positions), onnx_ops.Sub(n, one))
    # The windows' lengths, and which positions are inside, broadcast over the axes that follow.
    following = constant(np.arange(2, rank - axis + 1))
    inside = onnx_ops.Unsqueeze(onnx_ops.Less(positions, lengths), following)
    values = onnx_ops.Where(inside, onnx_ops.Gather(x, places, axis=axis), like(0, x))
    means = onnx_ops.Div(
        onnx_ops.ReduceSum(values, constant([axis + 1])), onnx_ops.CastLike(onnx_ops.Unsqueeze(lengths, following), x)
    )
    return onnx_ops.Squeeze(means, constant([axis + 1]))


lower("aten::adaptive_avg_pool1d", replaces=True)(_adaptive_avg_pool)
for _rank in (2, 3):
    lower(f"aten::_adaptive_avg_pool{_rank}d", replaces=True)(_adaptive_avg_pool)
for _rank in (2, 3):
    lower(f"aten::avg_pool{_rank}d", replaces=True)(_avg_pool(_rank))
    lower(f"aten::adaptive_max_pool{_rank}d")(pooling.adaptive_max_pool)
    lower(f"aten::fractional_max_pool{_rank}d")(pooling.fractional_max_pool)


@lower("aten::grid_sampler_3d")
def _grid_sampler_3d(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    # GridSample takes volumes from opset 20 on; ONNX Runtime has it for float32 and float64.
    x, places = widened(input), widened(grid)
    sampled = opset("", 20).GridSample(
        x,
        places,
        mode=("linear", "nearest")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
        align_corners=int(align_corners),
    )
    return onnx_ops.CastLike(sampled, input)


@lower("aten::native_dropout", replaces=True)
def _dropout(input: Any, p: float, train: bool | None) -> Any:
    if p != 1 or train is False:
        return NotImplemented
    # ONNX Runtime rejects a ratio of 1. The product keeps NaN, as torch does.
    kept = onnx_ops.Expand(constant(False), onnx_ops.Shape(input))
    return onnx_ops.Mul(input, like(0.0, input)), kept


# torch's decomposition of batch normalization asks for the number of elements.
lower("aten::sym_numel")(lambda self: onnx_ops.Size(self))


@lower("aten::scaled_dot_product_attention", replaces=True)
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    width, heads = query.shape[-1], [item.shape[-3] for item in (query, key, value)] if enable_gqa else []
    if dropout_p or not all(isinstance(size, int) for size in (width, *heads)):
        return NotImplemented
    # In four dimensions, torch's nodes are wrong only for a row that is masked as a whole, and only before opset 23.
    if {len(item.shape) for item in (query, key, value)} == {4} and (attn_mask is None or recording()[1] >= 23):
        return NotImplemented
    if enable_gqa:
        key, value = (_with_heads(item, heads[0]) for item in (key, value))
    factor = like(1 / math.sqrt(width) if scale is None else scale, query)
    scores = onnx_ops.MatMul(onnx_ops.Mul(query, factor), transposed(key))
    least = like(-math.inf, query)
    if is_causal:
        lower_half = onnx_ops.Trilu(onnx_ops.Expand(like(1.0, query), onnx_ops.Shape(scores, start=-2)), upper=0)
        scores = onnx_ops.Where(onnx_ops.Cast(lower_half, to=onnx_ir.DataType.BOOL), scores, least)
    if attn_mask is not None:
        masked = attn_mask.dtype == onnx_ir.DataType.BOOL
        scores = onnx_ops.Where(attn_mask, scores, least) if masked else onnx_ops.Add(scores, attn_mask)
    result = onnx_ops.MatMul(onnx_ops.Softmax(scores, axis=-1), value)
    if attn_mask is None:
        return result
    # Where everything is masked, torch returns 0, and Softmax NaN.
    hidden = onnx_ops.Not(attn_mask) if masked else onnx_ops.Equal(attn_mask, least)
    flags = onnx_ops.ReduceMin(onnx_ops.Cast(hidden, to=onnx_ir.DataType.UINT8), constant([-1]))
    return onnx_ops.Where(onnx_ops.Cast(flags, to=onnx_ir.DataType.BOOL), like(0.0, query), result)


def _with_heads(x: Any, heads: int) -> Any:
    """Return keys or values with each head repeated, one after the other, up to a number of heads."""
    *batch, few, size, width = x.shape
    if few == heads:
        return x
    times = constant([*[1] * len(batch), 1, heads // few, 1, 1])
    sizes = [onnx_ops.Shape(x, end=len(batch)), constant([heads]), onnx_ops.Shape(x, start=-2)]
    spread = onnx_ops.Expand(onnx_ops.Unsqueeze(x, constant([-3])), times)
    result: Any = onnx_ops.Reshape(spread, onnx_ops.Concat(*sizes, axis=0))
    result.shape = onnx_ir.Shape([*batch, heads, size, width])
    return result


@lower("aten::lstm.input", replaces=True)
def _lstm(
    input: Any,
    hx: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    **given: Any,
) -> Any:
    directions = 2 if bidirectional else 1
    if len(params) != num_layers * directions * (5 if has_biases else 3):
        return NotImplemented
    if given["train"] and given["dropout"]:
        raise ExportError("an LSTM with dropout in training mode is random; call model.eval() before the export")
    # (time, batch, width), the layout of ONNX's LSTM.
    values = onnx_ops.Transpose(input, perm=[1, 0, 2]) if batch_first else input
    weights, last_hidden, last_cells = iter(params), [], []
    for layer in range(num_layers):
        found = []
        for backward in range(directions):
            state = [onnx_ops.Gather(item, constant(layer * directions + backward), axis=0) for item in hx]
            hidden, cell, outputs = _scan(values, input.dtype, state, weights, has_biases, backward)
            found.append(outputs)
            last_hidden.append(hidden)
            last_cells.append(cell)
        values = onnx_ops.Concat(*found, axis=-1) if bidirectional else found[0]
    output = onnx_ops.Transpose(values, perm=[1, 0, 2]) if batch_first else values
    return output, _stacked(last_hidden), _stacked(last_cells)


def _scan(
    values: Any, dtype: onnx_ir.DataType, state: Sequence[Any], weights: Iterator[Any], has_biases: bool, backward: int
) -> Any:
    """Return the last hidden state, the last cell, and the hidden states of all steps of one layer in one direction."""
    inputs, hidden = (onnx_ops.Transpose(next(weights), perm=[1, 0]) for _ in range(2))
    gates = onnx_ops.MatMul(values, inputs)
    if has_biases:
        gates = onnx_ops.Add(gates, onnx_ops.Add(next(weights), next(weights)))
    projection = onnx_ops.Transpose(next(weights), perm=[1, 0])
    return onnx_ops.Scan(
        *state,
        gates,
        _outputs=3,
        body=_step(hidden, projection, dtype),
        num_scan_inputs=1,
        scan_input_directions=[backward],
        scan_output_directions=[backward],
    )


def _step(hidden_weights: Any, projection: Any, dtype: onnx_ir.DataType) -> onnx_ir.Graph:
    """Return the graph of one step; its names cannot clash with names that torch's exporter gives to outer values."""
    hidden, cell, gates = inputs = [
        onnx_ir.Value(name=f"step/{name}", type=onnx_ir.TensorType(dtype)) for name in ("hidden", "cell", "gates")
    ]
    with recorded_nodes(onnx_ops.version) as nodes:
        total = onnx_ops.Add(gates, onnx_ops.MatMul(hidden, hidden_weights))
        taken, kept, new, shown = onnx_ops.Split(total, axis=-1, num_outputs=4, _outputs=4)
        kept_cell = onnx_ops.Mul(onnx_ops.Sigmoid(kept), cell)
        next_cell = onnx_ops.Add(kept_cell, onnx_ops.Mul(onnx_ops.Sigmoid(taken), onnx_ops.Tanh(new)))
        shown_cell = onnx_ops.Mul(onnx_ops.Sigmoid(shown), onnx_ops.Tanh(next_cell))
        next_hidden = onnx_ops.MatMul(shown_cell, projection)
        outputs = next_hidden, next_cell, onnx_ops.Identity(next_hidden)
    for number, value in enumerate(itertools.chain.from_iterable(node.outputs for node in nodes)):
        value.name = f"step/{number}"
    for value in outputs:
        value.dtype = dtype
    return onnx_ir.Graph(inputs, outputs, nodes=nodes, name="step")


def _stacked(states: Sequence[Any]) -> Any:
    rows = [onnx_ops.Unsqueeze(state, constant([0])) for state in states]
    return onnx_ops.Concat(*rows, axis=0) if len(rows) > 1 else rows[0]
