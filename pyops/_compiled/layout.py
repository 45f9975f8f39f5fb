"""The memory layout that Python and compiled code share: words, by position.

Each node of a session has a *state* that points to its list of *records*, one per combination of types and ranks that
it was called with; compiled code tries them in turn. Lists and the fixed words of records never change once compiled
code can see them, so nothing is locked: a new list replaces the old in a single store.
"""

from __future__ import annotations

# The state of a node.
RECORDS = 0
REVISION_AT = 1  # the address of the op's revision
PYTHON = 2  # the callback to call when compiled code cannot continue
GET_INPUT, GET_OUTPUT, GET_TYPE_AND_SHAPE, GET_DATA, PARALLEL_FOR = range(3, 8)

# A list of records: the op's revision that they are valid for, their number, and their addresses.
REVISION, COUNT, FIRST = range(3)

# A record: the addresses of the entry point, of the entry point for a part, of the attributes and of the shape table.
ENTRY, PART, ATTRIBUTES, SHAPES = range(4)

# A shape table: a hash table with open addressing. A slot holds whether it is used, the sizes of all inputs and the
# sizes of all outputs, where -1 is a size known only at run time.
MASK, INPUT_SIZES, OUTPUT_SIZES, SLOTS = range(4)

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

HASH_FACTOR = 1000003
