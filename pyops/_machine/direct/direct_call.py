"""The ordinary call of a node, as machine code: ONNX Runtime calls `compute`, which calls the kernel.

It reads ONNX Runtime's tensors. A compiled kernel is machine code itself, and gets them. For a plain kernel it makes
NumPy arrays, calls the kernel through Python's C API, and copies what it returns, unless that is `out`. Whatever is
unusual is left to the node's `compute` in Python: before the call, by calling that instead; after it, by handing over
what the kernel was given, and what it returned or raised.

`memory_layout` has the words that are read here. A node's binding is replaced by Python code: while this code
holds the interpreter's lock, or has counted its call as running, it stays valid.
"""

from __future__ import annotations

from .. import memory_layout as layout
from .exchange import take
from .llvm_code import add, c, call, load, load_int, scratch, store
from .numpy_arrays import (
    ALIGNED,
    ARRAY_DATA,
    ARRAY_DIMS,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    C_CONTIGUOUS,
    MAY_WRITE,
    OBJECT_TYPE,
    elements,
    is_alone,
)

# How many calls of plain kernels may run at once. A kernel that runs its own session, with only two Python frames each
# time, would otherwise exhaust the stack before it reaches the recursion limit.
MOST_RUNNING = 64
_MOST_ATTEMPTS = 8
_INPUT_WORDS = layout.TENSOR_WORDS * layout.MOST_INPUTS

_BORROWED = C_CONTIGUOUS | ALIGNED
_OFFSET = 2**63  # PY_VECTORCALL_ARGUMENTS_OFFSET
_OUTPUT_WORDS = 2 * layout.MOST_OUTPUTS  # of each its value, and the address of its memory
_ARGUMENTS = 2 + layout.MOST_INPUTS + layout.MOST_ATTRIBUTES
_ARRAYS = layout.MOST_INPUTS + 2 * layout.MOST_OUTPUTS  # the last words are the addresses of the buffers
_LONGEST = 2**62
_MINUS_ONE = -1
_FAILED = -1
_LARGE = 2**16  # from this number of bytes on, copying lets other threads run
_MANY = 2**14  # elements of an array in memory of `array_memory`


def compute(node: int, context: int) -> int:
    """Compute a node: the KernelComputeV2 of ops."""
    tensors = scratch(_INPUT_WORDS)
    key = scratch(layout.MOST_KEY)
    answer = layout.MISMATCH
    calls = load(node, layout.CALLS)
    if calls == layout.PLAIN:
        size = _read(node, context, tensors, key, 1)
        if size != _FAILED:
            state = c.PyGILState_Ensure()
            answer = _call_plain(node, context, tensors, key, size)
            c.PyGILState_Release(state)
    if calls == layout.COMPILED:
        add(1, node, layout.RUNNING)
        answer = _call_compiled(node, context, tensors, key)
        add(_MINUS_ONE, node, layout.RUNNING)
    if answer == layout.MISMATCH:
        answer = call(load(node, layout.PYTHON), node, context)
    return answer


def _failed(node: int, status: int) -> int:
    if status != 0:
        call(load(node, layout.RELEASE_STATUS), status)
    return status


def _read(node: int, context: int, tensor: int, key: int, has_sizes: int) -> int:
    """Read the inputs, and write their ranks, and sizes if asked, to `key`; return the number of these words."""
    item = node + 8 * layout.ITEMS
    size = 0
    for i in range(load(node, layout.INPUTS)):
        store(0, tensor, layout.VALUE)
        if load(item, layout.CODE) != 0:
            if _failed(node, call(load(node, layout.GET_INPUT), context, i, tensor)):
                return _FAILED
            value = load(tensor, layout.VALUE)
            store(0, tensor, layout.TYPE)
            describe = load(node, layout.GET_TYPE_AND_SHAPE)
            if (
                value == 0
                or _failed(node, call(describe, value, tensor + 8, tensor + 16, tensor + 24))
                or load(tensor, layout.TYPE) != load(item, layout.CODE)
                or _failed(node, call(load(node, layout.GET_DATA), value, tensor + 32))
                or load(tensor, layout.DATA) == 0
                or size + load(tensor, layout.RANK) > layout.MOST_KEY - 1
            ):
                return _FAILED
            rank = load(tensor, layout.RANK)
            store(rank, key, size)
            size += 1
            if has_sizes:
                c.memmove(key + 8 * size, load(tensor, layout.DIMS), 8 * rank)
                size += rank
        tensor += 8 * layout.TENSOR_WORDS
        item += 16
    return size


