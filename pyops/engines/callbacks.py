"""The callbacks by which ONNX Runtime makes the kernels of hosted ops, runs them, frees them and infers shapes."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import c_void_p
from typing import Any

from .. import failures
from ..op import AnyOp
from .c_api import PROTOTYPES, api_from_table, load
from .compiled_node import CompiledNode
from .cuda_node import CudaNode
from .guard import Guard, checkpoint
from .hosted_op import HostedOp, immortal
from .kernel_node import KernelNode
from .shape_inference import infer_output_shapes

# What ONNX Runtime's pointers stand for: hosted ops by the address of their structures, kernel nodes (their `compute`)
# by a number of ours, or by the address of what compiled code knows of them.
_hosted: dict[int, HostedOp] = {}
_infers: dict[int, Callable[[int], int | None]] = {}
computes: dict[int, Callable[[int], int | None]] = {}
_numbers = itertools.count(1)

tables: deque[int] = deque(maxlen=1)
"""The last ``OrtApi*`` that ONNX Runtime passed when it created a kernel."""

# Those that came while ONNX Runtime asked about ops; the next kernel that is created raises them.
_interrupts: list[BaseException] = []


def enter(item: HostedOp) -> None:
    """Let ONNX Runtime make kernels of a hosted op."""
    _hosted[item.address] = item
    _infers[item.address] = functools.partial(_infer_output_shapes, item.op)


def remove(item: HostedOp) -> None:
    """Undo `enter`; ONNX Runtime has no pointer to it any more."""
    del _hosted[item.address], _infers[item.address]


_created: ContextVar[list[int] | None] = ContextVar("_created", default=None)


@contextmanager
def created_nodes(numbers: list[int]) -> Iterator[None]:
    """Within it, what this thread creates nodes under in `computes` is added to a list."""
    # A kernel that runs for a constant may create a session too.
    token = _created.set(numbers)
    try:
        yield
    finally:
        _created.reset(token)


def _infer_output_shapes(op: AnyOp, context: int) -> None:
    if op.shape_function is not None:
        infer_output_shapes(api_from_table(tables[0]), op, context)


def _create_kernel(hosted_op: int, table: int, info: int, out: int) -> int | None:
    try:
        api = api_from_table(table)
        tables.append(table)
        if _interrupts:
            interrupt = _interrupts[0]
            _interrupts.clear()
            raise interrupt
        op = _hosted[hosted_op]
        if op.struct.KernelComputeV2 == ADDRESSES["KernelComputeV2"]:
            made = CudaNode if op.device_type == "cuda" else KernelNode
            number, node = next(_numbers), made(api, info, op)
        else:
            node = CompiledNode(api, info, op, ADDRESSES["KernelComputeV2"])
            number = node.address
        computes[number] = node.compute
        if (created := _created.get()) is not None:
            created.append(number)
        c_void_p.from_address(out).value = number
    except BaseException as error:  # ONNX Runtime gets an interrupt too, as a status
        return _report(error)
    return None


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
        return load().status(failures.put_down(error))

    def spares(self) -> list[tuple[int, int]]:
        reserved = [failures.reserve() for _ in range(_SPARES)]
        return [(load().status(message), number) for number, message in reserved]

    slots = failures.waiting


_compute_guard: Guard[int, int | None] = Guard(computes, _Reporter())
infer_guard: Guard[int, int | None] = Guard(_infers, _Reporter())


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
    _compute_guard.arm()


_CALLBACKS: dict[str, Any] = {
    # The bound method is C code, so that no interrupt can be raised in this callback either.
    "KernelDestroy": computes.pop,
    "CreateKernelV2": checkpoint(_create_kernel, _interrupts.append),
    "KernelComputeV2": _compute_guard.callback,
    "InferOutputShapeFn": infer_guard.callback,
}


ADDRESSES = {name: immortal(PROTOTYPES[name](function)) for name, function in _CALLBACKS.items()}
"""Where they lie, by their names in ``OrtCustomOp``."""
