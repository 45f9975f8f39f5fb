"""Lowering of layers over sequences that ONNX or torch's exporter lacks: attention that is not 4-D, projected LSTMs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir

from .._torch_private.exporter import recorded_nodes
from ..errors import ExportError
from .table import lower
from .values import constant, like, onnx_ops, transposed


@lower("aten::scaled_dot_product_attention", replaces=True)
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    **others: Any,
) -> Any:
    ranks = {len(item.shape) for item in (query, key, value)}
    width = query.shape[-1]
    if ranks == {4} or any(others.values()) or not isinstance(width, int):  # dropout, or groups of heads
        return NotImplemented
    factor = like(1 / math.sqrt(width) if scale is None else scale, query)
    scores = onnx_ops.MatMul(onnx_ops.Mul(query, factor), transposed(key))
    least = like(-math.inf, query)
    if is_causal:
        lower_half = onnx_ops.Trilu(onnx_ops.Expand(like(1.0, query), onnx_ops.Shape(scores, start=-2)), upper=0)
        scores = onnx_ops.Where(onnx_ops.Cast(lower_half, to=onnx_ir.DataType.BOOL), scores, least)
    if attn_mask is not None:
        masked = attn_mask.dtype == onnx_ir.DataType.BOOL
        scores = onnx_ops.Where(attn_mask, scores, least) if masked else onnx_ops.Add(scores, attn_mask)
    if not is_causal and attn_mask is None:
        return onnx_ops.MatMul(onnx_ops.Softmax(scores, axis=-1), value)
    # Where everything is masked, torch returns 0, and Softmax alone would give NaN.
    nothing = onnx_ops.Equal(onnx_ops.ReduceMax(scores, constant([-1])), least)
    zero = like(0.0, query)
    weights = onnx_ops.Softmax(onnx_ops.Where(nothing, zero, scores), axis=-1)
    return onnx_ops.MatMul(onnx_ops.Where(nothing, zero, weights), value)


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
        raise ExportError("dropout in training draws at random; call model.eval() before the export")
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
    """Return the graph of one step; its names cannot clash with those that torch's exporter gives to outer values."""
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