def _current(node: int) -> int:
    """Return the node's binding; 0 if it is outdated, or there is none."""
    binding = load(node, layout.BINDING)
    if binding == 0 or load(load(node, layout.REVISION_AT)) != load(binding, layout.REVISION):
        return 0
    return binding


def _call_compiled(node: int, context: int, tensors: int, key: int) -> int:
    """Call the machine code of a node's compiled kernel; return its status, or MISMATCH."""
    binding = _current(node)
    if binding == 0 or load(binding, layout.KERNEL) != 0:
        return layout.MISMATCH
    size = _read(node, context, tensors, key, load(binding, layout.HAS_SIZES))
    if size == _FAILED:
        return layout.MISMATCH
    entry = _find(binding, key, size)
    if entry == 0:
        return layout.MISMATCH
    record = load(entry, layout.OBJECT)
    return call(load(record, layout.ENTRY), node, record, context, tensors, entry + 8 * (layout.KEY + size))


def _call_plain(node: int, context: int, tensors: int, key: int, size: int) -> int:
    """Call a node's plain kernel, holding the interpreter's lock; return a status, or MISMATCH."""
    binding = _current(node)
    running = load(node, layout.PLAIN_RUNNING_AT)
    # Without a frame this is ONNX Runtime's own thread.
    if binding == 0 or load(binding, layout.KERNEL) == 0 or load(running) > MOST_RUNNING or c.PyEval_GetGlobals() == 0:
        return layout.MISMATCH
    words = scratch(layout.HANDED_WORDS)
    store(context, words, layout.CONTEXT)
    store(0, words, layout.SHAPES)
    shapes = 0
    if load(binding, layout.TABLE) != 0:
        entry = _find(binding, key, size)
        if entry == 0:
            return layout.MISMATCH
        store(load(entry, layout.OBJECT), words, layout.SHAPES)
        shapes = entry + 8 * (layout.KEY + size)
    # Owned: the arrays, which are inputs and buffers, and the arguments after the inputs.
    arrays = scratch(_ARRAYS)
    arguments = scratch(_ARGUMENTS) + 8  # the word before them is the callee's
    gives = load(binding, layout.GIVES_BUFFERS)
    inputs = load(node, layout.INPUTS)
    buffers = arrays + 8 * inputs
    others = arguments + 8 * inputs
    other_count = load(node, layout.ATTRIBUTES) + gives
    array_count = inputs + gives * load(node, layout.OUTPUTS)
    for i in range(array_count):
        store(0, arrays, i)
    for i in range(other_count):
        store(0, others, i)
    # The binding may be replaced whenever other Python code runs.
    owner = load(binding, layout.OWNER)
    c.Py_IncRef(owner)
    status = 0
    if not _prepare(node, tensors, arrays, arguments) or (
        gives and not _allocate_outputs(node, context, shapes, buffers, others + 8 * other_count - 8)
    ):
        c.PyErr_Clear()
        _release(others, other_count)
        _release(arrays, array_count)
        status = layout.MISMATCH
    else:
        result = _call_kernel(node, binding, arguments, words)
        outcome = load(words, layout.OUTCOME)
        if outcome == layout.RETURNED and _copy_outputs(node, context, shapes, gives * buffers, result):
            outcome = layout.DELIVERED
            c.Py_DecRef(result)
            result = load(node, layout.NONE)
            c.Py_IncRef(result)
        _release(others, other_count)
        if outcome == layout.DELIVERED and _owns(arrays, array_count, result):
            _release(arrays, array_count)
            c.Py_DecRef(result)
        else:
            store(outcome, words, layout.OUTCOME)
            store(_list(arrays, array_count, result), words, layout.OBJECTS)
            status = _resume_in_python(node, words)
    c.Py_DecRef(owner)
    return status


def _call_kernel(node: int, binding: int, arguments: int, words: int) -> int:
    """Call a plain kernel; return what it returned or raised, and write which of them it is to `words`."""
    running = load(node, layout.PLAIN_RUNNING_AT)
    own = 0
    if load(node, layout.IS_LARGE):
        own = _replace_memory(node)
    store(load(running) + 1, running)
    names = load(binding, layout.NAMES)
    given = load(node, layout.INPUTS) | _OFFSET
    result = c.PyObject_Vectorcall(load(binding, layout.KERNEL), arguments, given, names)
    store(load(running) - 1, running)
    store(layout.RETURNED, words, layout.OUTCOME)
    if result == 0:
        store(layout.RAISED, words, layout.OUTCOME)
        result = _raised()
    if own:
        _restore_memory(node, own)
    return result


