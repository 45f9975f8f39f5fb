"""The callbacks by which ONNX Runtime makes the kernels of hosted ops, runs them, frees them and infers shapes."""

from __future__ import annotations

import functools
import itertools
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
from .compiled_node import CompiledNode
from .cuda_node import CudaNode
from .hosted_op import HostedOp, immortal
from .kernel_node import KernelNode
from .shape_inference import infer_output_shapes

_Callback = Callable[[int], int | None]


class NativeEngine:
    """What ONNX Runtime calls in this process, and what the pointers stand for that it passes.

    Attributes
    ----------
    addresses : dict of str to int
        Where the callbacks lie, by their names in ``OrtCustomOp``.
    computes : dict
        What computes each node, by a number of ours or by the address of what compiled code knows of the node.
    table : int or None
        The last ``OrtApi*`` that ONNX Runtime passed when it created a kernel.
    compute_guard, infer_guard : Guard
        Of the calls of kernels and of shape functions.
    registrations : WeakKeyDictionary
        What each SessionOptions object has from this engine; to be changed under `lock`.
    """

    def __init__(self) -> None:
        self.computes: dict[int, _Callback] = {}
        self.table: int | None = None
        self.lock = threading.Lock()
        self.registrations: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._hosted: dict[int, HostedOp] = {}
        self._infers: dict[int, _Callback] = {}
        self._numbers = itertools.count(1)
        self._created: ContextVar[list[int] | None] = ContextVar("created", default=None)
        # One that came while ONNX Runtime asked about ops; the next kernel that is created raises it.
        self._interrupt: BaseException | None = None
        self.compute_guard: Guard[int, int | None] = Guard(self.computes, _Reporter())
        self.infer_guard: Guard[int, int | None] = Guard(self._infers, _Reporter())
        functions: dict[str, Any] = {
            # The bound method is C code, so that no interrupt can be raised in this callback either.
            "KernelDestroy": self.computes.pop,
            "CreateKernelV2": checkpoint(self._create_kernel, self._put_off),
            "KernelComputeV2": self.compute_guard.callback,
            "InferOutputShapeFn": self.infer_guard.callback,
        }
        self.addresses = {name: immortal(PROTOTYPES[name](function)) for name, function in functions.items()}

    def enter(self, item: HostedOp) -> None:
        """Let ONNX Runtime make kernels of a hosted op."""
        self._hosted[item.address] = item
        self._infers[item.address] = functools.partial(self._infer_output_shapes, item.op)

    def remove(self, item: HostedOp) -> None:
        """Undo `enter`; ONNX Runtime has no pointer to it any more."""
        del self._hosted[item.address], self._infers[item.address]

    @contextmanager
    def created_nodes(self, numbers: list[int]) -> Iterator[None]:
        """Within it, what this thread creates nodes under in `computes` is added to a list."""
        # A kernel that runs for a constant may create a session too.
        token = self._created.set(numbers)
        try:
            yield
        finally:
            self._created.reset(token)

    def _infer_output_shapes(self, op: AnyOp, context: int) -> None:
        if op.shape_function is not None:
            assert self.table is not None  # `native.ort_api` has seen to it
            infer_output_shapes(api_from_table(self.table), op, context)

    def _create_kernel(self, hosted_op: int, table: int, info: int, out: int) -> int | None:
        try:
            api = api_from_table(table)
            self.table = table
            if self._interrupt is not None:
                interrupt, self._interrupt = self._interrupt, None
                raise interrupt
            op = self._hosted[hosted_op]
            if op.struct.KernelComputeV2 == self.addresses["KernelComputeV2"]:
                made = CudaNode if op.device_type == "cuda" else KernelNode
                number, node = next(self._numbers), made(api, info, op)
            else:
                node = CompiledNode(api, info, op, self.addresses["KernelComputeV2"])
                number = node.address
            self.computes[number] = node.compute
            if (created := self._created.get()) is not None:
                created.append(number)
            c_void_p.from_address(out).value = number
        except BaseException as error:  # ONNX Runtime gets an interrupt too, as a status
            return _report(error)
        return None

    def _put_off(self, interrupt: BaseException) -> None:
        self._interrupt = self._interrupt or interrupt


def _report(error: BaseException, attempts: int = 8) -> int:
    """A status that stands for an exception, though others come in meanwhile."""
    try:
        return _Reporter().report(error)
    except BaseException:  # an interrupt, which may come again
        if not attempts:
            raise
        return _report(error, attempts - 1)


_SPARES = 32


class _Reporter:
    """Statuses whose messages stand for exceptions that `failures` keeps."""

    def report(self, error: BaseException) -> int:
        return load().status(exceptions.put_down(error))

    def spares(self) -> list[tuple[int, int]]:
        reserved = [exceptions.reserve() for _ in range(_SPARES)]
        return [(load().status(message), number) for number, message in reserved]

    slots = exceptions.waiting


engine = NativeEngine()
"""The only one: ONNX Runtime keeps pointers to its callbacks until the process ends."""


def arm() -> None:
    """Guard this thread's kernel calls against interrupts from now on.

    Raises
    ------
    RecursionError
        So near the recursion limit that a callback could not even be entered.
    """
    _descend()


# As deep as ctypes and a guard go below `session.run` before the guard catches what is raised; written out, since
# this runs before every run, and a counter costs as much again.
def _descend() -> None:
    _descend_further()


def _descend_further() -> None:
    _descend_to_the_end()


def _descend_to_the_end() -> None:
    _arm_guard()


_arm_guard = engine.compute_guard.arm
