"""Nodes whose plain kernel ONNX Runtime calls directly: by machine code, which needs llvmlite and no compiler.

Machine code makes the ordinary call (see `direct_call`). It leaves everything unusual to `KernelNode.compute`, which
also runs where there is no machine code, or where it does not support a node.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import sys
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, addressof, c_int64, c_void_p, py_object
from typing import Any

import numpy as np

from ..._compiled.layout import address_of, words
from ..._locks import TakenError, TryLock
from ..._schema.dtypes import is_viewable, ort_code
from ..calls.timing import TimedOp
from . import direct_call, direct_code
from .c_api import TENSOR_FUNCTIONS, Api
from .hosted_op import HostedOp
from .kernel_node import MAX_SHAPES, NEVER, KernelNode, Resume
from .workspace import Workspace

# The bases of the arrays that kernels get, which mark them as borrowed, and as read-only or writeable.
_BASES = memoryview(b"\0"), memoryview(bytearray(1))
_RUNNING = words(0)


class _Binding:
    """What machine code calls for a node while the op's revision is the one given.

    Attributes
    ----------
    words : numpy.ndarray
        As `direct_call` reads them.
    entries : dict
        The entries of the shape table. All are kept: another thread may be reading one whose slot was taken over.
    """

    def __init__(self, kernel: Any, names: Sequence[str], revision: int, is_shaped: bool, gives_buffers: bool) -> None:
        self._kernel, self._names = kernel, tuple(map(sys.intern, names))
        self._slots = words(*[0] * 2**direct_call.SLOT_BITS) if is_shaped else words()
        slots = address_of(self._slots) if is_shaped else 0
        self.entries: dict[tuple[int, ...], tuple[np.ndarray[Any, Any], Any]] = {}
        self.words = words(id(self), revision, id(kernel), id(self._names) if names else 0, gives_buffers, slots)

    def add_shapes(self, inputs: Sequence[Any], outputs: Sequence[tuple[int | None, ...]]) -> None:
        """Add the output shapes for inputs like these to the shape table."""
        key = [word for array in inputs if array is not None for word in (array.ndim, *array.shape)]
        shapes = [direct_call.ANY if word is None else word for shape in outputs for word in (len(shape), *shape)]
        entry, _ = self.entries.setdefault(tuple(key), (words(id(outputs), len(key), *key, *shapes), outputs))
        self._slots[_slot_of()(address_of(entry[direct_call.KEY :]), len(key))] = address_of(entry)


@functools.cache
def _slot_of() -> Callable[[int, int], int]:
    return CFUNCTYPE(c_int64, c_int64, c_int64)(direct_code.address_of("slot_of"))


@functools.cache
def _functions(api: Api) -> tuple[int, ...]:
    """Return the addresses of ONNX Runtime's functions that machine code calls, in the order of its words."""
    return tuple(map(api.address, (*TENSOR_FUNCTIONS, "ReleaseStatus")))


class DirectNode(KernelNode):
    """A node of a session whose kernel is called by machine code.

    Attributes
    ----------
    address : int
        The address of the node's words, which machine code reads.
    """

    def __init__(self, api: Api, info: int, hosted: HostedOp) -> None:
        super().__init__(api, info, hosted)
        node, signature = self._node, self._signature
        self._lock = TryLock()
        self._bindings: list[_Binding] = []
        self._revision: int | None = None
        items = [(ort_code(dtype), id(dtype)) for dtype in node.input_dtypes]
        items += [(dtype.itemsize, id(dtype)) for dtype in node.output_dtypes]
        items += [(id(value), name in self._lists) for name, value in self._attributes.items()]
        # Results must not lie in memory that the outputs before them are written to.
        flags = direct_call.C_CONTIGUOUS | direct_call.ALIGNED
        if self._in_place and len(node.output_dtypes) > 1:
            flags |= direct_call.OWNS_DATA
        numbers = len(node.input_dtypes), len(node.output_dtypes), len(self._attributes)
        self._state = words(
            *(0, hosted.python, addressof(self.op._revision), *_functions(api)),
            *map(id, (np.ndarray, None, *_BASES)),
            *numbers,
            *(node.output_count, signature.returns_tuple, flags, address_of(_RUNNING)),
            *itertools.chain(*items),
        )
        self.address = address_of(self._state)
        self._is_direct = (
            self._lender is not NEVER
            and all(dtype is None or is_viewable(dtype) for dtype in (*node.input_dtypes, *node.output_dtypes))
            and all(map(operator.le, numbers, direct_call.MOST))
        )
        self._bind()

    def compute(self, context: int, resume: Resume | None = None) -> None:
        """Compute as `KernelNode.compute` does.

        If `context` is marked as the words of a call that machine code made, finish that call instead.
        """
        if not context & direct_call.HANDED:
            super().compute(context, resume)
            return
        at = context - direct_call.HANDED
        outcome, has_shapes = (c_int64 * 2).from_address(at + 8 * direct_call.OUTCOME)
        objects: Any = py_object.from_address(at + 8 * direct_call.OBJECTS).value
        shapes: Any = py_object.from_address(at + 8 * direct_call.SHAPES_GIVEN).value if has_shapes else None
        self.finish(c_int64.from_address(at).value, objects, outcome, shapes)

    def _run(self, context: c_void_p, workspace: Workspace, passed: list[Any]) -> None:
        if self._revision != self.op._revision.value:
            self._bind()
        super()._run(context, workspace, passed)

    def _bind(self) -> None:
        """Let machine code call the op's current kernel, unless that keeps arrays."""
        if isinstance(self.op, TimedOp):  # a copy of the node while a session is profiled
            return
        op, revision = self.op, self.op._revision.value
        kernel = op.kernels[self.device_type]
        is_shaped = op.shape_function is not None
        gives_buffers = is_shaped and self._takes_buffers
        names = [*self._attributes, *["out"] * gives_buffers]
        # Where another thread binds the node, or the call in which a signal's handler came, this call does without.
        with contextlib.suppress(TakenError), self._lock:
            self._bindings.append(_Binding(kernel, names, revision, is_shaped, gives_buffers))
            is_direct = self._is_direct and kernel is not self._keeper
            # A single store: the new binding exists before it, and the old one is freed only after it.
            self._state[direct_call.BINDING] = address_of(self._bindings[-1].words) if is_direct else 0
            del self._bindings[:-1]
            self._revision = revision

    def _shapes_for(self, inputs: list[Any], function: Callable[..., Any]) -> Sequence[tuple[int | None, ...]]:
        binding = self._bindings[-1]
        shapes = super()._shapes_for(inputs, function)
        if function is not self.op.shape_function:  # replaced meanwhile, so the binding may be for another one
            return shapes
        sizes = [size for shape in shapes for size in shape if size is not None or self._takes_buffers]
        # The shape function may have been registered after the binding was made.
        is_possible = (
            all(size is not None and 0 <= size < 2**62 for size in sizes) and binding.words[direct_call.SHAPES]
        )
        if self._state[direct_call.BINDING] and is_possible and len(shapes) == len(self._node.output_dtypes):
            if len(binding.entries) >= MAX_SHAPES:
                self._bind()
            else:
                binding.add_shapes(inputs, shapes)
        return shapes

    def _report_kept(self, context: int, passed: list[Any]) -> None:
        super()._report_kept(context, passed)
        if self._keeper is self.op.kernels[self.device_type]:
            self._state[direct_call.BINDING] = 0
