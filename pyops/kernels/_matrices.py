"""What the linear algebra kernels share: their shapes, batches, and the error for a matrix that fails."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from .. import Op, onnx_op
from .._core import is_cupy, output_dtypes
from ..errors import ShapeInferenceError
from ..shapes import Dim, TensorSpec, broadcast, new_dim
from ._arrays import differ, same, scipy

P = ParamSpec("P")
R = TypeVar("R")

Array = NDArray[Any]
"""An intermediate array, of the dtype of the inputs."""

Notation = str | Callable[..., str]
"""Shapes as in ``"(n,n),(n,k)->(n,k)"``, or a function of the op's attributes that returns them."""


def on_matrices(
    op_type: str, notation: Notation, device_types: tuple[Literal["cpu", "cuda"], ...] = ("cpu",)
) -> Callable[[Callable[P, R]], Op[P, R]]:
    """Declare a function as an op of the domain ``pyops`` whose shapes are given in a notation; a decorator.

    The notation is that of NumPy's generalized ufuncs: the last dimensions of each input and output, where those of the
    same name are equal. The dimensions before them, the batch, broadcast. A number is a size, ``min`` is the smaller
    one of m and n, and an output ``0`` has the shape (0,).

    The kernel, like the shape function, raises a ShapeInferenceError if an input does not fit.
    """

    def sides(attributes: dict[str, Any]) -> list[str]:
        return (notation if isinstance(notation, str) else notation(**attributes)).split("->")

    def declare(function: Callable[P, R]) -> Op[P, R]:
        @functools.wraps(function)
        def kernel(*args: P.args, **kwargs: P.kwargs) -> R:
            fit(op_type, sides(kwargs)[0], args)
            return function(*args, **kwargs)

        def infer(first: TensorSpec, *others: TensorSpec | None, **attributes: Any) -> tuple[TensorSpec, ...]:
            inputs, outputs = sides(attributes)
            specs = (first, *others)
            batches, sizes = fit(op_type, inputs, specs)
            batch = broadcast(*batches)
            shapes = ((0,) if core is None else (*batch, *(sizes.get(x, x) for x in core)) for core in _cores(outputs))
            dtypes = output_dtypes(op.signature, [None if spec is None else spec.dtype for spec in specs])
            return tuple(first.like(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))

        op = onnx_op(f"pyops::{op_type}", device_types=device_types)(kernel)
        op.register_shape_inference(infer)
        return op

    return declare


def fit(op_type: str, inputs: str, given: Sequence[Any]) -> tuple[list[TensorSpec], dict[Any, Dim]]:
    """Return the batch of each array or spec, and the size that each name of the notation has."""
    sizes: dict[Any, Dim] = {}
    batches = []
    for x, core in zip(given, _cores(inputs), strict=False):
        if x is None or core is None:
            continue
        rank = len(x.shape) - len(core)
        last = list(zip(core, x.shape[max(rank, 0) :], strict=False))
        if rank < 0 or any(differ(sizes.setdefault(name, size), size) for name, size in last):
            shapes = ", ".join(str(list(item.shape)) for item in given if item is not None)
            raise ShapeInferenceError(
                f"{op_type}: inputs of the shapes {shapes} do not fit {inputs}, the last dimensions of each; "
                "those of the same name must be equal"
            )
        sizes |= {name: size for name, size in last if isinstance(size, int)}
        if "m" in sizes and "n" in sizes:
            sizes.setdefault("min", smaller(sizes["m"], sizes["n"]))
        batches.append(TensorSpec(x.shape[:rank], x.dtype))
    return batches, sizes


@functools.cache
def _cores(side: str) -> list[list[Any] | None]:
    """Return the dimensions of each input or output: names and numbers, or None for ``0``."""
    cores = (None if item == "0" else re.findall(r"\w+", item) for item in re.findall(r"\(.*?\)|0", side))
    return [core and [int(name) if name.isdigit() else name for name in core] for core in cores]


def smaller(one: Dim, other: Dim) -> Dim:
    """Return the smaller of two sizes, or a new dimension if it is not known which one that is."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return one if same(one, other) else new_dim()


def check_rows(pivots: Array, m: int) -> None:
    """Raise a ValueError unless all pivots are from 1 to m."""
    # LAPACK reads and writes wherever they point.
    if pivots.size and (pivots.min() < 1 or pivots.max() > m):
        raise ValueError(f"pivots must be rows from 1 to {m}; they go from {pivots.min()} to {pivots.max()}")


def lapack(routine: str, a: Array) -> Callable[..., Any]:
    """Return SciPy's binding of a LAPACK routine, such as ``"getrf"``, for the dtype of a NumPy array."""
    return scipy("linalg.lapack", a).get_lapack_funcs(routine, dtype=a.dtype)


def symmetric(routine: str, a: Array, hermitian: bool) -> str:
    """Return the name of a LAPACK routine, such as ``"trf"``, for symmetric or for Hermitian matrices."""
    return f"{'he' if hermitian and a.dtype.kind == 'c' else 'sy'}{routine}"


def over_batch(function: Callable[..., Array], x: Array, *others: Array) -> Array:
    """Call a function for each matrix of a batch, to which all arguments broadcast; it returns one shaped like `x`.

    Where a matrix has no elements, LAPACK is not called, and the result is `x`.
    """
    xp = array_namespace(x)
    batch = np.broadcast_shapes(*(array.shape[:-2] for array in (x, *others)))
    result: Array = xp.asarray(xp.broadcast_to(x, (*batch, *x.shape[-2:])), copy=True)
    if result.size and all(array.size for array in others):
        factors = [xp.broadcast_to(array, (*batch, *array.shape[-2:])) for array in others]
        for index in np.ndindex(batch):
            result[index] = function(result[index], *(array[index] for array in factors))
    return result


def adjoint_of(a: Array) -> Array:
    """Return each matrix transposed, and conjugated if it is complex."""
    return a.conj().mT


def solve_triangles(a: Array, b: Array, *, upper: bool, unit: bool = False) -> Array:
    """Solve ``A X = B`` for triangular matrices A, of which only that triangle is read; the batches broadcast."""
    if is_cupy(a):
        of_one = scipy("linalg", a).solve_triangular
        return over_batch(lambda x, matrix: of_one(matrix, x, lower=not upper, unit_diagonal=unit), b, a)
    # scipy.linalg.solve_triangular refuses a zero on the diagonal.
    trsm = scipy("linalg.blas", a).get_blas_funcs("trsm", dtype=a.dtype)
    return over_batch(lambda x, matrix: trsm(1, matrix, x, lower=not upper, diag=unit), b, a)


def first_true(conditions: Array) -> NDArray[np.int32]:
    """Return the place of the first true element along the last dimension, counted from 1; 0 if there is none."""
    if not conditions.shape[-1]:
        return np.zeros(conditions.shape[:-1], np.int32)
    return np.where(conditions.any(-1), conditions.argmax(-1) + 1, 0).astype(np.int32)


def diagonal(a: Array) -> Array:
    """Return the diagonal of each matrix."""
    return np.diagonal(a, axis1=-2, axis2=-1)


def raise_failed(info: NDArray[np.int32], message: str) -> None:
    """Raise a LinAlgError for the first matrix whose `info` is not 0; `message` has placeholders {where} and {k}."""
    failed = np.flatnonzero(info)
    if failed.size:
        where = f" (batch element {failed[0]})" if info.ndim else ""
        raise np.linalg.LinAlgError(message.format(where=where, k=int(info.flat[failed[0]])))
