"""Where Python and compiled code find what they share: words of memory, by position.

A node of a session has a *state*. It points to the list of its *records*, one for each combination of ranks that it
was called with; compiled code tries them in turn. Lists and the fixed words of records never change once compiled
code can see them, so that nothing is locked: a new list takes the place of the old in one step.
"""

from __future__ import annotations

# The state of a node.
RECORDS = 0
REVISION_AT = 1  # the address of the op's revision
PYTHON = 2  # the callback to call where compiled code cannot go on
GET_INPUT, GET_OUTPUT, GET_TYPE_AND_SHAPE, GET_DATA, PARALLEL_FOR = range(3, 8)

# A list of records: the revision that they hold for, their number, and their addresses.
REVISION, COUNT, FIRST = range(3)

# A record: what to call, for a part alone too, and on which attributes and output shapes.
ENTRY, PART, ATTRIBUTES, SHAPES = range(4)

# A table of shapes: a hash table with open addressing. Its slots hold whether they are used, the
# sizes of all inputs and the sizes of all outputs; -1 is a size that only the kernel tells.
MASK, INPUT_SIZES, OUTPUT_SIZES, SLOTS = range(4)

# What an entry returns: no status (success), an OrtStatus*, or one of these.
MISMATCH = 1  # the inputs are none that this record is for, or their shapes are not in its table
RAISED = 2

# Marks the second argument of the Python callback: it is no context, but the address of failures.
FAILED = 1
# Failures: the context, the number of slots, and in each the type, the value and the traceback.
FAILURE_CONTEXT, FAILURE_SLOTS, FAILURES = range(3)
FAILURE_WORDS = 3

# A job, of which the threads of ONNX Runtime's pool take parts: these words, then per array its
# address and its sizes, then the sizes of the loop dimensions.
JOB_RECORD, JOB_FAILURES, JOB_STOPPED, JOB_AXIS, JOB_CHUNK, JOB_CHUNKS, JOB_ARRAYS = range(7)
# ONNX Runtime splits its own Add of float32 from about this many elements on; for fewer, waking a thread takes
# longer than it saves. The parts are smaller, so that threads that are late hold up less, and in fours, so that two
# and four threads get equally many.
SMALLEST_SPLIT, PARTS_PER_SPLIT = 65536, 4
MOST_PARTS = 32

HASH_FACTOR = 1000003
