"""The ordinary call of a plain kernel, as machine code: ONNX Runtime calls `compute`, which calls the kernel.

It makes NumPy arrays of ONNX Runtime's tensors, calls the kernel through Python's C API, and copies what it returns,
unless that is `out`. Whatever is unusual is left to the node's `compute` in Python: before the call, by calling that
instead; after it, by handing over what the kernel was given, and what it returned or raised.

All memory that is read here consists of words of 64 bits. Those of a node never change; its *binding*, which says what
to call, is replaced as a whole, by Python code, and read while this code holds the interpreter's lock.
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
FLAGS = 17  # the NumPy flags that a returned array must have
RUNNING_AT = 18  # the address of the number of running calls of all nodes
ITEMS = 19  # two words each: inputs, outputs, attributes
CODE = ITEM_SIZE = 0  # of an input, whose element type is 0 where it is absent; of an output
DTYPE = 1
VALUE, IS_LIST = 0, 1  # of an attribute

# The words of a binding.
OWNER, REVISION = 0, 1  # the object that keeps all this alive; the op's revision that it is valid for
KERNEL, NAMES, GIVES_BUFFERS = 2, 3, 4  # the kernel; the names of its keyword arguments; whether `out` is one
SHAPES = 5  # the address of the shape table: the address of an entry, or 0, per slot (`slot_of`); 0 without a table
# An entry has the object that it was made from, the number of words of its key (the rank and the sizes of each input),
# these words, and the rank and the sizes of each output; ANY stands for any size.
OBJECT, KEY_SIZE, KEY = range(3)
SLOT_BITS = 8
MIXER = 0x9E3779B97F4A7C15
ANY = -1

# Nodes with more inputs, outputs or attributes are left to Python, and so are calls whose key has more words.
MOST = MOST_INPUTS, MOST_OUTPUTS, MOST_ATTRIBUTES = 32, 16, 32
MOST_KEY = 128
# How many calls may run at once. A kernel that runs its own session, with only two Python frames each time, would
# otherwise exhaust the stack before it reaches the recursion limit.
MOST_RUNNING = 64

# Set in the second argument of the callback if it is the address of these words rather than a context.
HANDED = 1
# The context; a list of inputs, buffers and what was returned or raised, if any; the outcome; the output shapes, or 0.
CONTEXT, OBJECTS, OUTCOME, SHAPES_GIVEN = range(4)
_HANDED_WORDS = 4
DELIVERED, RETURNED, RAISED = range(3)
_MOST_ATTEMPTS = 8

# The words of a tensor that ONNX Runtime gives.
_TENSOR_WORDS = 5
_INPUT_WORDS = _TENSOR_WORDS * MOST_INPUTS
_ORT_VALUE, _TYPE, _DIMS, _RANK, _DATA = range(_TENSOR_WORDS)

# The words of NumPy's arrays, after the reference count.
OBJECT_TYPE, ARRAY_DATA, ARRAY_RANK, ARRAY_DIMS, ARRAY_DTYPE, ARRAY_FLAGS = 1, 2, 3, 4, 7, 8
C_CONTIGUOUS, OWNS_DATA, ALIGNED, MAY_WRITE = 0x1, 0x4, 0x100, 0x400
_BORROWED = C_CONTIGUOUS | ALIGNED
_OFFSET = 2**63  # PY_VECTORCALL_ARGUMENTS_OFFSET
_ARGUMENTS = 2 + MOST_INPUTS + MOST_ATTRIBUTES
_ARRAYS = MOST_INPUTS + 2 * MOST_OUTPUTS  # the last words are the addresses of the buffers
_LONGEST = 2**62
_FAILED = -1
_LARGE = 2**16  # from this number of bytes on, copying lets other threads run


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


def _read(node: int, context: int, tensor: int, key: int) -> int:
    """Read the inputs, and write their ranks and sizes to `key`; return the number of these words."""
    item = node + 8 * ITEMS
    size = 0
    for i in range(load(node, INPUTS)):
        store(0, tensor, _ORT_VALUE)
        if load(item, CODE) != 0:
            if _failed(node, call(load(node, GET_INPUT), context, i, tensor)):
                return _FAILED
            value = load(tensor, _ORT_VALUE)
            store(0, tensor, _TYPE)
            if (
                value == 0
                or _failed(node, call(load(node, GET_TYPE_AND_SHAPE), value, tensor + 8, tensor + 16, tensor + 24))
                or load(tensor, _TYPE) != load(item, CODE)
                or _failed(node, call(load(node, GET_DATA), value, tensor + 32))
                or load(tensor, _DATA) == 0
                or size + load(tensor, _RANK) > MOST_KEY - 1
            ):
                return _FAILED
            rank = load(tensor, _RANK)
            store(rank, key, size)
            c.memmove(key + 8 * size + 8, load(tensor, _DIMS), 8 * rank)
            size += rank + 1
        tensor += 8 * _TENSOR_WORDS
        item += 16
    return size


def _compute(node: int, context: int, tensors: int, key: int, size: int) -> int:
    """Compute a node whose inputs are read, holding the interpreter's lock."""
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
    words = scratch(_HANDED_WORDS)
    store(context, words, CONTEXT)
    store(0, words, SHAPES_GIVEN)
    shapes = 0
    if load(binding, SHAPES) != 0:
        entry = _find(binding, key, size)
        if entry == 0:
            return call(load(node, PYTHON), node, context)
        store(load(entry, OBJECT), words, SHAPES_GIVEN)
        shapes = entry + 8 * (KEY + size)
    # Owned: the arrays, which are inputs and buffers, and the arguments after the inputs.
    arrays = scratch(_ARRAYS)
    arguments = scratch(_ARGUMENTS) + 8  # the word before them is the callee's
    gives = load(binding, GIVES_BUFFERS)
    inputs = load(node, INPUTS)
    buffers = arrays + 8 * inputs
    others = arguments + 8 * inputs
    other_count = load(node, ATTRIBUTES) + gives
    array_count = inputs + gives * load(node, OUTPUTS)
    for i in range(array_count):
        store(0, arrays, i)
    for i in range(other_count):
        store(0, others, i)
    # The binding may be replaced whenever other Python code runs.
    owner = load(binding, OWNER)
    c.Py_IncRef(owner)
    status = 0
    if not _prepare(node, tensors, arrays, arguments) or (
        gives and not _lend(node, context, shapes, buffers, others + 8 * other_count - 8)
    ):
        c.PyErr_Clear()
        _release(others, other_count)
        _release(arrays, array_count)
        status = call(load(node, PYTHON), node, context)
    else:
        store(load(running) + 1, running)
        result = c.PyObject_Vectorcall(load(binding, KERNEL), arguments, inputs | _OFFSET, load(binding, NAMES))
        store(load(running) - 1, running)
        outcome = RETURNED
        if result == 0:
            outcome = RAISED
            result = _raised()
        elif _deliver(node, context, shapes, gives * buffers, result):
            outcome = DELIVERED
            c.Py_DecRef(result)
            result = load(node, NONE)
            c.Py_IncRef(result)
        _release(others, other_count)
        if outcome == DELIVERED and _is_ours(arrays, array_count, result):
            _release(arrays, array_count)
            c.Py_DecRef(result)
        else:
            store(outcome, words, OUTCOME)
            store(_list(arrays, array_count, result), words, OBJECTS)
            status = _hand_over(node, words)
    c.Py_DecRef(owner)
    return status


