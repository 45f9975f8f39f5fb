"""Helpers for dimensions as torch counts them, half precision, complex values, and SciPy or its counterpart in CuPy.

ONNX Runtime's custom operators have no complex types. An array of complex values is therefore an array of reals with
one more dimension, the last, of size 2: the real and the imaginary part. Complex values have the same layout in memory.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .._core import is_cupy
from ..errors import MissingDependencyError, ShapeInferenceError
from ..shapes import Dim, SymbolicDim


def axis_of(dim: int, ndim: int) -> int:
    """Return `dim` counted from 0, or raise a ShapeInferenceError; a scalar has the dimensions 0 and -1."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise ShapeInferenceError(f"dim is {dim} for {ndim} dimensions; it must be from {-count} to {count - 1}")
    return dim % count


def axes_of(dims: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return `dims` counted from 0, all dimensions if it is empty; raise a ShapeInferenceError if one is repeated."""
    axes = tuple(axis_of(dim, ndim) for dim in dims or range(max(ndim, 1)))
    if len(set(axes)) < len(axes):
        raise ShapeInferenceError(f"dim is {list(axes)}; give each dimension once")
    return axes


def reduced_shape(shape: Sequence[Dim], dims: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    """Return the shape that is left when the dimensions `dims` are reduced, or all dimensions if it is empty."""
    axes = axes_of(dims, len(shape))
    if keepdim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def reduced_ranges(ufunc: np.ufunc, rows: Any, starts: Any, ends: Any, identity: Any) -> Any:
    """Reduce each range of rows of a NumPy array; an empty one gives the identity."""
    if not len(starts):
        return rows[:0]
    # The positions of all ranges are never listed: ranges may overlap, and many large ones would exceed the memory.
    empty = (starts >= ends).reshape(-1, *[1] * (rows.ndim - 1))
    bounds = np.stack([np.minimum(starts, ends), ends], 1).reshape(-1)
    one_more = np.concatenate([rows, np.zeros_like(rows, shape=(1, *rows.shape[1:]))])  # reduceat takes no later index
    with np.errstate(all="ignore"):
        found = ufunc.reduceat(one_more, bounds, dtype=rows.dtype)
    return np.where(empty, np.asarray(identity, rows.dtype), found[::2])


def differ(one: Dim, other: Dim) -> bool:
    """Return whether two sizes are known to be different."""
    return isinstance(one, int) and isinstance(other, int) and one != other


def same(one: Dim, other: Dim) -> bool:
    """Return whether two sizes are known to be equal."""
    return isinstance(one, SymbolicDim) == isinstance(other, SymbolicDim) and bool(one == other)


def scalar(name: str, x: Any) -> Any:
    """Return the only number of an array as a Python number; raise a ValueError if there is not exactly one."""
    if x.size != 1:
        raise ValueError(f"{name} has shape {list(x.shape)}; it must be one number")
    return x.reshape(()).item()


def widened(x: Any) -> Any:
    """Cast float16 and bfloat16 to float32, since half precision has too few digits to compute with."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind in "fV" else x


def as_complex(pairs: Any) -> Any:
    """View pairs of reals (..., 2) as complex values (...); copy them if the reals of a pair are not adjacent."""
    if pairs.ndim == 0 or pairs.shape[-1] != 2:
        raise ValueError(
            f"complex values must be pairs of reals along a last dimension of 2; this array has shape {pairs.shape}"
        )
    if pairs.strides[-1] != pairs.itemsize:
        pairs = array_namespace(pairs).ascontiguousarray(pairs)
    return pairs.view(np.result_type(pairs.dtype, np.complex64))[..., 0]


def as_pairs(values: Any) -> Any:
    """View complex values (...) as pairs of reals (..., 2)."""
    return values[..., None].view(values.real.dtype)


def scipy(submodule: str, array: Any) -> Any:
    """Import a submodule of SciPy, such as ``"special"``, for a NumPy array, or CuPy's counterpart for a CuPy array."""
    name = f"cupyx.scipy.{submodule}" if is_cupy(array) else f"scipy.{submodule}"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"this operator of pyops.kernels computes with {name}, which is not installed; "
            'pip install "onnx-pyops[kernels]"'
        ) from error