def _replace_memory(node: int) -> int:
    """Let NumPy allocate by our handler; return its own, or 0 if it uses another one already, which stays."""
    old = c.PyDataMem_SetHandler(load(node, layout.MEMORY))
    if old == 0:
        c.PyErr_Clear()
    elif old != load(node, layout.OWN_MEMORY):
        c.Py_DecRef(c.PyDataMem_SetHandler(old))
        c.Py_DecRef(old)
        old = 0
    return old


def _restore_memory(node: int, own: int) -> int:
    """Let NumPy allocate by its own handler again, unless the kernel has set another one."""
    old = c.PyDataMem_SetHandler(own)
    if old == 0:
        c.PyErr_Clear()
    elif old != load(node, layout.MEMORY):
        c.Py_DecRef(c.PyDataMem_SetHandler(old))
    c.Py_DecRef(old)
    c.Py_DecRef(own)
    return 0


def slot_of(key: int, size: int) -> int:
    """Return the number of the first slot for a key."""
    mixed = 0
    for i in range(size):
        mixed = (mixed ^ load(key, i)) * layout.MIXER
    return mixed >> (64 - layout.SLOT_BITS)


def _find(binding: int, key: int, size: int) -> int:
    """Return the entry of a key in the shape table; 0 if it has none."""
    slot = load(binding, layout.TABLE) + 8 * slot_of(key, size)
    for i in range(layout.PROBES):
        entry = load(slot, i)
        if entry != 0 and _has_key(entry, key, size):
            return entry
    return 0


def _has_key(entry: int, key: int, size: int) -> int:
    if load(entry, layout.KEY_SIZE) != size:
        return 0
    for i in range(size):
        if load(entry, layout.KEY + i) != load(key, i):
            return 0
    return 1


def _release(objects: int, count: int) -> int:
    for i in range(count):
        c.Py_DecRef(load(objects, i))  # which may be null
    return 0


def _prepare(node: int, tensor: int, arrays: int, arguments: int) -> int:
    """Write the kernel's inputs and attributes; return whether that succeeded."""
    item = node + 8 * layout.ITEMS
    inputs = load(node, layout.INPUTS)
    for i in range(inputs):
        given = load(node, layout.NONE)
        if load(item, layout.CODE) == 0:
            c.Py_IncRef(given)
        else:
            rank = load(tensor, layout.RANK)
            dims = load(tensor, layout.DIMS)
            data = load(tensor, layout.DATA)
            if elements(rank, dims) > _MANY - 1:
                store(load(node, layout.MEMORY), node, layout.IS_LARGE)
            given = _array(node, load(item, layout.DTYPE), rank, dims, data, _BORROWED, layout.READ_ONLY)
            if given == 0:
                return 0
        store(given, arrays, i)
        store(given, arguments, i)
        tensor += 8 * layout.TENSOR_WORDS
        item += 16
    item += 16 * load(node, layout.OUTPUTS)
    for i in range(load(node, layout.ATTRIBUTES)):
        given = load(item, layout.ATTRIBUTE)
        if load(item, layout.IS_LIST):  # which the kernel may change
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
    array = c.PyArray_NewFromDescr(load(node, layout.NDARRAY), dtype, rank, dims, 0, data, flags, 0)
    if array != 0 and data != 0:
        base = load(node, base)
        c.Py_IncRef(base)
        c.PyArray_SetBaseObject(array, base)
    return array


def _allocate_outputs(node: int, context: int, shapes: int, buffers: int, out: int) -> int:
    """Allocate the outputs, and write the kernel's argument `out`; return whether that succeeded."""
    item = node + 8 * layout.ITEMS + 16 * load(node, layout.INPUTS)
    count = load(node, layout.OUTPUTS)
    output = scratch(2)
    for i in range(count):
        rank = load(shapes)
        store(0, output, 1)  # of an output that the model does not use
        if i < load(node, layout.USED) and not _allocate(node, context, i, rank, shapes + 8, output):
            return 0
        data = load(output, 1)
        buffer = _array(node, load(item, layout.DTYPE), rank, shapes + 8, data, _BORROWED | MAY_WRITE, layout.WRITEABLE)
        if buffer == 0:
            return 0
        store(buffer, buffers, i)
        store(load(buffer, ARRAY_DATA), buffers, layout.MOST_OUTPUTS + i)
        shapes += 8 * rank + 8
        item += 16
    given = load(buffers)
    if load(node, layout.IS_TUPLE):
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


def _allocate(node: int, context: int, index: int, rank: int, dims: int, output: int) -> int:
    """Write an output's value and the address of its memory, or zeros if it has none; return whether that succeeded."""
    store(0, output)
    store(0, output, 1)
    if _failed(node, call(load(node, layout.GET_OUTPUT), context, index, dims, rank, output)):
        return 0
    if load(output) != 0 and _failed(node, call(load(node, layout.GET_DATA), load(output), output + 8)):
        return 0
    return 1


