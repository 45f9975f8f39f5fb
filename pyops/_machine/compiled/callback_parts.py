"""The functions from which compute callbacks are assembled; numba compiles them into each callback.

They return 0 on success, an ``OrtStatus*``, or ``MISMATCH``. `memory_layout` has the words that they
read and write.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from ...errors import CompileError, OutputError
from .. import memory_layout as layout
from .half_precision import Narrow
from .intrinsics import call, for_compiled_code, load, move_bytes, store

# Repeated here, because numba takes constants from a function's own globals.
_GET_OUTPUT, _GET_DATA, _VALUE, _DATA = layout.GET_OUTPUT, layout.GET_DATA, layout.VALUE, layout.DATA
_AXIS, _CHUNK, _CHUNKS = layout.JOB_AXIS, layout.JOB_CHUNK, layout.JOB_CHUNKS
_MOST_PARTS, _SMALLEST_SPLIT, _PARTS_PER_SPLIT = layout.MOST_PARTS, layout.SMALLEST_SPLIT, layout.PARTS_PER_SPLIT


@register_jitable
def allocate(state: int, context: int, index: int, sizes: int, rank: int, tensor: int) -> int:
    """Allocate an output; its VALUE word is 0 if the model does not use the output."""
    status = call(load(state, _GET_OUTPUT), (context, index, sizes, rank, tensor))
    if status != 0 or load(tensor, _VALUE) == 0:
        return status
    return call(load(state, _GET_DATA), (load(tensor, _VALUE), tensor + 8 * _DATA))


@register_jitable
def copy_words(source: int, target: int, count: int) -> None:
    """Copy words from one address to another."""
    for i in range(count):
        store(target, i, load(source, i))


@register_jitable
def product(sizes: int, rank: int) -> int:
    """Return the product of the `rank` words at an address."""
    result = 1
    for i in range(rank):
        result *= load(sizes, i)
    return result


@register_jitable
def fits(value: Any, sizes: int) -> bool:
    """Return whether an array has the sizes at an address, where -1 stands for any size."""
    for i in range(value.ndim):
        expected = load(sizes, i)
        if expected != -1 and expected != value.shape[i]:
            return False
    return True


@register_jitable
def write(value: Any, out: Any) -> None:
    """Copy a result to a buffer of the same shape, unless it already is that buffer, or there is none."""
    if out.ctypes.data != 0 and (value.ctypes.data != out.ctypes.data or value.strides != out.strides):
        copy_array(value, out)


@register_jitable
def overlap(value: Any, out: Any) -> bool:
    """Return whether an array may have elements in the memory of a C-contiguous one."""
    first = last = value.ctypes.data
    for i in range(value.ndim):
        extent = (value.shape[i] - 1) * value.strides[i]
        first, last = first + min(extent, 0), last + max(extent, 0)
    return value.size != 0 and first < out.ctypes.data + out.size * out.itemsize and out.ctypes.data <= last


@register_jitable
def allocate_like(state: int, context: int, index: int, value: Any, tensor: int, sizes: int) -> int:
    """Allocate the output at `index` with a result's shape; its DATA word is 0 if the model does not use the output."""
    for i in range(value.ndim):
        store(sizes, i, value.shape[i])
    store(tensor, _DATA, 0)
    return allocate(state, context, index, sizes, value.ndim, tensor)


# Parts of a job.


