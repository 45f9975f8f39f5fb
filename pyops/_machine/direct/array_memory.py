"""Memory for the arrays of kernels, as machine code: the functions of a handler of NumPy's data memory.

While a kernel runs, NumPy asks this handler for memory. Memory of at least `LEAST` bytes is not freed with its array
but kept, up to a limit, for the next array of about this size, which then costs the system no new pages. All memory
comes from NumPy's own handler in the end, and small memory goes back to it at once.

In front of an array's data lie two words: the address of its block, and how many bytes of data it can hold. NumPy does
not always free with the size that it allocated with. In front of small data, the address is 0 and the block begins
there.

Any thread may call these functions, with or without the interpreter's lock: whoever takes an address out of a slot owns
that memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ctypes import PYFUNCTYPE, c_char, c_char_p, c_void_p, py_object, pythonapi
from typing import Any

from ...errors import EngineError
from ..memory_layout import address_of, words
from .llvm_code import add, c, call, exchange, load, replace, store

LEAST = 2**16
SLOTS = 16  # a power of two

# The words of a handler: PyDataMem_Handler of NumPy's C API, whose name and version are the first 16. Ours goes on with
# NumPy's own handler, the number of living nodes, `node_ended`, how many bytes are kept and may be kept, the slot in
# which the next block replaces one, and the slots.
CONTEXT, MALLOC, CALLOC, REALLOC, FREE = range(16, 21)
OWN, NODES, NODE_ENDED, IDLE, LIMIT, TURN, FIRST_SLOT = range(21, 28)
_WORDS = FIRST_SLOT + SLOTS

BLOCK, CAPACITY, _HEAD = -16, -8, 16  # before the data, in bytes
_LARGE_HEAD = _HEAD + 64
_ALIGNED = -64


def allocate(memory: int, size: int) -> int:
    """Return memory; null if there is none: NumPy's malloc."""
    own = load(memory, OWN)
    if size < LEAST:
        return _small(call(load(own, MALLOC), load(own, CONTEXT), size + _HEAD), size)
    data = _kept(memory, size)
    if data == 0:
        block = call(load(own, MALLOC), load(own, CONTEXT), size + _LARGE_HEAD)
        if block == 0:
            return 0
        data = (block + _LARGE_HEAD) & _ALIGNED
        store(block, data + BLOCK)
        store(size, data + CAPACITY)
    return data


def allocate_zeroed(memory: int, count: int, item_size: int) -> int:
    """Return memory of zeros: NumPy's calloc. It is never kept memory: the system has zeros at no cost until used."""
    own = load(memory, OWN)
    size = count * item_size
    return _small(call(load(own, CALLOC), load(own, CONTEXT), 1, size + _HEAD), size)


def reallocate(memory: int, data: int, size: int) -> int:
    """Return memory with the same contents: NumPy's realloc."""
    if data == 0:
        return allocate(memory, size)
    own = load(memory, OWN)
    if load(data + BLOCK) == 0:
        return _small(call(load(own, REALLOC), load(own, CONTEXT), data - _HEAD, size + _HEAD), size)
    moved = allocate(memory, size)
    if moved != 0:
        if size > load(data + CAPACITY):
            size = load(data + CAPACITY)
        c.memmove(moved, data, size)
        release(memory, data, 0)
    return moved


def _small(block: int, size: int) -> int:
    """Return where the data begins in a new block that is freed with its array."""
    if block == 0:
        return 0
    store(0, block)
    store(size, block, 1)
    return block + _HEAD


def release(memory: int, data: int, size: int) -> int:
    """Free memory, or keep it: NumPy's free."""
    if data == 0:
        return 0
    own = load(memory, OWN)
    capacity = load(data + CAPACITY)
    if load(data + BLOCK) == 0:
        return call(load(own, FREE), load(own, CONTEXT), data - _HEAD, capacity + _HEAD)
    if load(memory, NODES) == 0 or capacity > load(memory, LIMIT):
        return _free(memory, data)
    # What is counted has been compared with the limit, so that not even several threads at once exceed it.
    if add(capacity, memory, IDLE) + capacity > load(memory, LIMIT):
        free_kept(memory)
        if load(memory, IDLE) > load(memory, LIMIT):
            add(0 - capacity, memory, IDLE)
            return _free(memory, data)
    for i in range(SLOTS):
        if replace(0, data, memory, FIRST_SLOT + i):
            return 0
    return _put(memory, add(1, memory, TURN) & (SLOTS - 1), data)


