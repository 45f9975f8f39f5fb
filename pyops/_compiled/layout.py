"""The memory that Python and compiled code share: the positions of its words, and NumPy arrays that hold them.

Each node of a session has a *state* that points to its list of *records*, one per combination of types and ranks that
it was called with; compiled code tries them in turn. Lists and the fixed words of records never change once compiled
code can see them, so nothing is locked: a new list replaces the old in a single store. What was replaced is freed once
no compiled code of the node is running.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .specialization import AttributeWords

# The state of a node.
RECORDS = 0
REVISION_AT = 1  # the address of the op's revision
PYTHON = 2  # the callback to call when compiled code cannot continue
GET_INPUT, GET_OUTPUT, GET_TYPE_AND_SHAPE, GET_DATA, PARALLEL_FOR = range(3, 8)
RUNNING = 8  # the number of calls that compiled code is making

# A list of records: the op's revision that they are valid for, their number, and their addresses.
REVISION, COUNT, FIRST = range(3)

# A record: the addresses of the entry point, of the entry point for a part, of the attributes and of the shape table.
ENTRY, PART, ATTRIBUTES, SHAPES = range(4)

# A shape table: the number of its entries, the number of words of an entry and how many of these are sizes of inputs,
# then the entries: the sizes of all inputs and of all outputs, where -1 is a size known only at run time.
ENTRIES, ENTRY_WORDS, INPUT_SIZES, FIRST_ENTRY = range(4)
_MOST_ENTRIES = 1024

# What an entry returns: 0 (success), an OrtStatus*, or one of these.
MISMATCH = 1  # the inputs do not match this record, or their shapes are not in its table
RAISED = 2

# Set in the Python callback's second argument if it is the address of failures rather than a context.
FAILED = 1
# Failures: the context, the number of slots, and in each the type, the value and the traceback.
FAILURE_CONTEXT, FAILURE_SLOTS, FAILURES = range(3)
FAILURE_WORDS = 3

# A job, whose parts the threads of ONNX Runtime's pool take: these words, then per array its address and its sizes,
# then the sizes of the loop dimensions.
JOB_RECORD, JOB_FAILURES, JOB_STOPPED, JOB_AXIS, JOB_CHUNK, JOB_CHUNKS, JOB_ARRAYS = range(7)
# ONNX Runtime splits its own Add of float32 from about this many elements on; for fewer, waking a thread costs more
# than it saves. Parts are smaller, so that a late thread delays the others less, and come in fours, so that two and
# four threads get equal shares.
SMALLEST_SPLIT, PARTS_PER_SPLIT = 65536, 4
MOST_PARTS = 32


def words(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return an array that holds these words."""
    return np.array(values, np.int64)


def address_of(memory: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Return the address of an array of words."""
    address: int = memory.ctypes.data
    return address


class Record:
    """The record of one specialization, which compiled code finds by its `address`; only one thread may change it."""

    def __init__(self, entry: int, part: int, attributes: AttributeWords, input_sizes: int, output_sizes: int) -> None:
        self._attributes = attributes
        self._tables: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        self._empty_table = words(0, input_sizes + output_sizes, input_sizes)
        self._memory = words(entry, part, address_of(attributes.memory), 0)
        self._add_table()
        self.address = address_of(self._memory)

    def _add_table(self) -> None:
        table = np.zeros(FIRST_ENTRY + _MOST_ENTRIES * self._empty_table[ENTRY_WORDS], np.int64)
        table[:FIRST_ENTRY] = self._empty_table
        self._tables.append(table)
        self._memory[SHAPES] = address_of(table)

    def add_shapes(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Add the output sizes (-1: any) for these input sizes to the shape table."""
        if self._tables[-1][ENTRIES] >= _MOST_ENTRIES:  # with so many shapes, old ones are unlikely to come again
            self._add_table()
        table = self._tables[-1]
        count, size = int(table[ENTRIES]), len(inputs) + len(outputs)
        at = FIRST_ENTRY + count * size
        table[at : at + size] = [*inputs, *outputs]
        # Written last, since compiled code may be reading the table.
        table[ENTRIES] = count + 1

    def free_replaced(self) -> None:
        """Free the tables that were replaced; no compiled code may be running that found one."""
        del self._tables[:-1]
