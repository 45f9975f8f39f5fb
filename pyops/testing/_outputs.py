"""Comparison of arrays within tolerances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._comparison import first_difference


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
