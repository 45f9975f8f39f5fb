"""The ordinary call of a plain kernel, as machine code: ONNX Runtime calls `compute`, which calls the kernel.

It makes NumPy arrays of ONNX Runtime's tensors, calls the kernel by Python's C API, and copies what it returns, or sees
that it is `out`. Whatever is unusual is left to the node's `compute` in Python: before the call, by calling that in its
place; after it, by handing over what the kernel was given, and what it returned or raised.

All memory that is read here is words. Those of a node never change; its *binding*, which says what to call, is
replaced as a whole, by Python code, and read while this code has the interpreter's lock.
"""

from __future__ import annotations

from .llvm_code import c, call, load, load_int, scratch, store

# The words of a node.
BINDING = 0  # the address of its binding; 0 where Python is to be called
PYTHON, REVISION_AT = 1, 2  # the callback that calls Python; the address of the op's revision
GET_INPUT, GET_OUTPUT, GET_TYPE_AND_SHAPE, GET_DATA, RELEASE_STATUS = range(3, 8)
NDARRAY, NONE, READ_ONLY, WRITEABLE = range(8, 12)  # objects: a type, None, and the bases of inputs and of buffers
INPUTS, OUTPUTS, ATTRIBUTES = range(12, 15)  # their numbers
USED, IS_TUPLE = 15, 16  # the number of outputs that the node has; whether the kernel returns a tuple
FLAGS = 17  # those of NumPy's that a returned array must have
RUNNING_AT = 18  # the address of the number of calls that are running, of all nodes
ITEMS = 19  # two words each: inputs, outputs, attributes
CODE, DTYPE = 0, 1  # of an input, whose element type is 0 where it is absent; an output has its item size for that
VALUE, IS_LIST = 0, 1  # of an attribute

# The words of a binding.
OWNER, REVISION = 0, 1  # the object that keeps all this alive; the op's revision that it is valid for
KERNEL, NAMES, GIVES_BUFFERS = 2, 3, 4  # the kernel; the names of its keyword arguments; whether `out` is one
SHAPES = 5  # the addresses of the entries of the shape table by their `slot`, or 0; 0 in place of it without one
# An entry is the object that it was made of, the number of the words of its key (for each input its rank and sizes) and
# these, then the rank and the sizes of each output; ANY stands for any size.
OBJECT, KEY_SIZE, KEY = range(3)
SLOT_BITS = 8
MIXER = 0x9E3779B97F4A7C15
ANY = -1

# Nodes with more inputs, outputs and attributes are left to Python, and inputs with more words in a key.
MOST = MOST_INPUTS, MOST_OUTPUTS, MOST_ATTRIBUTES = 32, 16, 32
MOST_KEY = 128
# As many calls may run at once: a kernel that runs its own session, each time in but two of Python's frames, would come
# to the end of the stack before the recursion limit.
MOST_RUNNING = 64

# Set in the second argument of the callback if it is the address of these words rather than a context.
HANDED = 1
# The context; a list of inputs, buffers and what was returned or raised, if any; the outcome; the output shapes, or 0.
CONTEXT, OBJECTS, OUTCOME, SHAPES_GIVEN = range(4)
DELIVERED, RETURNED, RAISED = range(3)
_MOST_ATTEMPTS = 8

# The words of a tensor that ONNX Runtime gives.
_TENSOR_WORDS = 5
_ORT_VALUE, _TYPE, _DIMS, _RANK, _DATA = range(_TENSOR_WORDS)
_INPUT_WORDS = _TENSOR_WORDS * MOST_INPUTS
_ARGUMENTS = 2 + MOST_INPUTS + MOST_ATTRIBUTES

# The words of NumPy's arrays, after the reference count.
OBJECT_TYPE, ARRAY_DATA, ARRAY_RANK, ARRAY_DIMS, ARRAY_DTYPE, ARRAY_FLAGS = 1, 2, 3, 4, 7, 8
C_CONTIGUOUS, OWNS_DATA, ALIGNED, MAY_WRITE = 0x1, 0x4, 0x100, 0x400
_BORROWED = C_CONTIGUOUS | ALIGNED
_BUFFER = _BORROWED | MAY_WRITE
_OFFSET = 2**63  # PY_VECTORCALL_ARGUMENTS_OFFSET
_LONGEST = 2**62
_FAILED = -1
_LARGE = 2**16  # bytes from which on copying is worth letting other threads run


