"""The callbacks through which ONNX Runtime creates, runs and frees kernels, and infers shapes."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import c_void_p
from typing import Any

from ..._ops.op import AnyOp
from ..calls import exceptions
from ..calls.guard import Guard, checkpoint
from .c_api import PROTOTYPES, api_from_table, load
from .hosted_op import HostedOp, immortal
from .kernel_node import KernelNode
from .node_info import infer_output_shapes

_Callback = Callable[[int], int | None]


class NativeEngine:
    """The process-wide tables behind the pointers that ONNX Runtime passes to the callbacks.

    Attributes
    ----------
    addresses : dict of str to int
        The addresses of the callbacks, by field name of ``OrtCustomOp``.
    computes : dict
        The function that computes each node, by the node's `address`.
    table : int or None
        The last ``OrtApi*`` that ONNX Runtime passed when it created a kernel.
    compute_guard, infer_guard : Guard
        The guards of kernel calls and of shape function calls.
    registrations : WeakKeyDictionary
        The `Registration` of each SessionOptions object; `lock` protects changes.
    """

    def __init__(self) -> None:
        self.computes: dict[int, _Callback] = {}
        self.table: int | None = None
        self.lock = threading.Lock()
        self.registrations: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._hosted: dict[int, HostedOp] = {}
        self._infers: dict[int, _Callback] = {}
        self._created: ContextVar[list[weakref.ref[KernelNode]] | None] = ContextVar("created", default=None)
        # An interrupt that arrived in a callback without a status; the next kernel creation raises it.
        self._interrupt: BaseException | None = None
        self.compute_guard = Guard(self.computes, _Reporter())
        self.infer_guard = Guard(self._infers, _Reporter())
        functions: dict[str, Any] = {
            # A bound method of dict is C code, so no interrupt can be raised in this callback either.
            "KernelDestroy": self.computes.pop,
            "CreateKernelV2": checkpoint(self._create_kernel, self._defer),
            "KernelComputeV2": self.compute_guard.callback,
            "InferOutputShapeFn": self.infer_guard.callback,
        }
        self.addresses = {name: immortal(PROTOTYPES[name](function)) for name, function in functions.items()}

    def add(self, item: HostedOp) -> None:
        """Register a hosted op, so that ONNX Runtime can create kernels of it."""
        self._hosted[item.address] = item
        self._infers[item.address] = functools.partial(self._infer_output_shapes, item.op)

    def remove(self, item: HostedOp) -> None:
        """Remove a hosted op that ONNX Runtime has no pointers to any more."""
        del self._hosted[item.address], self._infers[item.address]

    @contextmanager
    def created_nodes(self, nodes: list[weakref.ref[KernelNode]]) -> Iterator[None]:
        """Append references to the nodes that this thread creates within the block to `nodes`."""
        # Nested, because a kernel called for constant folding may create a session too.
        token = self._created.set(nodes)
        try:
            yield
        finally:
            self._created.reset(token)

    def _infer_output_shapes(self, op: AnyOp, context: int) -> None:
        if op.shape_function is not None:
            assert self.table is not None  # set by `native.session.ort_api`
            infer_output_shapes(api_from_table(self.table), op, context)

    def _create_kernel(self, hosted_op: int, table: int, info: int, out: int) -> int | None:
        try:
            api = api_from_table(table)
            self.table = table
            if self._interrupt is not None:
                interrupt, self._interrupt = self._interrupt, None
                raise interrupt
            op = self._hosted[hosted_op]
            node = op.node_type(api, info, op)
            self.computes[node.address] = node.function
            if (created := self._created.get()) is not None:
                created.append(weakref.ref(node))
            c_void_p.from_address(out).value = node.address
        except BaseException as error:  # an interrupt is reported as a status, too
            return _report(error)
        return None

    def _defer(self, interrupt: BaseException) -> None:
        self._interrupt = self._interrupt or interrupt


def _report(error: BaseException, attempts: int = 8) -> int:
    """Return a status for an exception, retrying when interrupted."""
    try:
        return _Reporter().report(error)
    except BaseException:  # interrupted, possibly repeatedly
        if not attempts:
            raise
        return _report(error, attempts - 1)


_SPARES = 32


class _Reporter:
    """A reporter whose statuses carry ids of exceptions stored in `calls.exceptions`."""

    def report(self, error: BaseException) -> int:
        return load().status(exceptions.store(error))

    def spares(self) -> list[tuple[int, int]]:
        reserved = [exceptions.reserve() for _ in range(_SPARES)]
        return [(load().status(message), number) for number, message in reserved]

    slots = exceptions.stored


engine = NativeEngine()
"""The only instance: ONNX Runtime keeps pointers to its callbacks until the process ends."""


def arm() -> None:
    """Guard this thread's kernel calls against interrupts from now on.

    Raises
    ------
    RecursionError
        The recursion limit is so near that a callback could not be entered.
    """
    _descend()


# The depth that ctypes and a guard need between `session.run` and the point where the guard catches exceptions. Written
# out, because it runs before every run and a counter would double its cost.
def _descend() -> None:
    _descend_further()


def _descend_further() -> None:
    _descend_to_the_end()


def _descend_to_the_end() -> None:
    _arm_guard()


_arm_guard = engine.compute_guard.arm
