"""Lowering of operators that search, select, write or reduce elements by index."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir
import torch

from pyops.kernels import searching

from .operands import (
    Pairs,
    by_parts,
    by_torch,
    cast,
    constant,
    dtype_of,
    join_zeros,
    kernels,
    like,
    onnx_ops,
    promote,
    split,
    typed_constant,
    vector,
    widened,
)
from .row_table import lower

lower("aten::nonzero_static")(searching.nonzero_static)
lower("aten::one_hot")(searching.one_hot)


@lower("aten::embedding_bag", replaces=True)
@lower("aten::embedding_bag.padding_idx", replaces=True)
def _embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    mode: int = 0,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    **_: Any,
) -> Any:
    """Lower the bags as sums, means or maxima by index; torch's exporter emits a loop of float32."""
    table, bags = widened(weight), onnx_ops.Shape(offsets)
    begins = _counted(offsets, onnx_ops.Shape(indices) + constant([1]))
    bag = onnx_ops.Slice(onnx_ops.CumSum(begins, constant(0)), constant([0]), constant([-1])) - constant(1)
    rows = onnx_ops.Gather(table, indices)
    if per_sample_weights is not None:
        rows = rows * onnx_ops.Unsqueeze(widened(per_sample_weights), constant([1]))
    if padding_idx is not None:
        padding = onnx_ops.Mod(constant([padding_idx]), onnx_ops.Shape(weight, end=1))
        kept = onnx_ops.Not(onnx_ops.Equal(indices, onnx_ops.CastLike(padding, indices)))
        rows, bag = (onnx_ops.Compress(item, kept, axis=0) for item in (rows, bag))

    def scattered(first: float, rows: Any, how: str) -> Any:
        filled = onnx_ops.Expand(like(first, table), onnx_ops.Concat(bags, onnx_ops.Shape(table, start=1), axis=0))
        return onnx_ops.ScatterND(filled, onnx_ops.Unsqueeze(bag, constant([1])), rows, reduction=how)

    if mode == 2:  # torch's maximum is NaN if the first of the bag is, and leaves out other NaN
        is_nan, before = onnx_ops.IsNaN(rows), onnx_ops.Concat(constant([-1]), bag, axis=0)
        is_later = onnx_ops.Equal(bag, onnx_ops.Slice(before, constant([0]), constant([-1])))
        result = scattered(-math.inf, onnx_ops.Where(is_nan, like(-math.inf, rows), rows), "max")
        is_left_out = onnx_ops.Or(onnx_ops.Unsqueeze(is_later, constant([1])), onnx_ops.Not(is_nan))
        result = result + scattered(0.0, onnx_ops.Where(is_left_out, like(0.0, rows), rows), "add")
    else:
        result = scattered(0.0, rows, "add")
    counts = _counted(bag, bags)
    sizes = onnx_ops.Unsqueeze(counts, constant([1]))
    result = result / onnx_ops.CastLike(sizes, result) if mode == 1 else result
    result = onnx_ops.Where(sizes > constant(0), result, like(0.0, result))
    result = onnx_ops.Slice(result, constant([0]), constant([-1])) if include_last_offset else result
    unread = onnx_ops.Identity(counts)  # torch sets the shapes of what is returned
    return onnx_ops.CastLike(result, weight), unread, unread, unread


def _counted(numbers: Any, size: Any) -> Any:
    """Return how often each number below a size occurs."""
    ones = onnx_ops.Expand(constant(1), onnx_ops.Shape(numbers))
    return onnx_ops.ScatterElements(onnx_ops.Expand(constant(0), size), numbers, ones, reduction="add")


@lower("aten::split.Tensor", replaces=True)
def _split(self: Any, split_size: Any, dim: int = 0) -> Any:
    if self.shape[dim] == 0:  # of which ONNX makes no part, and torch one
        return onnx_ops.SequenceConstruct(self)
    # onnxscript's optimizer fails on SplitToSequence if the size is known only when the model runs.
    if isinstance(split_size, int):
        return NotImplemented
    size = onnx_ops.Gather(onnx_ops.Shape(self), constant(dim), axis=0)
    starts = onnx_ops.Range(constant(0), size, split_size)
    return onnx_ops.SplitToSequence(self, onnx_ops.Min(split_size, onnx_ops.Sub(size, starts)), axis=dim)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


