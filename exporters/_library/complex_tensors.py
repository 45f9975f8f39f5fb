"""Lowering of operators that move, select or sum complex numbers: real and imaginary parts are treated alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir

from .._lowering.translations import functional_overloads
from .._torch.private.operators import as_exported, find_overload, qualified_name, schema_arguments
from .complex_numbers import absolute, parts, truth
from .operands import Pairs, by_torch, cast, constant, dtype_of, join, kernels, like, named_dtype, onnx_ops, split
from .row_table import lower_complex, rows

# Arguments that hold complex numbers, by torch's names; others are masks, indices and dimensions.
_NUMBERS = {"self", "input", "other", "src", "source", "values", "value", "fill_value"}


def as_real(name: str, **given: Any) -> Any:
    """Return what the library, or otherwise torch, emits for a call on real tensors, or NotImplemented."""
    target, row = find_overload(name), rows.get(name.removesuffix(".default"))
    assert target is not None
    declared = schema_arguments(target)
    args, kwargs = as_exported(declared, [given.get(item.name, item.default) for item in declared])
    result = NotImplemented if row is None else row.registration.translation(*args, **kwargs)
    return by_torch(name, *args, **kwargs) if result is NotImplemented else result


def _by_parts(name: str) -> Callable[..., Any]:
    """Return a translation that is applied to real and imaginary parts alike."""

    def translation(**given: Any) -> Any:
        beside = next(item for item in given.values() if isinstance(item, Pairs)).value
        if _differs(given.pop("dtype", None), beside):
            return NotImplemented
        named = {key: _parts(value, beside) for key, value in given.items() if key in _NUMBERS}
        results = [as_real(name, **{**given, **{key: of[index] for key, of in named.items()}}) for index in (0, 1)]
        if any(result is NotImplemented for result in results):
            return NotImplemented
        return join(*results)

    return translation


def _differs(dtype: Any, beside: onnx_ir.Value) -> bool:
    """Return whether a dtype argument differs from the type of a complex tensor."""
    return dtype is not None and named_dtype(dtype) != dtype_of(beside).to_complex()


def _parts(value: Any, beside: onnx_ir.Value) -> tuple[Any, Any]:
    if isinstance(value, (int, float, complex)):
        return float(complex(value).real), float(complex(value).imag)
    return (None, None) if value is None else parts(value, beside)


MOVING = [
    "_unsafe_index",
    "_unsafe_index_put",
    "alias",
    "alias_copy",
    "as_strided",
    "constant_pad_nd",
    "cumsum",
    "diagonal",
    "diagonal_copy",
    "expand",
    "expand_copy",
    "fill",
    "flip",
    "gather",
    "im2col",
    "index",
    "index_put",
    "index_select",
    "masked_fill",
    "mean",
    "pad",
    "repeat",
    "roll",
    "scatter",
    "scatter_add",
    "slice",
    "squeeze",
    "squeeze_copy",
    "sum",
    "tile",
    "tril",
    "triu",
    "unfold",
    "unfold_copy",
    "unsqueeze",
    "unsqueeze_copy",
    "where",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "masked_scatter",
    "repeat_interleave",
]


def _names(operator: str) -> list[str]:
    """Return the full names of an operator's overloads, ``"aten::name.default"`` for the default one."""
    names = map(qualified_name, functional_overloads(f"aten::{operator}"))
    return [name if "." in name else f"{name}.default" for name in names]


for _name in itertools.chain(*map(_names, MOVING)):
    # torch's exporter gives 0 where there is nothing to average.
    lower_complex(_name, replaces=_name.startswith("aten::mean."))(_by_parts(_name))


@lower_complex("aten::sum.default", replaces=True)
def _sum_of_scalar(self: Any, **_: Any) -> Any:
    # torch's exporter adds the real and the imaginary part.
    return NotImplemented if len(_shape(self)) else onnx_ops.Identity(self.value)


def _cut(self: Pairs, sizes: Sequence[Any], dim: int) -> Any:
    """Return the pieces of a complex tensor along a dimension, of sizes that may be graph values."""
    ends = list(sizes)
    if not all(isinstance(size, int) for size in ends):
        return NotImplemented
    rank = len(self.value.shape or ()) - 1
    pieces = onnx_ops.Split(self.value, constant(ends), axis=dim % rank, _outputs=len(ends))
    return [pieces] if len(ends) == 1 else list(pieces)


def _size(self: Pairs, dim: int) -> Any:
    assert self.value.shape is not None
    return self.value.shape[dim % (len(self.value.shape) - 1)]


@lower_complex("aten::split.Tensor")
@lower_complex("aten::unsafe_split.Tensor")
def _split_evenly(self: Any, split_size: Any, dim: int = 0) -> Any:
    size = _size(self, dim)
    if not isinstance(size, int) or not isinstance(split_size, int):
        return NotImplemented
    starts = range(0, size, split_size) if size else range(1)
    return _cut(self, [min(split_size, size - start) for start in starts], dim)


