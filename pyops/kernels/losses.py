"""Losses that cannot be written as a formula of ONNX's own nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import onnx_op
from ..shapes import TensorSpec
from ._declarations import Index, Wide

_NONE, _MEAN, _SUM = 0, 1, 2


@onnx_op("pyops::CtcLoss")
def ctc_loss(
    log_probs: NDArray[Wide],
    targets: NDArray[Index],
    input_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    *,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> NDArray[Wide]:
    r"""Compute the connectionist temporal classification loss: minus the logarithm of the target's probability.

    That probability is the sum over all paths which become the target once repetitions are merged and blanks removed
    (A. Graves et al., "Connectionist Temporal Classification", ICML 2006, equations 5 to 8).

    As ``torch.nn.functional.ctc_loss``.

    Parameters
    ----------
    log_probs : array of float32 or float64
        (T, N, C) or (T, C). Logarithms of the probabilities of C classes at each of T time steps, with or without a
        batch of N.
    targets : array of int32 or int64
        (N, S), (S,) or (sum of target_lengths,). The classes, none of them `blank`: a row for each item of the batch,
        or all one after the other.
    input_lengths : array of int64
        (N,), () or (1,). The number of time steps of each item.
    target_lengths : array of int64
        (N,), () or (1,). The number of classes in the target of each item.
    blank : int
        The class that stands for no class.
    reduction : int
        0 gives each loss, 1 the mean over the batch of each loss divided by its target's length (at least 1), 2 the
        sum.
    zero_infinity : bool
        Whether the loss of a target that no path becomes is 0; otherwise it is infinite.

    Returns
    -------
    array of the dtype of `log_probs`
        (N,) where `reduction` is 0 and there is a batch, otherwise ().

    Raises
    ------
    ValueError
        The shapes or lengths do not fit, or a class is not from 0 to C - 1.
    """
    batched = log_probs.ndim == 3
    if log_probs.ndim not in (2, 3):
        raise ValueError(f"log_probs has shape {log_probs.shape}; it must be (T, N, C), or (T, C) without a batch")
    if reduction not in (_NONE, _MEAN, _SUM):
        raise ValueError(f"reduction is {reduction}; it must be 0 (none), 1 (mean) or 2 (sum)")
    steps = log_probs if batched else log_probs[:, None]
    times, items, classes = steps.shape
    ends, sizes = input_lengths.reshape(-1), target_lengths.reshape(-1)
    if ends.shape != (items,) or sizes.shape != (items,):
        raise ValueError(
            f"input_lengths has shape {input_lengths.shape} and target_lengths {target_lengths.shape}; each must have "
            f"one length for each of {items} items"
        )
    if (ends > times).any() or (ends < 0).any() or (sizes < 0).any():
        raise ValueError(
            f"input_lengths is {ends.tolist()} and target_lengths is {sizes.tolist()}; lengths must be at least "
            f"0, and input_lengths at most {times}, the time steps of log_probs"
        )
    labels = _padded(targets if batched or targets.ndim == 2 else targets[None], sizes, blank)
    if not 0 <= labels.min(initial=blank) <= labels.max(initial=blank) < classes:
        raise ValueError(f"blank, which is {blank}, or a target is not a class of log_probs: 0 to {classes - 1}")
    with np.errstate(all="ignore"):
        losses = _losses(steps, labels, ends, sizes, blank)
    if zero_infinity:
        losses = np.where(np.isinf(losses), losses.dtype.type(0), losses)
    if reduction == _NONE:
        return losses if batched else losses[0]
    if reduction == _SUM:
        return np.asarray(losses.sum())
    with np.errstate(invalid="ignore"):  # the mean of no losses is NaN
        return np.asarray((losses / np.maximum(sizes, 1).astype(losses.dtype)).sum() / losses.dtype.type(items))


@ctc_loss.register_shape_inference
def _(log_probs: TensorSpec, *others: TensorSpec, reduction: int = 1, **attributes: Any) -> TensorSpec:
    return log_probs.like(shape=log_probs.shape[1:2] if reduction == _NONE and log_probs.ndim == 3 else ())


def _padded(targets: NDArray[Index], sizes: NDArray[np.int64], blank: int) -> NDArray[np.int64]:
    """Return one row of classes for each item, as long as the longest and filled with blanks."""
    longest = int(sizes.max(initial=0))
    total = sum(sizes.tolist())
    if targets.ndim == 1 and len(targets) != total:
        raise ValueError(f"targets has {len(targets)} classes; it must have {total}, the sum of target_lengths")
    if targets.ndim != 1 and (targets.ndim != 2 or targets.shape[0] != len(sizes) or targets.shape[1] < longest):
        raise ValueError(f"targets has shape {targets.shape}; it must be ({len(sizes)}, {longest} or more)")
    valid = np.arange(longest) < sizes[:, None]
    labels = np.full(valid.shape, blank, np.int64)
    labels[valid] = targets if targets.ndim == 1 else targets[:, :longest][valid]
    return labels


def _losses(
    steps: NDArray[Any], labels: NDArray[np.int64], ends: NDArray[np.int64], sizes: NDArray[np.int64], blank: int
) -> NDArray[Any]:
    """Compute the loss of each item from the forward variables of all items at once."""
    items, longest = labels.shape
    # The classes with a blank before, between and after them.
    states = np.full((items, 2 * longest + 1), blank, np.int64)
    states[:, 1::2] = labels
    # A path may begin with the first class, and go on from a class to the next one, unless that is the same.
    skips = np.zeros(states.shape, bool)
    skips[:, 1:2] = True
    skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
    rows = np.arange(items)
    last = 2 * sizes
    minus_infinity = steps.dtype.type(-np.inf)
    losses: NDArray[Any] = np.where((ends == 0) & (sizes == 0), steps.dtype.type(0), steps.dtype.type(np.inf))
    # There are two more states at the front; every path starts in the second one.
    alphas = np.full((items, states.shape[1] + 2), minus_infinity)
    alphas[:, 1] = 0
    for time in range(int(ends.max(initial=0))):
        before = np.logaddexp(alphas[:, 2:], alphas[:, 1:-1])
        skipped = np.where(skips, alphas[:, :-2], minus_infinity)
        alphas[:, 2:] = np.logaddexp(before, skipped) + np.take_along_axis(steps[time], states, 1)
        alphas[:, 1] = minus_infinity
        final = np.where(sizes > 0, alphas[rows, last + 1], minus_infinity)
        losses = np.where(ends == time + 1, -np.logaddexp(alphas[rows, last + 2], final), losses)
    return losses
