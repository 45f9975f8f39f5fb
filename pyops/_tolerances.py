"""Comparison of arrays within tolerances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._support.element_types import ELEMENT_TYPES, STRING, describe
from .errors import InputError

Array = np.ndarray[Any, Any]

Tolerances = Mapping[str, tuple[float, float]]
"""The relative and the absolute tolerance of each dtype, by name."""

# As in torch.testing.assert_close; arrays of other dtypes must be equal.
TOLERANCES: Tolerances = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}

# For translations of torch operators: a correct one may round differently, and a wrong one is far off.
WIDE_TOLERANCES: Tolerances = {
    "float16": (1e-2, 1e-2),
    "float32": (1e-3, 1e-4),
    "float64": (1e-5, 1e-7),
}


def check_tolerance(name: str, value: Any) -> None:
    """Raise an InputError unless a tolerance is a number of at least 0."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
        raise InputError(f"{name} is {value!r}; expected a number of at least 0, such as 1e-3")


def tolerances_by_name(given: Any) -> Tolerances:
    """Return tolerances that a user gives by dtype, NumPy's or torch's, by the names of the dtypes; none for None.

    Raises
    ------
    InputError
        They are anything else, or ONNX has no tensors of numbers of a dtype.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(
            f'tolerances is {given!r}; expected (rtol, atol) by dtype, such as tolerances={{"float32": (1e-3, 1e-5)}}'
        )
    known = [row.dtype.name for row in ELEMENT_TYPES if row.dtype != STRING]
    found: dict[str, tuple[float, float]] = {}
    for dtype, pair in given.items():
        name = _name(dtype)
        if name not in known:
            raise InputError(f"tolerances has {dtype!r}, which is none of the dtypes {', '.join(known)}")
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(f"tolerances[{dtype!r}] is {pair!r}; expected (rtol, atol), such as (1e-3, 1e-5)")
        for which, value in zip(("rtol", "atol"), pair, strict=True):
            check_tolerance(f"the {which} of tolerances[{dtype!r}]", value)
        found[name] = (pair[0], pair[1])
    return found


def _name(dtype: Any) -> str:
    try:
        return dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        return str(dtype).removeprefix("torch.")


class Difference(NamedTuple):
    """The differences between two arrays of the same dtype and shape, element by element.

    Attributes
    ----------
    absolute : numpy.ndarray
        float64: 0 between equal infinities and between NaNs, and infinite between different strings.
    relative : numpy.ndarray
        The same, divided by the absolute values of the expected elements.
    wrong : numpy.ndarray
        Of bool: the elements that differ by more than ``atol + rtol * abs(expected)``.
    rtol, atol : float
        The tolerances.
    """

    absolute: Array
    relative: Array
    wrong: Array
    rtol: float
    atol: float


def difference(expected: Array, actual: Array, rtol: float | None = None, atol: float | None = None) -> Difference:
    """Compare two arrays of the same dtype and shape; the default tolerances are those of `assert_close`."""
    usual = TOLERANCES.get(expected.dtype.name, (0.0, 0.0))
    rtol, atol = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
    with np.errstate(all="ignore"):
        absolute, magnitude = _absolute(expected, actual), _magnitude(expected)
        close = (absolute == 0) | ((absolute <= atol + rtol * magnitude) & (absolute < np.inf))
        relative = np.where(absolute == 0, 0.0, absolute / magnitude)
    return Difference(absolute, relative, np.asarray(~close), rtol, atol)


def _absolute(expected: Array, actual: Array) -> Array:
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


def _magnitude(array: Array) -> Array:
    if array.dtype == STRING:
        return np.zeros(array.shape)
    return np.asarray(np.abs(array if array.dtype.kind == "c" else array.astype(np.float64)), np.float64)


def first_difference(
    actual: Sequence[Any],
    expected: Sequence[Any],
    names: Sequence[str] = (),
    rtol: float | None = None,
    atol: float | None = None,
) -> str | None:
    """Return a message about the first array that differs from the expected one, or None if all are close.

    Parameters
    ----------
    names : sequence of str, optional
        The names of the arrays in messages.
    rtol, atol : float, optional
        See `assert_close`.
    """
    if len(actual) != len(expected):
        return f"there are {len(actual)} outputs; expected {len(expected)}"
    for index, pair in enumerate(zip(actual, expected, strict=True)):
        got, wanted = map(np.asarray, pair)
        name = f"output {names[index]!r}" if index < len(names) else f"output {index}"
        if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
            return f"{name} is {describe(got)}; expected {describe(wanted)}"
        found = difference(wanted, got, rtol, atol)
        if found.wrong.any():
            return f"{name} ({describe(wanted)}) {format_difference(got, wanted, found)}"
    return None


def format_difference(got: Array, wanted: Array, found: Difference) -> str:
    wrong = found.wrong
    first = tuple(int(index) for index in np.argwhere(wrong)[0])
    text = f"differs in {int(wrong.sum())} of {wrong.size} elements, first at {list(first)}: " if first else "differs: "
    text += f"{_element(got, first)} where {_element(wanted, first)} is expected"
    if (found.rtol, found.atol) == (0.0, 0.0):
        return text
    largest = f", the largest difference is {found.absolute[wrong].max():.3g}" if wrong.sum() > 1 else ""
    return f"{text} (allowed is {found.atol:g} + {found.rtol:g} relative{largest})"


def _element(array: Array, index: tuple[int, ...]) -> str:
    value = array[index]
    return repr(value) if array.dtype == STRING else str(value)


class Outputs(tuple[Any, ...]):
    """A tuple of arrays with an ``==`` that means close.

    ``==`` gives one truth value, with the tolerances of `assert_close`; NaN equals NaN. With the pytest
    plug-in, a failing ``assert session.run(None, feed) == Outputs([y])`` shows the first element that
    differs.

    Parameters
    ----------
    arrays : iterable of numpy.ndarray
        One per output.
    rtol, atol : float, optional
        See `assert_close`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyops.testing import Outputs
    >>> [np.float32([1, 2.000001])] == Outputs([np.float32([1, 2])])
    True
    """

    # Otherwise NumPy would compare element by element.
    __array_ufunc__ = None
    rtol: float | None
    atol: float | None

    def __new__(cls, arrays: Iterable[Any], rtol: float | None = None, atol: float | None = None) -> Outputs:
        """Create the tuple and store the tolerances."""
        self = super().__new__(cls, arrays)
        self.rtol, self.atol = rtol, atol
        return self

    def difference(self, other: Any) -> str | None:
        """Describe the first difference between `other` and these outputs; None if they are close."""
        return first_difference(_sequence(other), self, (), self.rtol, self.atol)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (np.ndarray, np.generic, Sequence)) and self.difference(other) is None

    def __ne__(self, other: object) -> bool:
        return not self == other


def assert_close(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """Assert that arrays have equal dtypes, equal shapes and close values.

    Parameters
    ----------
    actual, expected : numpy.ndarray, or a sequence of them
        For example what ``session.run`` returns. A NumPy scalar counts as an array without dimensions.
    rtol, atol : float, optional
        The tolerance is ``atol + rtol * abs(expected)``. The defaults are those of
        ``torch.testing.assert_close`` for floating-point numbers, and 0 for all other types. NaN equals NaN.

    Raises
    ------
    AssertionError
        The arrays differ; the message shows the first element that does.

    Examples
    --------
    >>> import numpy as np
    >>> from pyops.testing import assert_close
    >>> assert_close(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    Traceback (most recent call last):
        ...
    AssertionError: output 0 (float64[2]) differs in 1 of 2 elements, first at [1]: 2.5 where 2.0 is expected \
(allowed is 1e-07 + 1e-07 relative)
    """
    problem = first_difference(_sequence(actual), _sequence(expected), (), rtol, atol)
    if problem is not None:
        raise AssertionError(problem)


def _sequence(value: Any) -> Sequence[Any]:
    return (value,) if isinstance(value, np.ndarray | np.generic) else tuple(value)
