"""NumPy's arrays, as machine code reads them."""

from __future__ import annotations

from .llvm_code import load, load_int

# The words of an array, after its reference count, and bits of its flags.
OBJECT_TYPE, ARRAY_DATA, ARRAY_RANK, ARRAY_DIMS, ARRAY_BASE, ARRAY_DTYPE, ARRAY_FLAGS = 1, 2, 3, 4, 6, 7, 8
ARRAY_WEAK, ARRAY_HANDLER = 9, 11  # weak references, or 0; the handler of its data memory, if it owns that
C_CONTIGUOUS, OWNS_DATA, ALIGNED, MAY_WRITE = 0x1, 0x4, 0x100, 0x400


def is_alone(item: int) -> int:
    """Return whether an object has one reference, and so whoever has that is alone with it."""
    if load_int(item) != 1:
        return 0
    return 1


def elements(rank: int, dims: int) -> int:
    """Return the number of elements of an array."""
    count = 1
    for axis in range(rank):
        count = count * load(dims, axis)
    return count