@lower("aten::scatter_reduce.two", replaces=True)
def _scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    # ONNX's ScatterElements has no mean, and torch's exporter emits one that keeps the last element.
    if reduce == "mean":
        return kernels.ScatterReduce(self, index, src, dim=dim, reduce=reduce, include_self=include_self)
    return _scattered("aten::scatter_reduce.two")(self, dim, index, src, reduce=reduce, include_self=include_self)


def _scattered(name: str) -> Callable[..., Any]:
    def translation(self: Any, dim: int, index: Any, src: Any = None, **given: Any) -> Any:
        if 0 in index.shape:
            return onnx_ops.Identity(self)
        tensors = [self, index] if src is None else [self, index, src]
        if not all(len(item.shape) for item in tensors):  # torch takes a scalar for a vector; ONNX does not
            return onnx_ops.Reshape(written(dim, *map(_as_vector, tensors), **given), onnx_ops.Shape(self))
        if src is None or (index.shape == src.shape and (name == "aten::scatter.src" or not _is_short(self))):
            return NotImplemented
        return written(dim, self, index, src, **given)

    def written(dim: int, self: Any, index: Any, src: Any = None, **given: Any) -> Any:
        if src is None:
            return by_torch(name, self, dim, index, **given)
        part = src if index.shape == src.shape else _indexed(src, index)
        return _widened(lambda x, y: by_torch(name, x, dim, index, y, **given), self, part)

    return translation


def _as_vector(x: Any) -> Any:
    if len(x.shape):
        return x
    result: Any = onnx_ops.Reshape(x, constant([1]))
    result.shape, result.dtype = onnx_ir.Shape([1]), x.dtype  # torch's translations read them
    return result


def _is_short(x: Any) -> bool:
    return dtype_of(x) in (torch.float16, torch.bfloat16)


def _widened(function: Callable[..., Any], self: Any, values: Any) -> Any:
    """Call a function with numbers, as float32 if they have 16 bits, because ONNX Runtime does not add those."""
    if not _is_short(self):
        return function(self, values)
    return onnx_ops.CastLike(function(*(cast(item, torch.float32) for item in (self, values))), self)


for _name in ("aten::scatter_add.default", "aten::scatter.src", "aten::scatter.value"):
    lower(_name, replaces=True)(_scattered(_name))


@lower("aten::gather", replaces=True)
def _gather(self: Any, dim: int, index: Any, **_: Any) -> Any:
    # torch takes an empty index of any rank; ONNX does not.
    if 0 not in index.shape or len(index.shape) == len(self.shape):
        return NotImplemented
    return onnx_ops.Expand(like(0, self), onnx_ops.Shape(index))


def _indexed(src: Any, index: Any) -> Any:
    """Return the part of `src` that has the shape of the index; ONNX does not accept a larger source."""
    axes = constant(list(range(len(src.shape))))
    part: Any = onnx_ops.Slice(src, constant([0] * len(src.shape)), onnx_ops.Shape(index), axes)
    part.shape, part.dtype = index.shape, src.dtype  # torch's translations read them
    return part


@lower("aten::scatter.reduce")
@lower("aten::scatter.value_reduce")
def _scatter(self: Any, dim: int, index: Any, src: Any = None, value: Any = None, *, reduce: str) -> Any:
    if src is None:
        src = onnx_ops.Expand(typed_constant(value, dtype_of(self)), onnx_ops.Shape(index))
    return kernels.ScatterReduce(self, index, src, dim=dim, reduce=_REDUCTIONS[reduce])


@lower("aten::index_reduce")
def _index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    # Every element of a slice has the index of the slice.
    along = [1] * max(len(source.shape), 1)
    along[dim] = -1
    places = onnx_ops.Expand(onnx_ops.Reshape(index, constant(along)), onnx_ops.Shape(source))
    return kernels.ScatterReduce(self, places, source, dim=dim, reduce=reduce, include_self=include_self)