def _copy_outputs(node: int, context: int, shapes: int, buffers: int, result: int) -> int:
    """Check what the kernel returned, and copy it unless it is `out`; return whether that succeeded."""
    item = node + 8 * layout.ITEMS + 16 * load(node, layout.INPUTS)
    count = load(node, layout.OUTPUTS)
    if load(node, layout.IS_TUPLE) and c.PyTuple_Size(result) != count:
        c.PyErr_Clear()
        return 0
    for i in range(count):
        value = _output(node, result, i)
        if not _fits(node, load(item + 16 * i, layout.DTYPE), value, shapes):
            return 0
        # A kernel may give an array other memory: `__setstate__` does.
        if buffers and (value != load(buffers, i) or load(value, ARRAY_DATA) != load(buffers, layout.MOST_OUTPUTS + i)):
            return 0
        if shapes:
            shapes += 8 * load(shapes) + 8
    if buffers:
        return 1
    return _deliver(node, context, item, result)


def _deliver(node: int, context: int, item: int, result: int) -> int:
    """Give ONNX Runtime what the kernel returned; return whether that succeeded."""
    outputs = scratch(_OUTPUT_WORDS)
    for i in range(load(node, layout.USED)):
        value = _output(node, result, i)
        if not _allocate(node, context, i, load_int(value, ARRAY_RANK), load(value, ARRAY_DIMS), outputs + 16 * i):
            return 0
    taken = 0
    for i in range(load(node, layout.USED)):
        value = _output(node, result, i)
        size = _size(node, item + 16 * i, value)
        code = load(item + 16 * i, layout.ITEM_SIZE) >> layout.CODE_SHIFT
        data = load(outputs + 16 * i, 1)
        if data != 0:
            if (load(node, layout.IS_TUPLE) == 0 or is_alone(result)) and take(
                load(node, layout.EXCHANGE), value, size, code, load(outputs + 16 * i)
            ):
                taken = 1
            elif taken:  # no other thread may run before the array without memory has ended
                c.memmove(data, load(value, ARRAY_DATA), size)
            else:
                _copy(data, load(value, ARRAY_DATA), size)
    return 1


def _size(node: int, item: int, value: int) -> int:
    """Return the number of bytes of an array that is an output."""
    count = elements(load_int(value, ARRAY_RANK), load(value, ARRAY_DIMS))
    if count > _MANY - 1:
        store(load(node, layout.MEMORY), node, layout.IS_LARGE)
    return count * load_int(item, layout.ITEM_SIZE)


def _output(node: int, result: int, index: int) -> int:
    if load(node, layout.IS_TUPLE):
        return c.PyTuple_GetItem(result, index)
    return result


def _fits(node: int, dtype: int, value: int, shape: int) -> int:
    """Return whether what was returned is exactly an array of this dtype, contiguous and of this shape, if any."""
    if (
        load(value, OBJECT_TYPE) != load(node, layout.NDARRAY)
        or load(value, ARRAY_DTYPE) != dtype
        or load(node, layout.FLAGS) & load_int(value, ARRAY_FLAGS) != load(node, layout.FLAGS)
    ):
        return 0
    if shape:
        rank = load_int(value, ARRAY_RANK)
        if rank != load(shape):
            return 0
        for i in range(rank):
            size = load(shape, 1 + i)
            if size != layout.ANY and size != load(load(value, ARRAY_DIMS), i):
                return 0
    return 1


def _copy(target: int, source: int, size: int) -> int:
    if size < _LARGE:
        return c.memmove(target, source, size)
    state = c.PyEval_SaveThread()
    c.memmove(target, source, size)
    return c.PyEval_RestoreThread(state)


def _owns(arrays: int, count: int, none: int) -> int:
    """Return whether nothing else refers to arrays."""
    for i in range(count):
        if load(arrays, i) != none and not is_alone(load(arrays, i)):
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


def _resume_in_python(node: int, words: int) -> int:
    """Let Python finish the call; return its status."""
    objects = load(words, layout.OBJECTS)
    status = call(load(node, layout.PYTHON), node, words | layout.HANDED)
    # An interrupt may come before Python has emptied the list.
    for _ in range(_MOST_ATTEMPTS):
        if objects != 0 and c.PyList_Size(objects) != 0:
            answer = call(load(node, layout.PYTHON), node, words | layout.HANDED)
            if status == 0:
                status = answer
            else:
                _failed(node, answer)
    c.Py_DecRef(objects)
    return status
