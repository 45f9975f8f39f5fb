"""Nodes whose op has a compiled kernel: ONNX Runtime calls machine code, without the interpreter.

Machine code calls `CompiledNode.compute` when it cannot continue: for types, ranks or shapes that it has no record of,
after the op was redefined, and when the kernel raised.
"""

from __future__ import annotations

import contextlib
import ctypes
from ctypes import c_void_p
from typing import Any

from ..._compiled import layout
from ..._compiled.kernel import CompiledKernel
from ..._compiled.layout import Record, address_of, words
from ..._compiled.specialization import Specialization, specialize
from ..._locks import TakenError, TryLock
from ..._ops.op import AnyOp
from ...errors import EngineError
from ..calls.timing import NodeProfile
from .c_api import TENSOR_FUNCTIONS, Api
from .hosted_op import HostedOp
from .kernel_node import KernelNode, Resume
from .workspace import Workspace


def is_compiled(op: AnyOp) -> bool:
    """Return whether the op's CPU kernel is compiled, as sessions created now would call it."""
    return isinstance(op.kernels["cpu"], CompiledKernel)


def dispatch_address() -> int:
    """Return the address of the KernelComputeV2 of ops with compiled kernels."""
    from ..._compiled.machine_code import dispatch

    return dispatch()


class CompiledNode(KernelNode):
    """A node of a session that machine code computes.

    Attributes
    ----------
    address : int
        The address of the node's state, which machine code reads.
    """

    def __init__(self, api: Api, info: int, hosted: HostedOp) -> None:
        super().__init__(api, info, hosted)
        self._lock = TryLock()
        # What machine code may be reading, the latest last.
        self._kept: list[Any] = []
        functions = (*TENSOR_FUNCTIONS, "KernelContext_ParallelFor")
        self._state = words(0, ctypes.addressof(self.op._revision), hosted.python, *map(api.address, functions), 0)
        self.address = address_of(self._state)
        self._publish(self.op._revision.value - 1, {})

    def compute(self, context: int, resume: Resume | None = None) -> None:
        """Compute as `KernelNode.compute` does, and learn the inputs' types and shapes.

        If `context` is marked as the address of failures, raise the exception that machine code caught instead.
        """
        if context & layout.FAILED:
            self._raise(context - layout.FAILED)
        super().compute(context, resume)

    def _run(self, context: c_void_p, workspace: Workspace, passed: list[Any]) -> None:
        # Where another thread learns, or the call in which a signal's handler came, this call does without.
        with contextlib.suppress(TakenError), self._lock:
            self._learn(passed)
        super()._run(context, workspace, passed)

    def timed(self, clock: NodeProfile) -> None:
        """Return None: ONNX Runtime calls the machine code by itself."""

    def _learn(self, inputs: list[Any]) -> None:
        """Publish records with which machine code serves the next call with inputs like these."""
        revision, kernel = self.op._revision.value, self.op.kernels["cpu"]
        if revision != self._revision:
            self._publish(revision, {})
        records = self._records
        if not isinstance(kernel, CompiledKernel) or kernel.lacking(inputs, self._attributes, self._node.output_dtypes):
            return
        shape_function = self.op.shape_function
        shapes = None if shape_function is None else self._shapes_for(inputs, shape_function)
        outputs, used = self._node.output_dtypes, self._node.output_count
        specialization, attributes = specialize(
            self._signature, kernel.cores, inputs, self._attributes, outputs, used, shapes
        )
        input_sizes = [size for array in inputs if array is not None for size in array.shape]
        output_sizes = [-1 if size is None else size for shape in shapes or () for size in shape]
        if specialization not in records:
            code = kernel.entry(specialization, self._attributes)
            if code is None:
                return
            record = Record(*code, attributes, len(input_sizes), len(output_sizes))
            records[specialization] = record
            self._publish(revision, records)
        if shapes is not None:
            records[specialization].add_shapes(input_sizes, output_sizes)
        if self._state[layout.RUNNING] == 0:
            del self._kept[:-1]
            for record in records.values():
                record.free_replaced()

    def _publish(self, revision: int, records: dict[Specialization, Record]) -> None:
        self._revision, self._records = revision, records
        published = words(revision, len(records), *(record.address for record in records.values()))
        self._kept.append((published, records))
        self._state[layout.RECORDS] = address_of(published)

    def _raise(self, failures: int) -> None:
        """Raise the first of the exceptions that kernels raised in machine code, possibly in several threads."""
        context, slots = (ctypes.c_int64 * layout.FAILURES).from_address(failures)
        count = slots * layout.FAILURE_WORDS
        pointers = (c_void_p * count).from_address(failures + 8 * layout.FAILURES)
        objects = [_take(pointer) for pointer in pointers]
        inputs: list[Any] = []
        Workspace(self._api).read(self._api.KernelContext_GetInput, c_void_p(context), self._present, inputs)
        for error, traceback in zip(
            objects[1 :: layout.FAILURE_WORDS], objects[2 :: layout.FAILURE_WORDS], strict=True
        ):
            if isinstance(error, BaseException):
                error = error.with_traceback(traceback)
                self._explain(error, context, inputs)
                raise error
        raise EngineError(f"{self._signature.qualified_name} failed in machine code, which left no exception")


def _take(pointer: int | None) -> Any:
    """Return the object behind an owned reference, and release that reference."""
    if not pointer:
        return None
    taken = ctypes.cast(pointer, ctypes.py_object)
    value = taken.value
    ctypes.pythonapi.Py_DecRef(taken)
    return value
