"""Comparison of arrays within tolerances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ._schema.dtypes import STRING, DType, describe

Array = np.ndarray[Any, Any]

Tolerances = Mapping[DType, tuple[float, float]]
"""The relative and the absolute tolerance of each dtype."""

# As in torch.testing.assert_close; arrays of other dtypes must be equal.
TOLERANCES: Tolerances = {
    np.dtype(np.float16): (1e-3, 1e-5),
    np.dtype(ml_dtypes.bfloat16): (1.6e-2, 1e-5),
    np.dtype(np.float32): (1.3e-6, 1e-5),
    np.dtype(np.float64): (1e-7, 1e-7),
    np.dtype(np.complex64): (1.3e-6, 1e-5),
    np.dtype(np.complex128): (1e-7, 1e-7),
}


def differences(expected: Array, actual: Array) -> Array:
    """Return the absolute differences, in float64, of two arrays of the same dtype and shape.

    They are 0 between equal infinities and between NaNs, and infinite between different strings.
    """
    if expected.dtype == STRING:
        return np.where(np.asarray(expected == actual, bool), 0.0, np.inf)
    if expected.dtype.kind in "iu":
        # Subtraction in uint64 wraps around, so that the result is exact for signed integers too.
        larger, smaller = np.maximum(expected, actual), np.minimum(expected, actual)
        return (larger.astype(np.uint64) - smaller.astype(np.uint64)).astype(np.float64)
    precise = np.complex128 if expected.dtype.kind == "c" else np.float64
    ours, theirs = actual.astype(precise), expected.astype(precise)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    return np.asarray(np.where(same, 0.0, np.abs(ours - theirs)))


def magnitudes(array: Array) -> Array:
    """Return the absolute values in float64, which scale the relative tolerance; 0 for strings."""
    if array.dtype == STRING:
        return np.zeros(array.shape)
    absolute = np.abs(array if array.dtype.kind == "c" else array.astype(np.float64))
    return np.asarray(absolute, dtype=np.float64)


def within(difference: Array, magnitude: Array, rtol: float, atol: float) -> Array:
    """Return a mask of the finite differences that are at most ``atol + rtol * magnitude``."""
    return np.asarray((difference == 0) | ((difference <= atol + rtol * magnitude) & (difference < np.inf)))


def first_difference(
    actual: Sequence[Any],
    expected: Sequence[Any],
    names: Sequence[str] = (),
    rtol: float | None = None,
    atol: float | None = None,
) -> str | None:
    """Return a message about the first array that differs from the expected one, or None if all are equal.

    Parameters
    ----------
    names : sequence of str, optional
        The names of the arrays in messages.
    rtol, atol : float, optional
        Elements are equal within ``atol + rtol * abs(expected)``. The defaults are those of
        ``torch.testing.assert_close`` for floating-point numbers, and 0 for other dtypes. NaN equals NaN.
    """
    if len(actual) != len(expected):
        return f"there are {len(actual)} outputs; expected {len(expected)}"
    for index, pair in enumerate(zip(actual, expected, strict=True)):
        got, wanted = map(np.asarray, pair)
        name = f"output {names[index]!r}" if index < len(names) else f"output {index}"
        if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
            return f"{name} is {describe(got)}; expected {describe(wanted)}"
        usual = TOLERANCES.get(wanted.dtype, (0.0, 0.0))
        allowed = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
        with np.errstate(all="ignore"):
            difference = differences(wanted, got)
            wrong = ~within(difference, magnitudes(wanted), *allowed)
        if wrong.any():
            return f"{name} ({describe(wanted)}) {_spell(got, wanted, difference, wrong, allowed)}"
    return None


def _spell(got: Array, wanted: Array, difference: Array, wrong: Array, allowed: tuple[float, float]) -> str:
    first = tuple(int(index) for index in np.argwhere(wrong)[0])
    text = f"differs in {int(wrong.sum())} of {wrong.size} elements, first at {list(first)}: " if first else "differs: "
    text += f"{_element(got, first)} where {_element(wanted, first)} is expected"
    if allowed == (0.0, 0.0):
        return text
    largest = f", the largest difference is {difference[wrong].max():.3g}" if wrong.sum() > 1 else ""
    return f"{text} (allowed is {allowed[1]:g} + {allowed[0]:g} relative{largest})"


def _element(array: Array, index: tuple[int, ...]) -> str:
    value = array[index]
    return repr(value) if array.dtype == STRING else str(value)
