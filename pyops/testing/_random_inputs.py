"""Random arrays, and the inputs of a model made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._support.element_types import STRING, DType, describe, format_shape, from_type_str
from ..errors import InputError

_SIZE = 3
"""The size of a dimension that has only a name."""


def random_array(dtype: DType, shape: Sequence[int], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return an array of normally distributed numbers, of integers from 0 to 9, or of short strings."""
    if dtype == STRING:
        return random.choice(np.array(["a", "bc", "déf"], STRING), shape)
    if dtype.kind in "iub":
        return random.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def random_feed(inputs: Sequence[Any], random: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Return random arrays for the inputs of a session.

    Parameters
    ----------
    inputs : sequence of onnxruntime.NodeArg
        The session's inputs. Dimensions without a size get 3.

    Raises
    ------
    InputError
        An input is not a tensor, or too large.
    """
    feed: dict[str, np.ndarray[Any, Any]] = {}
    for item in inputs:
        row = from_type_str(item.type)
        if row is None:
            raise InputError(f"input {item.name!r} is {item.type}, for which no value is generated; pass inputs")
        shape = [size if isinstance(size, int) else _SIZE for size in item.shape]
        try:
            feed[item.name] = random_array(row.dtype, shape, random)
        except (MemoryError, ValueError) as error:
            raise InputError(
                f"input {item.name!r} is {item.type} of shape {format_shape(shape)}, for which no value can be "
                f"generated: {error}; pass inputs"
            ) from error
    return feed


def given_feed(inputs: Any) -> dict[str, Any]:
    """Return the inputs that a user gives for a model.

    Raises
    ------
    InputError
        They are not arrays by name.
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs is {describe(inputs)}; expected arrays by the names of the model's inputs, such as "
            'inputs={"x": np.ones(3, np.float32)}'
        )
    for name, value in inputs.items():
        items = value if isinstance(value, list) else [value]  # a sequence is a list of arrays
        if not all(item is None or hasattr(item, "dtype") for item in items):
            raise InputError(
                f"input {name!r} is {describe(value)}; pass an array, for example np.asarray({name}, np.float32)"
            )
    return dict(inputs)