def compute(node: int, context: int) -> int:
    """Compute a node: the KernelComputeV2 of plain ops."""
    tensors = scratch(_INPUT_WORDS)
    key = scratch(MOST_KEY)
    if load(node, BINDING) == 0:
        return call(load(node, PYTHON), node, context)
    size = _read(node, context, tensors, key)
    if size == _FAILED:
        return call(load(node, PYTHON), node, context)
    state = c.PyGILState_Ensure()
    status = _compute(node, context, tensors, key, size)
    c.PyGILState_Release(state)
    return status


def _failed(node: int, status: int) -> int:
    if status != 0:
        call(load(node, RELEASE_STATUS), status)
    return status


def _read(node: int, context: int, tensors: int, key: int) -> int:
    """Read the inputs, and write the ranks and sizes of all; return their number."""
    inputs = load(node, INPUTS)
    item = node + 8 * ITEMS
    size = 0
    i = 0
    while i < inputs:
        store(0, tensors, _ORT_VALUE)
        if load(item, CODE) != 0:
            if _failed(node, call(load(node, GET_INPUT), context, i, tensors)):
                return _FAILED
            value = load(tensors, _ORT_VALUE)
            store(0, tensors, _TYPE)
            if value == 0 or _failed(
                node, call(load(node, GET_TYPE_AND_SHAPE), value, tensors + 8, tensors + 16, tensors + 24)
            ):
                return _FAILED
            if load(tensors, _TYPE) != load(item, CODE) or _failed(
                node, call(load(node, GET_DATA), value, tensors + 32)
            ):
                return _FAILED
            rank = load(tensors, _RANK)
            if load(tensors, _DATA) == 0 or size + rank + 1 > MOST_KEY:
                return _FAILED
            store(rank, key, size)
            c.memmove(key + 8 * size + 8, load(tensors, _DIMS), 8 * rank)
            size += rank + 1
        tensors += 8 * _TENSOR_WORDS
        item += 16
        i += 1
    return size


def _compute(node: int, context: int, tensors: int, key: int, size: int) -> int:
    """Compute a node whose inputs are read, with the interpreter's lock."""
    binding = load(node, BINDING)
    running = load(node, RUNNING_AT)
    # Without a frame this is ONNX Runtime's own thread.
    if (
        binding == 0
        or load(load(node, REVISION_AT)) != load(binding, REVISION)
        or load(running) > MOST_RUNNING
        or c.PyEval_GetGlobals() == 0
    ):
        return call(load(node, PYTHON), node, context)
    shapes = 0
    shapes_given = 0
    if load(binding, SHAPES) != 0:
        entry = _find(binding, key, size)
        if entry == 0:
            return call(load(node, PYTHON), node, context)
        shapes = entry + 8 * (KEY + size)
        shapes_given = load(entry, OBJECT)
    buffers = scratch(MOST_OUTPUTS)
    arguments = scratch(_ARGUMENTS) + 8  # the word before them is the callee's
    gives = load(binding, GIVES_BUFFERS)
    inputs = load(node, INPUTS)
    others = arguments + 8 * inputs
    count = load(node, ATTRIBUTES) + gives
    outputs = 0
    if gives:
        outputs = load(node, OUTPUTS)
    # The binding may be replaced whenever other Python code runs.
    owner = load(binding, OWNER)
    c.Py_IncRef(owner)
    _clear(arguments, inputs + count)
    _clear(buffers, outputs)
    if not _prepare(node, tensors, arguments) or (
        gives and not _lend(node, context, shapes, buffers, others + 8 * count - 8)
    ):
        c.PyErr_Clear()
        _release(arguments, inputs + count)
        _release(buffers, outputs)
        c.Py_DecRef(owner)
        return call(load(node, PYTHON), node, context)
    store(load(running) + 1, running)
    result = c.PyObject_Vectorcall(load(binding, KERNEL), arguments, inputs | _OFFSET, load(binding, NAMES))
    store(load(running) - 1, running)
    outcome = RAISED
    last = result
    if result == 0:
        last = _raised()
    elif _deliver(node, context, shapes, outputs, buffers, result):
        outcome = DELIVERED
        last = 0
        c.Py_DecRef(result)
    else:
        outcome = RETURNED
    _release(others, count)
    if outcome == DELIVERED and _is_ours(arguments, inputs, load(node, NONE)) and _is_ours(buffers, outputs, 0):
        _release(arguments, inputs)
        _release(buffers, outputs)
        status = 0
    else:
        words = scratch(4)
        store(context, words, CONTEXT)
        store(outcome, words, OUTCOME)
        store(shapes_given, words, SHAPES_GIVEN)
        store(_list(node, last, arguments, inputs, buffers, outputs), words, OBJECTS)
        status = _hand_over(node, words)
    c.Py_DecRef(owner)
    return status


