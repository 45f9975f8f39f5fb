"""The memory that Python and machine code share: the positions of its words, and NumPy arrays that hold them.

Each node of a session has a *state*, whose words never change, except for its *binding*: what to call for the node,
while the op has the revision that the binding names. A binding has a *shape table*, in which a call's ranks and sizes
are looked up. Bindings, and the entries of their tables, are complete before the single store that machine code finds
them by, so nothing is locked. Python replaces a binding as a whole, and frees it once no machine code can be reading
it.

All memory consists of words of 64 bits.
"""

from __future__ import annotations

import numpy as np

# The words of a tensor that ONNX Runtime gives.
TENSOR_WORDS = 5
VALUE, TYPE, DIMS, RANK, DATA = range(TENSOR_WORDS)

# The state of a node.
CALLS = 0  # what machine code calls: PLAIN, COMPILED, or 0 where Python is to be called
BINDING = 1  # its address
PYTHON, REVISION_AT = 2, 3  # the callback that calls Python; the address of the op's revision
GET_INPUT, GET_OUTPUT, GET_TYPE_AND_SHAPE, GET_DATA, RELEASE_STATUS, PARALLEL_FOR = range(4, 10)
RUNNING = 10  # the number of calls of compiled kernels that are running, each of which may read a binding
NDARRAY, NONE, READ_ONLY, WRITEABLE = range(11, 15)  # objects: a type, None, and the bases of inputs and of buffers
INPUTS, OUTPUTS, ATTRIBUTES = range(15, 18)  # their numbers
USED, IS_TUPLE = 18, 19  # the number of outputs that the node has; whether the kernel returns a tuple
FLAGS = 20  # the NumPy flags that an array which a plain kernel returns must have
PLAIN_RUNNING_AT = 21  # the address of the number of running calls of plain kernels, of all nodes
MEMORY, OWN_MEMORY = 22, 23  # handlers of NumPy's data memory: the one while a kernel runs, or 0, and NumPy's own
IS_LARGE = 24  # whether the node has had an array large enough for MEMORY to be worth its while
EXCHANGE = 25  # the words of the exchange; 0 where results are copied
ITEMS = 26  # two words each: inputs, outputs, attributes
CODE = ITEM_SIZE = 0  # of an input, whose element type is 0 where it is absent; of an output, with its element type
CODE_SHIFT = 32  # in the upper half
DTYPE = 1
ATTRIBUTE, IS_LIST = 0, 1
PLAIN, COMPILED = 1, 2

# A binding.
OWNER, REVISION = 0, 1  # the object that keeps all this alive; the op's revision that it is valid for
TABLE, HAS_SIZES = 2, 3  # the shape table, or 0; whether its keys have sizes, and not only ranks
KERNEL, NAMES, GIVES_BUFFERS = 4, 5, 6  # of a plain kernel: itself, the names of its keywords, whether `out` is one

# A shape table has the address of an entry, or 0, in each slot; `slot_of` says where the slots for a key begin.
SLOT_BITS, PROBES = 8, 4
MIXER = 0x9E3779B97F4A7C15
MOST_ENTRIES = 256
# An entry has an object (the output shapes; for a compiled kernel its record), the number of words of its key (the rank
# of each input, with its sizes), the key, and the rank and the sizes of each output, where ANY stands for any size.
OBJECT, KEY_SIZE, KEY = range(3)
ANY = -1

# Nodes with more inputs, outputs or attributes are left to Python, and so are calls whose key has more words.
MOST = MOST_INPUTS, MOST_OUTPUTS, MOST_ATTRIBUTES = 32, 16, 32
MOST_KEY = 128

# A record, which is compiled for one combination of ranks: the addresses of its entry point, of the entry point for a
# part, and of its attributes.
ENTRY, PART, RECORD_ATTRIBUTES = range(3)
# What an entry point returns: 0 (success), an OrtStatus*, or one of these.
MISMATCH = 1  # Python must make this call
PART_FAILED = 2

# Set in the second argument of the callback PYTHON if it is the address of these words rather than a context.
HANDED = 1
# The context; what the kernel did; a list of inputs, buffers and what it returned or raised, if any; the output shapes,
# or 0. A compiled kernel that FAILED leaves the number of slots in place of the list, and in each slot the type, the
# value and the traceback of an exception, or zeros.
CONTEXT, OUTCOME, OBJECTS, SHAPES, SLOTS = range(5)
HANDED_WORDS = SLOTS
SLOT_WORDS = 3
DELIVERED, RETURNED, RAISED, FAILED = range(4)

# A job, whose parts the threads of ONNX Runtime's pool take: these words, then per array its address and its sizes,
# then the sizes of the loop dimensions.
JOB_RECORD, JOB_FAILURES, JOB_STOPPED, JOB_AXIS, JOB_CHUNK, JOB_CHUNKS, JOB_ARRAYS = range(7)
# ONNX Runtime splits its own Add of float32 from about this many elements on; for fewer, waking a thread costs more
# than it saves. Parts are smaller, so that a late thread delays the others less, and come in fours, so that two and
# four threads get equal shares.
SMALLEST_SPLIT, PARTS_PER_SPLIT = 65536, 4
MOST_PARTS = 32

Words = np.ndarray[tuple[int], np.dtype[np.int64]]


def words(*values: int) -> Words:
    """Return an array that holds these words."""
    return np.array(values, np.int64)


def address_of(memory: Words) -> int:
    """Return the address of an array of words."""
    address: int = memory.ctypes.data
    return address