def slot_of(key: int, size: int) -> int:
    """Return the number of the slot of a key."""
    mixed = 0
    for i in range(size):
        mixed = (mixed ^ load(key, i)) * MIXER
    return mixed >> (64 - SLOT_BITS)


def _find(binding: int, key: int, size: int) -> int:
    """Return the entry of a key in the shape table; 0 if it has none."""
    entry = load(load(binding, SHAPES), slot_of(key, size))
    if entry == 0 or load(entry, KEY_SIZE) != size:
        return 0
    for i in range(size):
        if load(entry, KEY + i) != load(key, i):
            return 0
    return entry


def _release(objects: int, count: int) -> int:
    for i in range(count):
        c.Py_DecRef(load(objects, i))  # which may be null
    return 0


def _prepare(node: int, tensor: int, arrays: int, arguments: int) -> int:
    """Write the kernel's inputs and attributes; return whether that succeeded."""
    item = node + 8 * ITEMS
    inputs = load(node, INPUTS)
    for i in range(inputs):
        given = load(node, NONE)
        if load(item, CODE) == 0:
            c.Py_IncRef(given)
        else:
            rank = load(tensor, _RANK)
            given = _array(
                node, load(item, DTYPE), rank, load(tensor, _DIMS), load(tensor, _DATA), _BORROWED, READ_ONLY
            )
            if given == 0:
                return 0
        store(given, arrays, i)
        store(given, arguments, i)
        tensor += 8 * _TENSOR_WORDS
        item += 16
    item += 16 * load(node, OUTPUTS)
    for i in range(load(node, ATTRIBUTES)):
        given = load(item, VALUE)
        if load(item, IS_LIST):  # which the kernel may change
            given = c.PyList_GetSlice(given, 0, _LONGEST)
            if given == 0:
                return 0
        else:
            c.Py_IncRef(given)
        store(given, arguments, inputs + i)
        item += 16
    return 1


def _array(node: int, dtype: int, rank: int, dims: int, data: int, flags: int, base: int) -> int:
    """Return a new array on memory, or one with its own for address 0; null if it cannot be made."""
    if data == 0:
        flags = 0
    c.Py_IncRef(dtype)
    array = c.PyArray_NewFromDescr(load(node, NDARRAY), dtype, rank, dims, 0, data, flags, 0)
    if array != 0 and data != 0:
        base = load(node, base)
        c.Py_IncRef(base)
        c.PyArray_SetBaseObject(array, base)
    return array