@lower_complex("aten::split_with_sizes")
@lower_complex("aten::split_with_sizes_copy")
@lower_complex("aten::unsafe_split_with_sizes")
def _split_with_sizes(self: Any, split_sizes: Sequence[Any], dim: int = 0) -> Any:
    return _cut(self, split_sizes, dim)


@lower_complex("aten::unbind.int")
@lower_complex("aten::unbind_copy.int")
def _unbind(self: Any, dim: int = 0) -> Any:
    size = _size(self, dim)
    if not isinstance(size, int):
        return NotImplemented
    axis = dim % (len(self.value.shape) - 1)
    return [onnx_ops.Gather(self.value, constant(index), axis=axis) for index in range(size)]


def _spread(is_deviation: bool, has_mean: bool) -> Callable[..., Any]:
    """Return a translation of the variance or the standard deviation, which are real, and of the mean if wanted."""

    def translation(
        self: Any,
        dim: Sequence[int] | None = None,
        unbiased: bool = True,
        *,
        correction: float | None = None,
        keepdim: bool = False,
    ) -> Any:
        x, rank = self.value, len(self.value.shape) - 1
        axes = [axis % rank for axis in dim or range(rank)] if rank else []
        mean = onnx_ops.ReduceMean(x, constant(axes)) if axes else x
        apart = onnx_ops.Sub(x, mean)
        total = onnx_ops.ReduceSum(onnx_ops.Mul(apart, apart), constant([*axes, rank]), keepdims=1)
        count = onnx_ops.CastLike(onnx_ops.Div(onnx_ops.Size(x), onnx_ops.Size(mean)), x)
        less = like(float(unbiased if correction is None else correction), x)
        found = onnx_ops.Div(total, onnx_ops.Max(onnx_ops.Sub(count, less), like(0.0, x)))
        gone = [] if keepdim else axes
        result = onnx_ops.Squeeze(onnx_ops.Sqrt(found) if is_deviation else found, constant([*gone, rank]))
        return (result, onnx_ops.Squeeze(mean, constant(gone)) if gone else mean) if has_mean else result

    return translation


for _operator in ("var", "std"):
    lower_complex(f"aten::{_operator}")(_spread(_operator == "std", has_mean=False))
    lower_complex(f"aten::{_operator}_mean")(_spread(_operator == "std", has_mean=True))


@lower_complex("aten::cumprod.default")
def _cumprod(self: Any, dim: int, *, dtype: Any = None) -> Any:
    return NotImplemented if _differs(dtype, self.value) else kernels.Cumprod(self, dim=dim)


@lower_complex("aten::prod.default")
def _prod_of_all(self: Any, *, dtype: Any = None) -> Any:
    flat = onnx_ops.Reshape(self.value, constant([-1, 2]))
    return NotImplemented if _differs(dtype, self.value) else _prod(Pairs(flat), 0, False, rank=1)


@lower_complex("aten::prod.dim_int")
def _prod_along(self: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    rank = len(self.value.shape) - 1
    return _prod(self, dim, keepdim, rank) if rank and not _differs(dtype, self.value) else NotImplemented


def _prod(self: Pairs, dim: int, keepdim: bool, rank: int) -> Any:
    """Return the product along a dimension: the last cumulative product, with a 1 in front for an empty one."""
    before = constant([int(axis == dim % rank) for axis in range(rank)] + [0] * rank)
    halves = zip(split(self), (1.0, 0.0), strict=True)
    products = kernels.Cumprod(
        Pairs(join(*(onnx_ops.Pad(part, before, like(at, part)) for part, at in halves))), dim=dim
    )
    return onnx_ops.Gather(products, constant([-1] if keepdim else -1), axis=dim % rank)


def _truth(name: str) -> Callable[..., Any]:
    def translation(self: Any, **given: Any) -> Any:
        flags = truth(self)
        flags.shape, flags.dtype = _shape(self), onnx_ir.DataType.BOOL
        return as_real(name, self=flags, **given)

    return translation


for _name in (*_names("any"), *_names("all"), "aten::nonzero.default"):
    lower_complex(_name)(_truth(_name))


def _shape(self: Pairs) -> onnx_ir.Shape:
    assert self.value.shape is not None
    return onnx_ir.Shape(list(self.value.shape)[:-1])


def _absolute(self: Pairs) -> Any:
    """Return the absolute values, with the type that translations of real tensors read."""
    result = absolute(self)
    result.shape, result.dtype = _shape(self), self.value.dtype
    return result


@lower_complex("aten::linalg_vector_norm")
def _vector_norm(self: Any, dtype: Any = None, **given: Any) -> Any:
    if dtype is not None:
        self = Pairs(cast(self.value, named_dtype(dtype).to_real()))
    return as_real("aten::linalg_vector_norm", self=_absolute(self), **given)
