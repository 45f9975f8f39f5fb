"""Nodes that ONNX Runtime calls by machine code (see `direct_call`), which leaves what is unusual to Python.

A node learns from each call that Python makes: it binds the kernel, and adds the shapes of that call to the shape
table, so that machine code makes the next call like it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import operator
import sys
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, addressof, c_int64, c_void_p, py_object
from typing import Any

import numpy as np

from .._core import AnyOp, KernelNode
from .._support.element_types import is_viewable, ort_code
from .._support.locks import TakenError, TryLock
from ..errors import EngineError
from . import memory_layout as layout
from .compiled.compiled_kernel import CompiledKernel
from .compiled.specialization import specialize
from .direct import array_memory, loaded_code, numpy_arrays
from .direct.exchange import Exchange
from .memory_layout import address_of, words

# The bases of the arrays that plain kernels get, which mark them as borrowed, and as read-only or writeable.
_BASES = memoryview(b"\0"), memoryview(bytearray(1))
_PLAIN_RUNNING = words(0)
_OUTCOMES: tuple[Any, ...] = ("delivered", "returned", "raised", "failed")  # as `KernelNode.finish` has them

# The functions that machine code calls, in the order of its words.
_FUNCTIONS = (
    *("KernelContext_GetInput", "KernelContext_GetOutput", "GetTensorElementTypeAndShapeDataReference"),
    *("GetTensorMutableData", "ReleaseStatus", "KernelContext_ParallelFor"),
)


class _Binding:
    """What machine code calls for a node while the op's revision is the one given.

    Attributes
    ----------
    words : numpy.ndarray
        As `memory_layout` says.
    entries : dict
        The entries of the shape table by their keys. All are kept: machine code may be reading one whose slot was taken
        over.
    """

    def __init__(self, revision: int, kernel: Any, is_shaped: bool, names: Sequence[str], gives_buffers: bool) -> None:
        self.kernel, self._names, self._is_shaped = kernel, tuple(map(sys.intern, names)), is_shaped
        self.entries: dict[tuple[int, ...], tuple[layout.Words, Any]] = {}
        is_plain = not isinstance(kernel, CompiledKernel)
        self._table = words(*[0] * (2**layout.SLOT_BITS + layout.PROBES - 1))
        self.words = words(
            *(id(self), revision, address_of(self._table) if is_shaped or not is_plain else 0, is_shaped),
            *(id(kernel) if is_plain else 0, id(self._names) if names else 0, gives_buffers),
        )

    def add_shapes(self, inputs: Sequence[Any], outputs: Sequence[Any], address: int, kept: Any) -> None:
        """Add an entry for inputs like these: the output shapes, and the address of an object, which `kept` keeps."""
        shapes = [array.shape for array in inputs if array is not None]
        key = [word for shape in shapes for word in (len(shape), *(shape if self._is_shaped else ()))]
        sizes = [layout.ANY if word is None else word for shape in outputs for word in (len(shape), *shape)]
        entry, _ = self.entries.setdefault(tuple(key), (words(address, len(key), *key, *sizes), kept))
        first = _slot_of()(address_of(entry[layout.KEY :]), len(key))
        free = (slot for slot in range(first, first + layout.PROBES) if self._table[slot] in (0, address_of(entry)))
        self._table[next(free, first)] = address_of(entry)


@functools.cache
def _slot_of() -> Callable[[int, int], int]:
    return CFUNCTYPE(c_int64, c_int64, c_int64)(loaded_code.address_of("slot_of"))


class MachineNode:
    """A node of a session that machine code computes, as far as it can.

    Attributes
    ----------
    name : str
        The node's name in the model; may be empty.
    op : Op
        The op that computes the node.
    address : int
        The address of the node's state, which machine code reads.

    Raises
    ------
    InputError
        The node's attributes or input types do not match the declaration.
    """

    def __init__(self, api: Any, info: int, hosted: Any) -> None:
        self._python = python = KernelNode(api, info, hosted)
        self.name, self.op = python.name, python.op
        self._lock = TryLock()
        # What machine code may be reading, the latest last.
        self._bindings: list[_Binding] = []
        node, attributes = python.info, python.attributes
        items = [(ort_code(dtype), id(dtype)) for dtype in node.input_dtypes]
        items += [(dtype.itemsize | ort_code(dtype) << layout.CODE_SHIFT, id(dtype)) for dtype in node.output_dtypes]
        items += [(id(value), name in python.lists) for name, value in attributes.items()]
        # Results must not lie in memory that the outputs before them are written to.
        flags = numpy_arrays.C_CONTIGUOUS | numpy_arrays.ALIGNED
        if node.signature.may_inplace and len(node.output_dtypes) > 1:
            flags |= numpy_arrays.OWNS_DATA
        numbers = len(node.input_dtypes), len(node.output_dtypes), len(attributes)
        self._state = words(
            *(0, 0, hosted.python, addressof(python.revision), *map(api.address, _FUNCTIONS), 0),
            *map(id, (np.ndarray, None, *_BASES)),
            *numbers,
            *(node.output_count, node.signature.returns_tuple, flags, address_of(_PLAIN_RUNNING), 0, 0, 0, 0),
            *itertools.chain(*items),
        )
        self.address = address_of(self._state)
        dtypes = *node.input_dtypes, *node.output_dtypes
        self._fits = all(map(operator.le, numbers, layout.MOST))
        self._is_direct = (
            self._fits
            and python.may_borrow
            and not loaded_code.problem()
            and all(dtype is None or is_viewable(dtype) for dtype in dtypes)
        )
        if self._is_direct:
            memory = loaded_code.memory_of_arrays()
            self._lives = memory.node_begins()
            self._state[layout.EXCHANGE] = loaded_code.exchange_in(api)
            if memory.words[array_memory.LIMIT] or self._state[layout.EXCHANGE]:
                self._state[layout.MEMORY], self._state[layout.OWN_MEMORY] = id(memory.handler), memory.own
        # Set once a binding is in place.
        self._revision: int | None = None
        self._bind(python.revision.value, self.op.kernels["cpu"], self.op.shape_function)

    def timed(self, clock: Any) -> Callable[[int], Any] | None:
        """Return a function that computes and times the node; None for a compiled kernel."""
        if isinstance(self.op.kernels["cpu"], CompiledKernel):
            return None
        self._revision, self._state[layout.CALLS] = None, 0
        return functools.partial(clock.call, functools.partial(self._compute, self._python.with_clock(clock), None))

    def compute(self, context: int) -> None:
        """Compute as `KernelNode.compute` does, and learn from the call.

        If `context` is marked as the words of a call that machine code has made, finish that call instead.
        """
        try:
            self._compute(self._python, self._learn, context)
        finally:
            if self._python.keeper is self.op.kernels["cpu"]:
                self._state[layout.CALLS] = 0

    def _compute(self, python: KernelNode, learn: Callable[..., None] | None, context: int) -> None:
        if not context & layout.HANDED:
            python.compute(context, learn)
            return
        at = context - layout.HANDED
        context, outcome, objects, shapes = (c_int64 * layout.HANDED_WORDS).from_address(at)
        known: Any = py_object.from_address(at + 8 * layout.SHAPES).value if shapes else None
        if outcome == layout.FAILED:
            lost = EngineError(f"{self.op.signature.qualified_name} failed in machine code, which left no exception")
            handed: Any = [_first_failure(at + 8 * layout.SLOTS, objects) or lost]
        else:
            handed = py_object.from_address(at + 8 * layout.OBJECTS).value
        python.finish(context, _OUTCOMES[outcome], handed, known)

    def _learn(self, revision: int, kernel: Any, shape_function: Any, inputs: list[Any], shapes: Any) -> None:
        # Where another thread learns, or the call in which a signal's handler came, this call does without.
        with contextlib.suppress(TakenError), self._lock:
            old = self._bindings[-1]
            # The kernel may be newer than the revision.
            if revision != self._revision or kernel is not old.kernel or len(old.entries) == layout.MOST_ENTRIES:
                self._bind(revision, kernel, shape_function)
            if self._state[layout.CALLS] == layout.COMPILED:
                self._learn_code(kernel, inputs, shapes)
            elif self._state[layout.CALLS] and shapes is not None and self._are_possible(shapes):
                self._bindings[-1].add_shapes(inputs, shapes, id(shapes), shapes)

    def _learn_code(self, kernel: CompiledKernel, inputs: list[Any], shapes: Any) -> None:
        """Add the machine code of a compiled kernel for inputs like these, if there can be any."""
        node, attributes = self._python.info, self._python.attributes
        specialization, attribute_words = specialize(
            node.signature, kernel.cores, inputs, attributes, node.output_dtypes, node.output_count, shapes
        )
        code = kernel.entry(specialization, attributes)
        if code is not None:
            record = words(*code, address_of(attribute_words.memory))
            self._bindings[-1].add_shapes(inputs, shapes or (), address_of(record), (record, attribute_words))

    def _bind(self, revision: int, kernel: Any, shape_function: Any) -> None:
        """Let machine code call a kernel, if it can and the kernel does not keep arrays."""
        self._revision = None
        is_compiled, is_shaped = isinstance(kernel, CompiledKernel), shape_function is not None
        gives_buffers = is_shaped and self._python.takes_buffers
        names = [*self._python.attributes, *["out"] * gives_buffers]
        binding = _Binding(revision, kernel, is_shaped, names, gives_buffers)
        self._bindings.append(binding)
        calls = layout.COMPILED if is_compiled else layout.PLAIN
        is_possible = self._compiles(kernel) if is_compiled else self._is_direct and kernel is not self._python.keeper
        # Each is a single store: the new binding exists before them, and old ones are freed only after them.
        self._state[layout.BINDING] = address_of(binding.words)
        self._state[layout.CALLS] = calls if is_possible else 0
        if self._state[layout.RUNNING] == 0:
            del self._bindings[:-1]
        self._revision = revision

    def _compiles(self, kernel: CompiledKernel) -> bool:
        node = self._python.info
        return self._fits and kernel.lacking((*node.input_dtypes, *node.output_dtypes), node.attributes) is None

    def _are_possible(self, shapes: Sequence[Any]) -> bool:
        """Return whether machine code can check a plain kernel's results against shapes, and allocate its buffers."""
        gives_buffers = self._python.takes_buffers
        sizes = [size for shape in shapes for size in shape if size is not None or gives_buffers]
        is_complete = len(shapes) == len(self._python.info.output_dtypes)
        return is_complete and all(size is not None and 0 <= size < 2**62 for size in sizes)


pin = Exchange.pin


def node_maker(op: AnyOp) -> tuple[Callable[..., Any], int] | None:
    """Return what makes the nodes of an op, and the address of what computes them; None if only Python can."""
    if isinstance(op.kernels["cpu"], CompiledKernel) or not loaded_code.problem():
        return MachineNode, loaded_code.address_of("compute")
    return None


def _first_failure(at: int, slots: int) -> BaseException | None:
    """Return the first of the exceptions that a kernel raised in machine code, possibly in several threads."""
    count = slots * layout.SLOT_WORDS
    objects = [_take(pointer) for pointer in (c_void_p * count).from_address(at)]
    raised = zip(objects[1 :: layout.SLOT_WORDS], objects[2 :: layout.SLOT_WORDS], strict=True)
    found = (error.with_traceback(traceback) for error, traceback in raised if isinstance(error, BaseException))
    return next(found, None)


def _take(pointer: int | None) -> Any:
    """Return the object behind an owned reference, and release that reference."""
    if not pointer:
        return None
    taken = ctypes.cast(pointer, py_object)
    value = taken.value
    ctypes.pythonapi.Py_DecRef(taken)
    return value