def fits(capacity: int, size: int) -> int:
    """Return whether memory is large enough for some data, and not much too large."""
    if capacity - size > size >> 3:
        return 0
    return 1


def _kept(memory: int, size: int) -> int:
    """Return kept memory for data of some size; 0 if there is none."""
    for i in range(SLOTS):
        if load(memory, FIRST_SLOT + i) != 0:
            data = exchange(0, memory, FIRST_SLOT + i)
            if data != 0:
                if fits(load(data + CAPACITY), size):
                    add(0 - load(data + CAPACITY), memory, IDLE)
                    return data
                _put(memory, i, data)
    return 0


def _put(memory: int, slot: int, data: int) -> int:
    """Put memory into a slot, or nothing, and free what was there."""
    old = exchange(data, memory, FIRST_SLOT + slot)
    if old != 0:
        add(0 - load(old + CAPACITY), memory, IDLE)
        _free(memory, old)
    return 0


def _free(memory: int, data: int) -> int:
    own = load(memory, OWN)
    return call(load(own, FREE), load(own, CONTEXT), load(data + BLOCK), load(data + CAPACITY) + _LARGE_HEAD)


def free_kept(memory: int) -> int:
    """Free all memory that is kept."""
    for i in range(SLOTS):
        _put(memory, i, 0)
    return 0


def node_begins(memory: int) -> int:
    """Return a new Python object that calls `node_ended` when it is freed."""
    add(1, memory, NODES)
    return c.PyCapsule_New(memory, 0, load(memory, NODE_ENDED))


def node_ended(capsule: int) -> int:
    """Free what is kept if this node was the last."""
    memory = c.PyCapsule_GetPointer(capsule, 0)
    if add(0 - 1, memory, NODES) == 1:
        free_kept(memory)
    return 0


class ArrayMemory:
    """The handler of this process, which lives until the process ends: arrays may live longer than modules.

    Parameters
    ----------
    code : mapping
        The addresses of the functions of this module.
    own : int
        The address of NumPy's own handler, a capsule.

    Attributes
    ----------
    words : numpy.ndarray
        The words, as the constants of this module number them.
    handler : object
        The capsule that NumPy takes as a handler.

    Raises
    ------
    EngineError
        ``PYOPS_KEPT_MEMORY`` is not a number.
    """

    _VARIABLE, _DEFAULT = "PYOPS_KEPT_MEMORY", "256"
    _NAME = b"mem_handler"

    def __init__(self, code: Mapping[str, int], own: int) -> None:
        self.own = own
        at = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))(own, self._NAME)
        self.words = words(*[0] * _WORDS)
        address = address_of(self.words)
        (c_char * 127).from_address(address).value = b"pyops"
        (c_char * 128).from_address(address)[127] = b"\1"  # the version
        self.words[CONTEXT], self.words[OWN], self.words[NODE_ENDED] = address, at, code["node_ended"]
        self.words[MALLOC:OWN] = [code[name] for name in ("allocate", "allocate_zeroed", "reallocate", "release")]
        make = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
        self.handler = make(address, self._NAME, None)
        self._node_begins = PYFUNCTYPE(py_object, c_void_p)(code["node_begins"])
        pythonapi.Py_IncRef(py_object(self))

    def node_begins(self) -> Any:
        """Return an object to keep as long as a node lives; set the limit of what is kept."""
        text = os.environ.get(self._VARIABLE, self._DEFAULT)
        if not text.isdecimal():
            raise EngineError(
                f"{self._VARIABLE} is {text!r}; set it to how many MiB may be kept for the arrays of kernels, such as "
                f"{self._DEFAULT} (the default), or 0 for none"
            )
        self.words[LIMIT] = int(text) << 20
        return self._node_begins(address_of(self.words))
