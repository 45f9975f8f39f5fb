"""Lowering of packed sequences, and of LSTM, GRU and RNN layers over them.

The mask of a packed sequence has shape (time, batch), and tells which steps of the padded sequences are not padding.
Its rows, one for each step that is not, have the order of the mask's elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir

from ..errors import ExportError
from .operands import constant, like, onnx_ops, vector
from .row_table import lower


@lower("aten::_pack_padded_sequence")
def _pack(input: Any, lengths: Any, batch_first: bool) -> Any:
    steps = _exchanged(input, len(input.shape)) if batch_first else input
    mask = _below(lengths, onnx_ops.ReduceMax(lengths, keepdims=0))
    batch_sizes = _counts(mask, axis=1)
    # Lengths that are not in descending order, which torch rejects, leave fewer rows than the sizes ask for.
    return _rows(steps, onnx_ops.And(mask, _mask(batch_sizes))), batch_sizes


@lower("aten::_pad_packed_sequence")
def _pad(data: Any, batch_sizes: Any, batch_first: bool, padding_value: float, total_length: Any) -> Any:
    lengths = _counts(_mask(batch_sizes), axis=0)
    padded = _padded(data, _below(lengths, onnx_ops.Squeeze(vector([total_length]))), padding_value)
    return _exchanged(padded, len(data.shape) + 1) if batch_first else padded, lengths


def _recurrent(operator: str, gates: Sequence[int], *activations: str, **attributes: int) -> Callable[..., Any]:
    """Return the translation of a layer to an operator of ONNX.

    Parameters
    ----------
    gates : sequence of int
        The numbers of torch's gates in the order of ONNX.
    """

    def translation(data: Any, batch_sizes: Any, hx: Any, params: Sequence[Any], **given: Any) -> Any:
        directions, kinds = 2 if given["bidirectional"] else 1, 4 if given["has_biases"] else 2
        if given["train"] and given["dropout"]:
            raise ExportError(f"dropout of {operator} in training mode is random; call model.eval() before the export")
        if len(params) != given["num_layers"] * directions * kinds:
            raise ExportError(f"ONNX's {operator} has no projection (proj_size)")
        states: Sequence[Any] = [hx] if isinstance(hx, onnx_ir.Value) else hx
        size = states[0].shape[-1]
        order = constant(np.arange(len(gates) * size).reshape(len(gates), size)[gates].ravel())
        mask = _mask(batch_sizes)
        lengths = onnx_ops.Cast(_counts(mask, axis=0), to=onnx_ir.DataType.INT32)
        layer = functools.partial(
            getattr(onnx_ops, operator),
            hidden_size=size,
            direction="bidirectional" if directions == 2 else "forward",
            activations=list(activations) * directions,
            _outputs=1 + len(states),
            **attributes,
        )
        steps, last = _padded(data, mask, 0.0), []
        for first in range(0, given["num_layers"] * directions, directions):
            weights = params[first * kinds : (first + directions) * kinds]
            inputs, hidden, *biases = (_joined(weights[kind::kinds], order) for kind in range(kinds))
            bias = onnx_ops.Concat(*biases, axis=1) if biases else None
            initial = [onnx_ops.Slice(item, constant([first]), constant([first + directions])) for item in states]
            found, *ends = layer(steps, inputs, hidden, bias, lengths, *initial)
            last.append(ends)
            # (time, directions, batch, size) becomes (time, batch, directions * size).
            steps = onnx_ops.Reshape(onnx_ops.Transpose(found, perm=[0, 2, 1, 3]), constant([0, 0, -1]))
        return _rows(steps, mask), *(onnx_ops.Concat(*ends, axis=0) for ends in zip(*last, strict=True))

    return translation


lower("aten::lstm.data")(_recurrent("LSTM", [0, 3, 1, 2], "Sigmoid", "Tanh", "Tanh"))
lower("aten::gru.data")(_recurrent("GRU", [1, 0, 2], "Sigmoid", "Tanh", linear_before_reset=1))
lower("aten::rnn_tanh.data")(_recurrent("RNN", [0], "Tanh"))
lower("aten::rnn_relu.data")(_recurrent("RNN", [0], "Relu"))


def _joined(weights: Sequence[Any], order: Any) -> Any:
    """Return the weights of each direction, with their rows in an order."""
    return onnx_ops.Concat(
        *(onnx_ops.Unsqueeze(onnx_ops.Gather(item, order, axis=0), constant([0])) for item in weights), axis=0
    )


def _below(lengths: Any, size: Any) -> Any:
    """Return the mask of sequences of some lengths, padded to a size."""
    return onnx_ops.Less(onnx_ops.Unsqueeze(_positions(size), constant([1])), lengths)


def _mask(batch_sizes: Any) -> Any:
    """Return the mask of sequences of which some are left at each step."""
    most = onnx_ops.Gather(batch_sizes, constant(0), axis=0)
    return onnx_ops.Less(_positions(most), onnx_ops.Unsqueeze(batch_sizes, constant([1])))


def _positions(size: Any) -> Any:
    return onnx_ops.Range(constant(0), size, constant(1))


def _counts(mask: Any, axis: int) -> Any:
    return onnx_ops.ReduceSum(onnx_ops.Cast(mask, to=onnx_ir.DataType.INT64), constant([axis]), keepdims=0)


def _places(mask: Any) -> Any:
    return onnx_ops.Transpose(onnx_ops.NonZero(mask), perm=[1, 0])


def _rows(steps: Any, mask: Any) -> Any:
    return onnx_ops.GatherND(steps, _places(mask))


def _padded(data: Any, mask: Any, padding: float) -> Any:
    sizes = onnx_ops.Concat(onnx_ops.Shape(mask), onnx_ops.Shape(data, start=1), axis=0)
    return onnx_ops.ScatterND(onnx_ops.Expand(like(padding, data), sizes), _places(mask), data)


def _exchanged(steps: Any, rank: int) -> Any:
    """Return a tensor with the first two dimensions exchanged."""
    return onnx_ops.Transpose(steps, perm=[1, 0, *range(2, rank)])
