"""Checks of arguments that torch's own kernels trust: indices beyond a tensor's memory, and endless loops.

torch's Python functions make such checks, its operators do not, and a model file names operators. Every check takes
the arguments of a call by name and raises InputError. Tensors that torch writes to despite the operator's schema are
copied, because they may be the model's own memory or the caller's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from pyops.errors import InputError

Values = dict[str, Any]


def check(name: str, values: Values) -> None:
    """Check the arguments of a call; `name` is the operator without its overload.

    Raises
    ------
    InputError
        The call would read or write beyond one of its tensors, or never return.
    """
    with contextlib.suppress(KeyError):  # torch reports a missing argument
        if name in _CHECKS:
            _CHECKS[name](values)


def _require(fits: bool, expected: str) -> None:
    if not fits:
        raise InputError(f"expected {expected}")


def _within(tensor: torch.Tensor, low: int, high: int, what: str) -> None:
    _require(not tensor.numel() or (int(tensor.min()) >= low and int(tensor.max()) <= high), f"{what} in {low}..{high}")


def _ascending(offsets: torch.Tensor, high: int, what: str) -> None:
    _within(offsets, 0, high, what)
    _require(bool((offsets.diff() >= 0).all()), f"{what} in ascending order")


def _batch_norm(values: Values) -> None:
    x = values["input"]
    _require(x.dim() >= 2, f"an input of two dimensions or more, not {x.dim()}")
    for name in ("weight", "bias", "running_mean", "running_var"):
        tensor = values.get(name)
        _require(
            tensor is None or tuple(tensor.shape) == (x.shape[1],),
            f"{name} of shape ({x.shape[1]},), one number for each channel",
        )
    learns = values.get("training", values.get("use_input_stats", True))
    for name in ("running_mean", "running_var"):
        _require(bool(learns) or values.get(name) is not None, f"{name}, outside training")
        if values.get(name) is not None:
            # torch writes to them in training.
            values[name] = values[name].clone()


def _covariance(values: Values) -> None:
    # With weights and a single observation, torch subtracts the mean in place.
    values["self"] = values["self"].clone()


def _ctc_loss(values: Values) -> None:
    probabilities, targets = values["log_probs"], values["targets"]
    _require(probabilities.dim() in (2, 3), "log_probs of two or three dimensions")
    _require(targets.dim() in (1, 2), "targets of one or two dimensions")
    inputs, lengths = (torch.as_tensor(values[name], dtype=torch.int64) for name in ("input_lengths", "target_lengths"))
    _within(inputs, 0, probabilities.shape[0], "input_lengths")
    _within(lengths, 0, targets.shape[-1], "target_lengths")
    if targets.dim() == 2:
        # Elements beyond a row's length are padding.
        targets = targets[torch.arange(targets.shape[1]) < lengths.reshape(-1, 1)]
    _within(targets, 0, probabilities.shape[-1] - 1, "targets")
    if values["targets"].dim() == 1:
        _require(int(lengths.sum()) <= targets.numel(), f"target_lengths that add up to {targets.numel()} at most")


def _embedding_bag(values: Values) -> None:
    indices, offsets = values["indices"], values["offsets"]
    _require(values["weight"].dim() == 2, "a weight of two dimensions")
    _require(indices.dim() == 1 and offsets.dim() == 1, "indices and offsets of one dimension")
    _require(values.get("mode", 0) in (0, 1, 2), "a mode of 0, 1 or 2")
    _within(indices, 0, values["weight"].shape[0] - 1, "indices")
    _ascending(offsets, indices.numel(), "offsets")


def _fractional_max_pool(values: Values) -> None:
    samples = values["random_samples"]
    _require(bool(((samples >= 0) & (samples <= 1)).all()), "random_samples in 0..1")


def _grouped_mm(values: Values) -> None:
    left, right, offsets = values["self"], values["mat2"], values.get("offs")
    if offsets is not None and left.dim() in (2, 3) and right.dim() in (2, 3):
        size = right.shape[1] if left.dim() == 3 else left.shape[0 if right.dim() == 3 else 1]
        _ascending(offsets, size, "offs")


def _ldl(values: Values) -> None:
    pivots, size = values["pivots"], values["LD"].shape[-1]
    _require(pivots.dim() >= 1 and pivots.shape[-1] == size, f"{size} pivots")
    _within(pivots.abs(), 1, size, "pivots")
    for row in pivots.reshape(-1, size).tolist():
        while row:
            # A block of two rows is marked by the same negative number twice.
            first = row.pop(0)
            _require(first > 0 or (bool(row) and row.pop(0) == first), "negative pivots in pairs")


def _lu(values: Values) -> None:
    # The operators have different names for the same arguments.
    matrix, pivots = (
        values[name if name in values else other] for name, other in (("LU_data", "LU"), ("LU_pivots", "pivots"))
    )
    _require(matrix.dim() >= 2, "a matrix")
    expected = (*matrix.shape[:-2], min(matrix.shape[-2:]))
    _require(tuple(pivots.shape) == expected, f"pivots of shape {expected}")
    _within(pivots, 1, matrix.shape[-2], "pivots")


def _matrix_power(values: Values) -> None:
    # torch negates n until it is positive, which it never is for the smallest int64.
    _require(values["n"] != -(2**63), "an n above -2**63")


def _pack_padded_sequence(values: Values) -> None:
    x = values["input"]
    _require(x.dim() >= 2, "an input of two dimensions or more")
    _within(values["lengths"], 1, x.shape[1 if values.get("batch_first") else 0], "lengths")


def _random(values: Values) -> None:
    # torch searches for the next number, which does not exist, in an endless loop.
    _require(values.get("from") != 2**63 - 1, "a from below 2**63 - 1")


def _recurrent(values: Values) -> None:
    layers, weights = values["num_layers"], values["params"]
    directions = 2 if values.get("bidirectional") else 1
    each = 4 if values["has_biases"] else 2
    # An LSTM with a projection has one more per layer and direction.
    _require(
        len(weights) in (layers * directions * each, layers * directions * (each + 1)),
        f"{layers * directions * each} params for {layers} layers, not {len(weights)}",
    )
    states = values["hx"] if isinstance(values["hx"], list) else [values["hx"]]
    _require(all(item.dim() in (2, 3) for item in states), "hx of two or three dimensions")


def _segment_reduce(values: Values) -> None:
    data, axis = values["data"], values.get("axis", 0)
    _require(0 <= axis < data.dim(), f"an axis in 0..{data.dim() - 1}")
    size = data.shape[axis]
    lengths, offsets = values.get("lengths"), values.get("offsets")
    if lengths is not None:
        _within(lengths, 0, size, "lengths")
        _require(bool((lengths.sum(-1) == size).all()), f"lengths that add up to {size}")
    if offsets is not None:
        _ascending(offsets, size, "offsets")
    for tensor in (lengths, offsets):
        _require(tensor is None or tensor.shape[:-1] == data.shape[:axis], "one row of segments for each row of data")


def _upsample(values: Values) -> None:
    # Overloads with scales alone name the tensor differently, and are skipped: their sizes follow from the scales.
    x, sizes = values["self"], values["output_size"]
    _require(isinstance(sizes, list) and x.dim() == len(sizes) + 2, f"an output_size of {x.dim() - 2} numbers")
    names = ["scales"] if len(sizes) == 1 else ["scales_d", "scales_h", "scales_w"][-len(sizes) :]
    for size, given, name in zip(sizes, x.shape[2:], names, strict=True):
        scale = values.get(name)
        # torch divides by the scale to find the position in the input, which must be inside it.
        _require(scale is None or size <= given * scale, f"{name} of {size}/{given} or more, or none")


def _weight_norm(values: Values) -> None:
    _require(values["v"].numel() > 0 and values["g"].numel() > 0, "tensors that are not empty")


_CHECKS: dict[str, Callable[[Values], None]] = {
    **dict.fromkeys(
        [
            "aten::_batch_norm_with_update_functional",
            "aten::_native_batch_norm_legit",
            "aten::_native_batch_norm_legit_functional",
            "aten::_native_batch_norm_legit_no_training",
            "aten::batch_norm",
            "aten::instance_norm",
            "aten::native_batch_norm",
        ],
        _batch_norm,
    ),
    **dict.fromkeys(["aten::lstm", "aten::gru", "aten::rnn_relu", "aten::rnn_tanh"], _recurrent),
    **dict.fromkeys(["aten::lu_unpack", "aten::lu_solve", "aten::linalg_lu_solve"], _lu),
    **dict.fromkeys(["aten::fractional_max_pool2d", "aten::fractional_max_pool3d"], _fractional_max_pool),
    **dict.fromkeys(["aten::linalg_matrix_power", "aten::matrix_power"], _matrix_power),
    **dict.fromkeys(
        [
            "aten::_upsample_bicubic2d_aa",
            "aten::_upsample_bilinear2d_aa",
            "aten::_upsample_nearest_exact1d",
            "aten::_upsample_nearest_exact2d",
            "aten::_upsample_nearest_exact3d",
            "aten::upsample_bicubic2d",
            "aten::upsample_bilinear2d",
            "aten::upsample_linear1d",
            "aten::upsample_nearest1d",
            "aten::upsample_nearest2d",
            "aten::upsample_nearest3d",
            "aten::upsample_trilinear3d",
        ],
        _upsample,
    ),
    **dict.fromkeys(["aten::_weight_norm", "aten::_weight_norm_interface"], _weight_norm),
    "aten::_grouped_mm": _grouped_mm,
    "aten::_pack_padded_sequence": _pack_padded_sequence,
    "aten::cov": _covariance,
    "aten::ctc_loss": _ctc_loss,
    "aten::embedding_bag": _embedding_bag,
    "aten::linalg_ldl_solve": _ldl,
    "aten::random": _random,
    "aten::segment_reduce": _segment_reduce,
}