def _lend(node: int, context: int, shapes: int, buffers: int, out: int) -> int:
    """Allocate the outputs, and write the kernel's argument `out`; return whether that succeeded."""
    item = node + 8 * ITEMS + 16 * load(node, INPUTS)
    count = load(node, OUTPUTS)
    for i in range(count):
        rank = load(shapes)
        data = 0  # of an output that the model does not use
        if i < load(node, USED):
            data = _allocate(node, context, i, rank, shapes + 8)
        if data == _FAILED:
            return 0
        buffer = _array(node, load(item, DTYPE), rank, shapes + 8, data, _BORROWED | MAY_WRITE, WRITEABLE)
        if buffer == 0:
            return 0
        store(buffer, buffers, i)
        store(load(buffer, ARRAY_DATA), buffers, MOST_OUTPUTS + i)
        shapes += 8 * rank + 8
        item += 16
    given = load(buffers)
    if load(node, IS_TUPLE):
        given = c.PyTuple_New(count)
        if given == 0:
            return 0
        for i in range(count):
            c.Py_IncRef(load(buffers, i))
            c.PyTuple_SetItem(given, i, load(buffers, i))
    else:
        c.Py_IncRef(given)
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


def _deliver(node: int, context: int, shapes: int, buffers: int, result: int) -> int:
    """Check what the kernel returned, and copy it unless it is `out`; return whether that succeeded."""
    item = node + 8 * ITEMS + 16 * load(node, INPUTS)
    count = load(node, OUTPUTS)
    if load(node, IS_TUPLE) and c.PyTuple_Size(result) != count:
        c.PyErr_Clear()
        return 0
    for i in range(count):
        value = _output(node, result, i)
        if not _fits(node, load(item + 16 * i, DTYPE), value, shapes):
            return 0
        # A kernel may give an array other memory: `__setstate__` does.
        if buffers and (value != load(buffers, i) or load(value, ARRAY_DATA) != load(buffers, MOST_OUTPUTS + i)):
            return 0
        if shapes:
            shapes += 8 * load(shapes) + 8
    if buffers:
        return 1
    for i in range(load(node, USED)):
        value = _output(node, result, i)
        dims = load(value, ARRAY_DIMS)
        rank = load_int(value, ARRAY_RANK)
        data = _allocate(node, context, i, rank, dims)
        if data == _FAILED:
            return 0
        if data != 0:
            size = load(item + 16 * i, ITEM_SIZE)
            for axis in range(rank):
                size = size * load(dims, axis)
            _copy(data, load(value, ARRAY_DATA), size)
    return 1


def _output(node: int, result: int, index: int) -> int:
    if load(node, IS_TUPLE):
        return c.PyTuple_GetItem(result, index)
    return result


def _fits(node: int, dtype: int, value: int, shape: int) -> int:
    """Return whether what was returned is exactly an array of this dtype, contiguous and of this shape, if any."""
    if (
        load(value, OBJECT_TYPE) != load(node, NDARRAY)
        or load(value, ARRAY_DTYPE) != dtype
        or load(node, FLAGS) & load_int(value, ARRAY_FLAGS) != load(node, FLAGS)
    ):
        return 0
    if shape:
        rank = load_int(value, ARRAY_RANK)
        if rank != load(shape):
            return 0
        for i in range(rank):
            size = load(shape, 1 + i)
            if size != ANY and size != load(load(value, ARRAY_DIMS), i):
                return 0
    return 1


def _copy(target: int, source: int, size: int) -> int:
    if size < _LARGE:
        return c.memmove(target, source, size)
    state = c.PyEval_SaveThread()
    c.memmove(target, source, size)
    return c.PyEval_RestoreThread(state)


def _is_ours(arrays: int, count: int, none: int) -> int:
    """Return whether nothing else refers to arrays."""
    for i in range(count):
        if load(arrays, i) != none and load_int(load(arrays, i)) != 1:
            return 0
    return 1


def _raised() -> int:
    """Return the exception that is being raised, and clear it."""
    error = scratch(3)
    c.PyErr_Fetch(error, error + 8, error + 16)
    c.PyErr_NormalizeException(error, error + 8, error + 16)
    if load(error, 2):
        c.PyException_SetTraceback(load(error, 1), load(error, 2))
    c.Py_DecRef(load(error))
    c.Py_DecRef(load(error, 2))
    return load(error, 1)


def _list(arrays: int, count: int, last: int) -> int:
    """Return a list that takes ownership of the objects; null if there is no memory for it."""
    objects = c.PyList_New(count + 1)
    if objects == 0:
        c.PyErr_Clear()
        return 0
    for i in range(count):
        c.PyList_SetItem(objects, i, load(arrays, i))
    c.PyList_SetItem(objects, count, last)
    return objects


def _hand_over(node: int, words: int) -> int:
    """Let Python finish the call; return its status."""
    objects = load(words, OBJECTS)
    status = call(load(node, PYTHON), node, words | HANDED)
    # An interrupt may come before Python has emptied the list.
    for _ in range(_MOST_ATTEMPTS):
        if objects != 0 and c.PyList_Size(objects) != 0:
            answer = call(load(node, PYTHON), node, words | HANDED)
            if status == 0:
                status = answer
            else:
                _failed(node, answer)
    c.Py_DecRef(objects)
    return status