@register_jitable
def plan(job: int, loops: int, loop_rank: int, elements: int) -> int:
    """Decide how to split a job along its loop dimensions; return the number of parts.

    A part has a single index in each dimension before the split axis and a range of that axis, so it is contiguous in
    every array.
    """
    wanted = min(_MOST_PARTS, elements // _SMALLEST_SPLIT * _PARTS_PER_SPLIT) if product(loops, loop_rank) else 0
    axis, leads = 0, 1
    while axis + 1 < loop_rank and leads * load(loops, axis) < wanted:
        leads *= load(loops, axis)
        axis += 1
    size = load(loops, axis) if loop_rank else 1
    chunks = max(1, min(-(-wanted // leads), size))
    chunk = max(1, -(-size // chunks))
    chunks = max(1, -(-size // chunk))
    store(job, _AXIS, axis)
    store(job, _CHUNK, chunk)
    store(job, _CHUNKS, chunks)
    return leads * chunks


@register_jitable
def loops_over(loops: int, loop_rank: int, sizes: int, own: int) -> bool:
    """Return whether the first `own` sizes of an array broadcast to the loop dimensions."""
    for i in range(own):
        size = load(sizes, i)
        if size != 1 and size != load(loops, loop_rank - own + i):
            return False
    return True


@register_jitable
def part_of(job: int, index: int, loops: int, loop_rank: int, array: int, rank: int, own: int, sizes: int) -> int:
    """Return the offset, in elements, of an array's part `index`; write the part's sizes to `sizes`."""
    axis, chunks = load(job, _AXIS), load(job, _CHUNKS)
    lead = index // chunks
    start = index % chunks * load(job, _CHUNK)
    copy_words(array + 8, sizes, rank)
    offset, stride = 0, 1
    for i in range(rank - 1, -1, -1):
        size = load(array, 1 + i)
        loop = i + loop_rank - own
        if i < own and loop <= axis:
            if loop == axis:
                at, length = start, min(load(job, _CHUNK), load(loops, axis) - start)
            else:
                at, length = lead % load(loops, loop), 1
            if size != 1 or load(loops, loop) == 1:
                offset += at * stride
                store(sizes, i, length)
        if loop < axis and loop >= 0:
            lead //= load(loops, loop)
        stride *= size
    return offset


@register_jitable
def write_part(value: Any, out: Any) -> None:
    """Copy the result of a part to its place in the output."""
    if value.shape != out.shape:
        raise OutputError("for a part of its inputs, the kernel returned a shape other than `parallel` declares")
    write(value, out)


# Results.


@for_compiled_code
def copy_array(value: Any, out: Any) -> Any:
    """Copy an array to a C-contiguous one of the same shape and dtype."""
    if value.layout == "C":  # numba's own loop takes five times as long
        return lambda value, out: move_bytes(out.ctypes.data, value.ctypes.data, out.size * out.itemsize)

    def assign(value: Any, out: Any) -> None:
        out[...] = value

    return assign


def _problem(value: Any, declared: Any) -> str | None:
    """Return why a result of this numba type does not match the declared type, or None.

    Wider floats match, because they are narrowed: numba computes float64 from float32 and a Python number, where NumPy
    keeps float32.
    """
    scalar = types.unliteral(value)
    array = isinstance(value, types.Array)
    given = value.dtype if array else scalar
    if not isinstance(given, (types.Number, types.Boolean)):
        return f"the kernel returns {value}, but {declared} is declared; return an array"
    narrows = isinstance(given, types.Float) and isinstance(declared, types.Float)
    if given == declared or (narrows and given.bitwidth > declared.bitwidth):
        return None
    fix = f"result.astype(np.{declared})" if array else f"np.{declared}(result)"
    return f"the kernel returns {value}, but {declared} is declared; return {fix}"


# numba passes on what these functions raise, unless it is an error of its own.


@for_compiled_code
def as_tuple(values: Any, like: Any) -> Any:
    """Return several outputs unchanged if they are a tuple; an array would be indexable too, but is rejected."""
    _check_is_tuple(values)
    if len(values) != len(like):
        raise CompileError(f"the kernel returns {len(values)} arrays, but {len(like)} are declared")
    return lambda values, like: values


def _check_is_tuple(values: Any) -> None:
    if not isinstance(values, types.BaseTuple):
        raise CompileError(f"the kernel returns {values}, but a tuple is declared; return one of a fixed length")


@for_compiled_code
def conform(value: Any, dtype: Any) -> Any:
    """Convert a kernel's result to an array of the declared dtype."""
    if problem := _problem(value, dtype.dtype):
        raise CompileError(problem)
    if not isinstance(value, types.Array):
        return lambda value, dtype: as_stored(np.full((), value, dtype))
    if value.dtype == dtype.dtype:
        return lambda value, dtype: as_stored(value)
    return lambda value, dtype: as_stored(value.astype(dtype))


@for_compiled_code
def as_stored(array: Any) -> Any:
    """Return an array of float16 or bfloat16 as an array of the bits, and any other array as it is."""
    if isinstance(array.dtype, Narrow):
        return lambda array: array.view(np.uint16)
    return lambda array: array


@for_compiled_code
def conform_all(values: Any, dtype: Any) -> Any:
    """Convert a variadic output to a tuple of arrays of the declared dtype."""
    _check_is_tuple(values)
    if len(values) == 0:
        return lambda values, dtype: ()
    return lambda values, dtype: (conform(values[0], dtype), *conform_all(values[1:], dtype))
