"""Inputs derived from those of a sample: other sizes, ranks, element types and memory layouts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .._support.element_types import STRING, DType

Array = np.ndarray[Any, Any]
Arrays = tuple[Any, ...]


def other_sizes(arrays: Sequence[Any]) -> Iterator[tuple[str, Arrays]]:
    """Yield inputs of other nonzero sizes: first equal sizes change together, then each axis alone."""
    sizes = sorted({size for array in _present(arrays) for size in array.shape if size})
    axes = [(i, axis) for i, array in enumerate(arrays) if array is not None for axis in range(min(4, array.ndim))]
    yield "larger", _resized(arrays, lambda _, size: size + (size > 1))
    yield "twice as large", _resized(arrays, lambda _, size: 2 * size if size > 1 else size)
    yield "of size 1", _resized(arrays, lambda _, size: min(size, 1))
    for old in sizes:
        yield f"with {old + 2} for {old}", _resized(arrays, lambda _, size: size + 2 * (size == old))  # noqa: B023
    for axis in axes:
        larger = _resized(arrays, lambda where, size: size + (where == axis))  # noqa: B023
        yield f"with axis {axis[1]} of input {axis[0]} larger", larger


def empty(arrays: Sequence[Any]) -> Iterator[tuple[str, Arrays]]:
    """Yield inputs without elements: the first, the last or every dimension has size 0."""
    if any(array.ndim for array in _present(arrays)):
        yield "empty along the first axis", _resized(arrays, lambda where, size: size if where[1] else 0)
        ranks = [0 if array is None else array.ndim for array in arrays]
        yield (
            "empty along the last axis",
            _resized(arrays, lambda where, size: 0 if where[1] == ranks[where[0]] - 1 else size),
        )
        yield "empty along all axes", _resized(arrays, lambda where, size: 0)


def scalar(arrays: Sequence[Any]) -> Arrays:
    """Return the first element of each input, as an array without dimensions."""
    return each(arrays, lambda array: resized(array, ()))


def cast(array: Array, dtype: DType) -> Array:
    """Convert an array to another element type; integers are clipped to its range."""
    if array.dtype == dtype:
        return array
    if dtype == STRING:
        return np.array([str(item) for item in array.flat], object).reshape(array.shape)
    if array.dtype == STRING:
        return (np.arange(array.size).reshape(array.shape) % 7).astype(dtype)
    if array.dtype.type.__module__ == "ml_dtypes":  # whose types cannot all be cast to each other
        array = array.astype(np.float32)
    if "int" in dtype.name:  # those of ml_dtypes have no kind
        limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call] # ml_dtypes has no types for it
        lowest, highest = int(limits.min), int(limits.max)
        numbers = array if array.dtype.kind in "iub" else np.nan_to_num(array.astype(np.float64))
        clipped = [min(max(int(item), lowest), highest) for item in numbers.flat]
        return np.array(clipped, object).astype(dtype).reshape(array.shape)
    return array.astype(dtype)


def strided(arrays: Sequence[Any]) -> Iterator[tuple[str, Arrays]]:
    """Yield the same inputs in other memory layouts: with a step of two, reversed, and in column-major order."""
    if any(array.size > 1 for array in _present(arrays)):
        yield "every second element of an array", each(arrays, _every_second)
        yield "backwards in memory", each(arrays, _backwards)
    if any(array.ndim > 1 for array in _present(arrays)):
        yield "columns first", each(arrays, functools.partial(np.array, order="F"))


def mixed(arrays: Sequence[Any]) -> Arrays:
    """Return inputs of the same shapes with other values: half of the elements, each twice, so that sums differ too."""
    return each(arrays, _mixed)


def each(arrays: Sequence[Any], function: Callable[[Any], Any]) -> Arrays:
    """Apply a function to each array; None stays None."""
    return tuple(None if array is None else function(array) for array in arrays)


def resized(array: Array, shape: Sequence[int]) -> Array:
    """Return the elements in another shape, repeated or cut off to fit."""
    count = math.prod(shape)
    if array.size:
        return np.resize(array, tuple(shape))
    return np.full(shape, "" if array.dtype == STRING else 1, array.dtype) if count else np.empty(shape, array.dtype)


def _mixed(array: Array) -> Array:
    elements = np.roll(array.ravel()[::-1], 1)
    return np.resize(elements[: (array.size + 1) // 2], array.shape)


def _present(arrays: Sequence[Any]) -> list[Array]:
    return [array for array in arrays if array is not None]


def _resized(arrays: Sequence[Any], size_of: Callable[[tuple[int, int], int], int]) -> Arrays:
    def resize(index: int, array: Any) -> Any:
        if array is None:
            return None
        return resized(array, [size_of((index, axis), size) for axis, size in enumerate(array.shape)])

    return tuple(resize(index, array) for index, array in enumerate(arrays))


def _every_second(array: Any) -> Any:
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def _backwards(array: Any) -> Any:
    turned = (slice(None, None, -1),) * array.ndim
    return np.array(array[turned], order="C")[turned] if array.ndim else array
