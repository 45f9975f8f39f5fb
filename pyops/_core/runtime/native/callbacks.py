"""The callbacks through which ONNX Runtime creates, runs and frees kernels, and infers shapes."""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from ctypes import c_void_p
from typing import Any, TypeVar

from ...._support.locks import RLock
from .. import kernel_exceptions
from ..callback_guard import CallbackGuard, packing, signals_deferred
from .c_api import PROTOTYPES, api_from_table, load
from .kernel_node import KernelNode
from .node_info import infer_output_shapes
from .ort_custom_op import HostedOp, immortal, names, show_all, shown_only

T = TypeVar("T")
_Callback = Callable[[int], int | None]
# A session that a setup function creates is created on top of the stack of the first, which needs some 130 KB of it.
_MOST_CREATIONS = 20


class _InPlainSession(functools.partial[None]):
    """What computes a node of a plain onnxruntime session, which does not raise the kernel's exceptions."""


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
    compute_guard : Guard
        The guard of kernel calls.
    registrations, domains : dict
        The `Registration` of each SessionOptions object, and the addresses of its domains by name, by weak references
        to it; `lock` protects changes.
    released : list
        The keys in `domains` of objects that no longer exist.
    """

    def __init__(self) -> None:
        self.computes: dict[int, _Callback] = {}
        self.table: int | None = None
        self.lock = RLock()
        self.registrations: dict[weakref.ref[Any], Any] = {}
        self.domains: dict[weakref.ref[Any], dict[str, int]] = {}
        self.released: list[weakref.ref[Any]] = []
        self._created: ContextVar[list[weakref.ref[KernelNode]] | None] = ContextVar("created", default=None)
        self._thread = _ThisThread()
        computes = self.computes
        reporter = _Reporter(lambda call: type(computes.get(call.first)) is not _InPlainSession)
        self.compute_guard = CallbackGuard(lambda call: computes[call.first](call.second), reporter)
        infer_guard = CallbackGuard(self._infer_output_shapes, self._thread)
        create_guard = CallbackGuard(self._create_kernel, _Reporter(lambda _: self._thread.depth > 0))
        self._creation_guards = infer_guard, create_guard
        functions: dict[str, Any] = {
            # A bound method of dict is C code, so no exception can be raised in this callback either.
            "KernelDestroy": self.computes.pop,
            "CreateKernelV2": packing(create_guard.callback, 4),
            "KernelComputeV2": self.compute_guard.callback,
            "InferOutputShapeFn": infer_guard.callback,
        }
        self.addresses = {name: immortal(PROTOTYPES[name](function)) for name, function in functions.items()}

    def create(self, items: Iterable[HostedOp], nodes: list[weakref.ref[KernelNode]], function: Callable[[], T]) -> T:
        """Return ``function()``, which creates one session in this thread; raise what no callback could report.

        Parameters
        ----------
        items : iterable of HostedOp
            The ops that the session sees, and no others.
        nodes : list
            References to the session's nodes are appended to it.

        Raises
        ------
        RecursionError
            Too many sessions are being created within each other.
        """
        # A setup function may create a session too.
        depth, shown, created = self._thread.depth, names.shown, self._created.get()
        if depth == _MOST_CREATIONS:
            raise RecursionError(
                f"{_MOST_CREATIONS} sessions are being created within each other: a setup function or a kernel creates "
                "a session of a model with its own op"
            )
        for guard in (self.compute_guard, *self._creation_guards):
            guard.arm()
        if not depth:
            self._thread.slots.clear()  # what is left is of a plain session, whose creation has ended
        try:
            self._created.set(nodes)
            self._thread.depth, names.shown = depth + 1, shown_only(items)
            return function()
        finally:
            self._thread.depth, names.shown = depth, shown
            self._created.set(created)
            self._thread.check()

    def _infer_output_shapes(self, call: Any) -> None:
        show_all()
        op = HostedOp.at(call.first).op
        if op.shape_function is not None:
            assert self.table is not None  # set by `op_registration.ort_api`
            infer_output_shapes(api_from_table(self.table), op, call.second)

    def _create_kernel(self, arguments: tuple[Any, int, int, int, int]) -> None:
        _, hosted_op, table, info, out = arguments
        self.table = table
        self._thread.check()
        show_all()
        op, created = HostedOp.at(hosted_op), self._created.get()
        try:
            self._created.set(None)  # a setup function may create a plain session
            node = op.node_type(api_from_table(table), info, op)
        finally:
            self._created.set(created)
        if created is None:
            self.computes[node.address] = _InPlainSession(node.compute)
        else:
            self.computes[node.address] = node.compute
            created.append(weakref.ref(node))
        c_void_p.from_address(out).value = node.address


class _Reporter:
    """A reporter for callbacks that return an ``OrtStatus*``.

    Parameters
    ----------
    is_raised : callable
        Gets what C passed to the callback; returns whether a session of pyops raises its exceptions.
    """

    slots = kernel_exceptions.stored

    def __init__(self, is_raised: Callable[[Any], bool]) -> None:
        self._is_raised = is_raised

    def report(self, error: BaseException, call: Any) -> int | None:
        if call is not None and self._is_raised(call):
            return None
        kernel_exceptions.remember_exception(error)
        with signals_deferred():  # traceback takes an exception that comes meanwhile for a failure of __str__
            message = kernel_exceptions.describe(error)
        if call is None:  # and so the session
            number, mark = kernel_exceptions.reserve()
            kernel_exceptions.stored[number] = error
            message = f"{mark} {message}"
        return load().status(message)

    def spare(self) -> tuple[int, int]:
        number, message = kernel_exceptions.reserve()
        return load().status(message), number


class _ThisThread(threading.local):
    """A reporter for callbacks whose status ONNX Runtime ignores; the session's creation raises the exceptions.

    Attributes
    ----------
    depth : int
        The number of sessions that are being created in this thread.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.slots: dict[int, BaseException] = {}

    def report(self, error: BaseException, call: Any) -> None:
        """Leave it to `check`."""

    def spare(self) -> tuple[int, int]:
        return 0, next(_numbers)

    def check(self) -> None:
        """Raise the first exception that this thread could not report; the others must not end another creation."""
        if self.slots:
            first = self.slots[min(self.slots)]
            self.slots.clear()
            raise first


_numbers = itertools.count()
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