def slot_of(key: int, size: int) -> int:
    """Return the number of the slot of a key."""
    mixed = 0
    i = 0
    while i < size:
        mixed = (mixed ^ load(key, i)) * MIXER
        i += 1
    return mixed >> (64 - SLOT_BITS)


def _find(binding: int, key: int, size: int) -> int:
    """Return the entry of a key in the shape table; 0 if it has none."""
    entry = load(load(binding, SHAPES), slot_of(key, size))
    if entry == 0 or load(entry, KEY_SIZE) != size:
        return 0
    i = 0
    while i < size:
        if load(entry, KEY + i) != load(key, i):
            return 0
        i += 1
    return entry


def _clear(words: int, count: int) -> int:
    i = 0
    while i < count:
        store(0, words, i)
        i += 1
    return 0


def _release(objects: int, count: int) -> int:
    i = 0
    while i < count:
        c.Py_DecRef(load(objects, i))  # which may be null
        i += 1
    return 0


def _prepare(node: int, tensors: int, arguments: int) -> int:
    """Write the kernel's inputs and attributes; return whether that succeeded."""
    item = node + 8 * ITEMS
    end = arguments + 8 * load(node, INPUTS)
    while arguments < end:
        given = load(node, NONE)
        if load(item, CODE) == 0:
            c.Py_IncRef(given)
        else:
            dims = load(tensors, _DIMS)
            given = _array(
                node, load(item, DTYPE), load(tensors, _RANK), dims, load(tensors, _DATA), _BORROWED, READ_ONLY
            )
        if given == 0:
            return 0
        store(given, arguments)
        arguments += 8
        tensors += 8 * _TENSOR_WORDS
        item += 16
    item += 16 * load(node, OUTPUTS)
    end = arguments + 8 * load(node, ATTRIBUTES)
    while arguments < end:
        given = load(item, VALUE)
        if load(item, IS_LIST):  # which the kernel may change
            given = c.PyList_GetSlice(given, 0, _LONGEST)
            if given == 0:
                return 0
        else:
            c.Py_IncRef(given)
        store(given, arguments)
        arguments += 8
        item += 16
    return 1


def _array(node: int, dtype: int, rank: int, dims: int, data: int, flags: int, base: int) -> int:
    """Return a new array on memory, or null."""
    c.Py_IncRef(dtype)
    array = c.PyArray_NewFromDescr(load(node, NDARRAY), dtype, rank, dims, 0, data, flags, 0)
    if array != 0:
        base = load(node, base)
        c.Py_IncRef(base)
        c.PyArray_SetBaseObject(array, base)
    return array


def _lend(node: int, context: int, shapes: int, buffers: int, out: int) -> int:
    """Allocate the outputs, and write the kernel's argument `out`; return whether that succeeded."""
    item = node + 8 * ITEMS + 16 * load(node, INPUTS)
    count = load(node, OUTPUTS)
    i = 0
    while i < count:
        rank = load(shapes)
        data = 0
        if i < load(node, USED):
            data = _allocate(node, context, i, rank, shapes + 8)
        if data == _FAILED:
            return 0
        if data == 0:  # of an output that the model does not use, or without elements: memory of its own
            c.Py_IncRef(load(item, DTYPE))
            buffer = c.PyArray_NewFromDescr(load(node, NDARRAY), load(item, DTYPE), rank, shapes + 8, 0, 0, 0, 0)
        else:
            buffer = _array(node, load(item, DTYPE), rank, shapes + 8, data, _BUFFER, WRITEABLE)
        if buffer == 0:
            return 0
        store(buffer, buffers, i)
        shapes += 8 * rank + 8
        item += 16
        i += 1
    if load(node, IS_TUPLE) == 0:
        given = load(buffers)
        c.Py_IncRef(given)
    else:
        given = c.PyTuple_New(count)
        if given == 0:
            return 0
        i = 0
        while i < count:
            c.Py_IncRef(load(buffers, i))
            c.PyTuple_SetItem(given, i, load(buffers, i))
            i += 1
    store(given, out)
    return 1


def _allocate(node: int, context: int, index: int, rank: int, dims: int) -> int:
    """Return the address of an output's memory; 0 if it has none."""
    cells = scratch(2)
    store(0, cells)
    if _failed(node, call(load(node, GET_OUTPUT), context, index, dims, rank, cells)):
        return _FAILED
    if load(cells) == 0:
        return 0
    if _failed(node, call(load(node, GET_DATA), load(cells), cells + 8)):
        return _FAILED
    return load(cells, 1)