@lower("aten::masked_select", takes_complex=True)
def _masked_select(self: Any, mask: Any) -> Any:
    def selected(values: Any) -> Any:
        whole = onnx_ops.And(mask, onnx_ops.Expand(constant(True), onnx_ops.Shape(values)))
        spread = onnx_ops.Expand(values, onnx_ops.Shape(whole))
        # Compress does not take scalars.
        return onnx_ops.Compress(*(onnx_ops.Reshape(item, constant([-1])) for item in (spread, whole)))

    return by_parts(selected, self)


@lower("aten::put", takes_complex=True)
def _put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    def written(values: Any, given: Any) -> Any:
        flat, places, elements = (onnx_ops.Reshape(item, constant([-1])) for item in (values, index, given))
        how = "add" if accumulate else "none"
        result = onnx_ops.ScatterElements(flat, places, elements, axis=0, reduction=how)
        return onnx_ops.Reshape(result, onnx_ops.Shape(values))

    return by_parts(functools.partial(_widened, written) if accumulate else written, self, source)


@lower("aten::index_put.default", replaces=True)
@lower("aten::_unsafe_index_put.default", replaces=True)
def _index_put(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    # torch's exporter passes an int32 index to ScatterND, which takes int64 only, and supports few mixes with masks.
    # ONNX Runtime does not add numbers of 16 bits.
    dtypes = {dtype_of(index) for index in indices if index is not None}
    masks = [index for index in indices if index is not None and dtype_of(index) in (torch.bool, torch.uint8)]
    apart = len(indices) == 1 or (len(masks) == len(indices) and all(len(mask.shape) == 1 for mask in masks))
    supported = dtypes <= {torch.int64} or (dtypes == {torch.bool} and apart)
    adds_short = accumulate and _is_short(self)
    if supported and not adds_short:
        return NotImplemented
    places = indices if supported else [place for index in indices for place in _places(index)]

    def written(x: Any, y: Any) -> Any:
        return by_torch("aten::index_put", x, places, y, accumulate)

    return _widened(written, self, values) if adds_short else written(self, values)


def _places(index: Any) -> list[Any]:
    """Convert an index to int64 indices: a mask to one for each of its dimensions."""
    if index is None or dtype_of(index) not in (torch.bool, torch.uint8):
        return [None if index is None else cast(index, torch.int64)]
    found = onnx_ops.NonZero(cast(index, torch.bool))
    places = [onnx_ops.Gather(found, constant(dim), axis=0) for dim in range(len(index.shape))]
    for place in places:
        place.shape, place.dtype = onnx_ir.Shape([None]), onnx_ir.DataType.INT64  # torch's translation reads them
    return places


@lower("aten::block_diag", replaces=True)
def _block_diag(tensors: Sequence[Any]) -> Any:
    # In torch's decomposition, the type of a scalar counts as much as that of a matrix.
    blocks = promote(*tensors)
    blocks = [x if len(x.shape) == 2 else onnx_ops.Unsqueeze(x, constant([0, 1][: 2 - len(x.shape)])) for x in blocks]

    def block(row: int, column: int) -> Any:
        x, y = blocks[row], blocks[column]
        shape = onnx_ops.Concat(onnx_ops.Shape(x, end=1), onnx_ops.Shape(y, start=1), axis=0)
        return x if row == column else onnx_ops.Expand(like(0, x), shape)

    places = range(len(blocks))
    return onnx_ops.Concat(*(onnx_ops.Concat(*(block(i, j) for j in places), axis=1) for i in places), axis=0)


@lower("aten::searchsorted.Tensor")
@lower("aten::searchsorted.Scalar")
def _searchsorted(
    sorted_sequence: Any, self: Any, right: bool = False, out_int32: bool = False, side: Any = None, sorter: Any = None
) -> Any:
    operands = promote(sorted_sequence, self)
    return _as_indices(kernels.Searchsorted(*operands, sorter, right=right or side == "right"), out_int32)


@lower("aten::bucketize.Tensor")
@lower("aten::bucketize.Scalar")
def _bucketize(self: Any, boundaries: Any, out_int32: bool = False, **given: Any) -> Any:
    return _as_indices(kernels.Searchsorted(*promote(boundaries, self), **given), out_int32)


def _as_indices(found: Any, out_int32: bool) -> Any:
    return onnx_ops.Cast(found, to=onnx_ir.DataType.INT32) if out_int32 else found


@lower("aten::nonzero", replaces=True)
def _nonzero(self: Any) -> Any:
    # ONNX Runtime supports few types. For a scalar the result has shape (n, 0), but torch's exporter gives (n, 1).
    if len(self.shape):
        supported = dtype_of(self) in (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32)
        return NotImplemented if supported else by_torch("aten::nonzero", cast(self, torch.bool))
    index = onnx_ops.Transpose(onnx_ops.NonZero(onnx_ops.Reshape(cast(self, torch.bool), constant([-1]))))
    return onnx_ops.Slice(index, constant([0]), constant([0]), constant([1]))


@lower("aten::unique_consecutive", replaces=True)
def _unique_consecutive(
    self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim == 0 and len(self.shape) == 1:
        dim = None
    # With dim, torch always returns inverse and counts.
    both = {} if dim is None else {"return_inverse": True, "return_counts": True}
    asked = {"return_inverse": return_inverse, "return_counts": return_counts, **both}
    return kernels.UniqueConsecutive(self, **asked, dim=dim)


@lower("aten::copy", replaces=True, takes_complex=True)
def _copy(self: Any, src: Any, **_: Any) -> Any:
    if isinstance(self, Pairs):
        if isinstance(src, Pairs):
            return _expanded(src.value, self.value)
        return onnx_ops.Expand(join_zeros(cast(src, dtype_of(self.value))), onnx_ops.Shape(self.value))
    # torch drops the imaginary parts. Its exporter does not broadcast the source.
    if isinstance(src, Pairs):
        return _expanded(split(src)[0], self)
    return NotImplemented if self.shape == src.shape else _expanded(src, self)


def _expanded(src: Any, self: Any) -> Any:
    value = cast(src, dtype_of(self))
    return onnx_ops.Identity(value) if self.shape == src.shape else onnx_ops.Expand(value, onnx_ops.Shape(self))


def _in_pairs(name: str) -> Callable[..., Any]:
    """Return a translation that reads or writes along a dimension of pairs, by torch's own one for real tensors."""

    def translation(self: Any, dim: int = 0, **given: Any) -> Any:
        values = [value for value in (self, given.pop("src", None)) if value is not None]
        if not all(isinstance(value, Pairs) for value in values):
            return NotImplemented
        pairs = [value.value for value in values]
        return by_torch(name, *pairs, dim=dim % (len(pairs[0].shape) - 1), **given)

    return translation


for _name in ("aten::select.int", "aten::slice_scatter", "aten::select_scatter"):
    lower(_name, replaces=True, takes_complex=True)(_in_pairs(_name))


def _written(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def translation(self: Any, src: Any, **places: Any) -> Any:
        return by_parts(lambda values, given: kernel(values, cast(given, dtype_of(values)), **places), self, src)

    return translation


lower("aten::diagonal_scatter", takes_complex=True)(_written(kernels.DiagonalScatter))
lower("aten::as_strided_scatter", takes_complex=True)(_written(kernels.AsStridedScatter))


@lower("aten::resize", takes_complex=True)
def _resize(self: Any, size: Any, **_: Any) -> Any:
    # An ONNX tensor has no memory format. Elements that torch leaves uninitialized are 0.
    count = constant([math.prod(size)])

    def resized(values: Any) -> Any:
        flat = onnx_ops.Reshape(values, constant([-1]))
        filled = onnx_ops.Concat(flat, onnx_ops.Expand(like(0, values), count), axis=0)
        return onnx_ops.Reshape(onnx_ops.Slice(filled, constant([0]), count), constant(np.array(size, np.int64)))

    return by_parts(resized, self)


@lower("aten::segment_reduce")
def _segment_reduce(
    data: Any, lengths: Any = None, offsets: Any = None, initial: Any = None, indices: Any = None, **given: Any
) -> Any:
    start = None if initial is None else typed_constant(initial, dtype_of(data))
    return kernels.SegmentReduce(data, lengths, offsets, start, **given)


@lower("prims::view_of", takes_complex=True)
def _view_of(a: Any) -> Any:
    return onnx_ops.Identity(a.value if isinstance(a, Pairs) else a)


@lower("aten::repeat_interleave.self_int", replaces=True)
def _repeat_interleave(self: Any, repeats: Any, dim: int | None = None, **_: Any) -> Any:
    # torch's exporter gives the elements of none once.
    if isinstance(repeats, onnx_ir.Value) or (repeats and 0 not in self.shape):
        return NotImplemented
    if dim is None:
        return onnx_ops.Tile(onnx_ops.Reshape(self, constant([-1])), constant([repeats]))
    axis = dim % len(self.shape)
    return onnx_ops.Tile(self, constant([repeats if other == axis else 1 for other in range(len(self.shape))]))


@lower("aten::repeat_interleave.Tensor", replaces=True)
def _repeated_indices(repeats: Any, output_size: Any = None) -> Any:
    # torch's exporter takes no output_size.
    return NotImplemented if output_size is None else by_torch("aten::repeat_interleave.Tensor", repeats)


@lower("aten::diagonal", replaces=True)
@lower("aten::diagonal_copy", replaces=True)
def _diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    # torch's exporter adds the products of rows with 0 and 1, which are NaN beside an infinity.
    others = [dim for dim in range(len(self.shape)) if dim not in (dim1 % len(self.shape), dim2 % len(self.shape))]
    first = onnx_ops.Transpose(self, perm=[dim1 % len(self.shape), dim2 % len(self.shape), *others])
    above, below = constant(max(offset, 0)), constant(max(-offset, 0))
    rows, columns = (onnx_ops.Gather(onnx_ops.Shape(first), constant(axis)) for axis in (0, 1))
    count = onnx_ops.Max(onnx_ops.Min(rows - below, columns - above), constant(0))
    numbers = onnx_ops.Unsqueeze(onnx_ops.Range(constant(0), count, constant(1)), constant([1]))
    elements = onnx_ops.GatherND(first, onnx_ops.Concat(numbers + below, numbers + above, axis=1))
    return onnx_ops.Transpose(elements, perm=[*range(1, len(others) + 1), 0])


# torch.export fixes all ranks, and assumes that a dynamic dimension is not of size 1.


@lower("aten::squeeze.dim", replaces=True)
def _squeeze_dim(self: Any, dim: int) -> Any:
    # torch's exporter emits a Squeeze without checking that the size is 1.
    return NotImplemented if not len(self.shape) or self.shape[dim] == 1 else onnx_ops.Identity(self)


@lower("aten::squeeze.dims")
def _squeeze_dims(self: Any, dim: Sequence[int]) -> Any:
    axes = sorted({item % len(self.shape) for item in dim if self.shape[item] == 1}) if len(self.shape) else []
    return onnx_ops.Squeeze(self, constant(axes)) if axes else onnx_ops.Identity(self)


@lower("aten::expand", replaces=True)
def _expand(self: Any, size: Sequence[Any], **_: Any) -> Any:
    # A size computed from data may be -1, which keeps the tensor's own size, as 1 does in ONNX.
    if all(isinstance(item, int) or _depends_on_shapes_only(item) for item in size):
        return NotImplemented
    return onnx_ops.Expand(self, onnx_ops.Abs(vector(size)))


def _depends_on_shapes_only(size: onnx_ir.Value) -> bool:
    """Return whether a size is computed only from the shapes of tensors."""
    node = size.producer()
    return node is not None and (
        node.op_type in ("Shape", "Size", "Constant") or all(map(_depends_on_shapes_only, filter(None, node.inputs)))
    )