def _deliver(node: int, context: int, shapes: int, lent: int, buffers: int, result: int) -> int:
    """Check what the kernel returned, and copy it unless it is `out`; return whether that succeeded."""
    item = node + 8 * ITEMS + 16 * load(node, INPUTS)
    count = load(node, OUTPUTS)
    if load(node, IS_TUPLE) and c.PyTuple_Size(result) != count:
        c.PyErr_Clear()
        return 0
    i = 0
    while i < count:
        value = _output(node, result, i)
        if lent and value != load(buffers, i):
            return 0
        if not _fits(node, load(item, DTYPE), value, shapes):
            return 0
        if shapes:
            shapes += 8 * load(shapes) + 8
        item += 16
        i += 1
    if lent:
        return 1
    item = node + 8 * ITEMS + 16 * load(node, INPUTS)
    i = 0
    while i < load(node, USED):
        value = _output(node, result, i)
        size = load(item, CODE)
        end = load_int(value, ARRAY_RANK)
        data = _allocate(node, context, i, end, load(value, ARRAY_DIMS))
        if data == _FAILED:
            return 0
        axis = 0
        while axis < end:
            size = size * load(load(value, ARRAY_DIMS), axis)
            axis += 1
        if data != 0:
            _copy(data, load(value, ARRAY_DATA), size)
        item += 16
        i += 1
    return 1


def _output(node: int, result: int, index: int) -> int:
    if load(node, IS_TUPLE):
        return c.PyTuple_GetItem(result, index)
    return result


def _fits(node: int, dtype: int, value: int, shape: int) -> int:
    """Return whether what was returned is exactly an array of this dtype, contiguous and of this shape, if any."""
    if load(value, OBJECT_TYPE) != load(node, NDARRAY) or load(value, ARRAY_DTYPE) != dtype:
        return 0
    if load(node, FLAGS) & load_int(value, ARRAY_FLAGS) != load(node, FLAGS):
        return 0
    if shape == 0:
        return 1
    rank = load_int(value, ARRAY_RANK)
    if rank != load(shape):
        return 0
    i = 0
    while i < rank:
        size = load(shape, 1 + i)
        if size != ANY and size != load(load(value, ARRAY_DIMS), i):
            return 0
        i += 1
    return 1


def _copy(target: int, source: int, size: int) -> int:
    if size < _LARGE:
        c.memmove(target, source, size)
    else:
        state = c.PyEval_SaveThread()
        c.memmove(target, source, size)
        c.PyEval_RestoreThread(state)
    return 0


def _is_ours(arrays: int, count: int, none: int) -> int:
    """Return whether nothing else refers to arrays."""
    i = 0
    while i < count:
        if load(arrays, i) != none and load_int(load(arrays, i)) != 1:
            return 0
        i += 1
    return 1


def _raised() -> int:
    """Return the exception that is being raised, which is then not raised any more."""
    error = scratch(3)
    c.PyErr_Fetch(error, error + 8, error + 16)
    c.PyErr_NormalizeException(error, error + 8, error + 16)
    if load(error, 2):
        c.PyException_SetTraceback(load(error, 1), load(error, 2))
    c.Py_DecRef(load(error))
    c.Py_DecRef(load(error, 2))
    return load(error, 1)


def _list(node: int, last: int, inputs: int, input_count: int, buffers: int, buffer_count: int) -> int:
    """Return a list of these objects, which are the list's then; null if there is no memory for it."""
    count = input_count + buffer_count
    objects = c.PyList_New(count + 1)
    if objects == 0:
        c.PyErr_Clear()
        return 0
    i = 0
    while i < input_count:
        c.PyList_SetItem(objects, i, load(inputs, i))
        i += 1
    i = 0
    while i < buffer_count:
        c.PyList_SetItem(objects, input_count + i, load(buffers, i))
        i += 1
    if last == 0:
        last = load(node, NONE)
        c.Py_IncRef(last)
    c.PyList_SetItem(objects, count, last)
    return objects


def _hand_over(node: int, words: int) -> int:
    """Let Python finish the call; return its status."""
    objects = load(words, OBJECTS)
    status = call(load(node, PYTHON), node, words | HANDED)
    attempts = 1
    # An interrupt may come before Python has emptied the list.
    while objects != 0 and c.PyList_Size(objects) != 0 and attempts < _MOST_ATTEMPTS:
        answer = call(load(node, PYTHON), node, words | HANDED)
        if status == 0:
            status = answer
        else:
            _failed(node, answer)
        attempts += 1
    c.Py_DecRef(objects)
    return status
