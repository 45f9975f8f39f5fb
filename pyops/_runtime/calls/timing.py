"""Timing of a session's nodes, active only while requested.

Engines look up the function that computes a node by a key; while a session is timed, a timing wrapper is stored under
that key.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..._ops.op import AnyOp, Op
from ..._schema.dtypes import STRING
from ...errors import PyopsError

Key = TypeVar("Key")


class Call(NamedTuple):
    """What one call of a node took.

    Attributes
    ----------
    kernel : int
        Nanoseconds in the kernel; of machine code, which is one function, in the whole node.
    around : int or None
        Nanoseconds in the node besides; None for machine code.
    bytes_in, bytes_out : int or None
        Bytes read and written; None for machine code.
    """

    kernel: int
    around: int | None
    bytes_in: int | None
    bytes_out: int | None


class _InProgress(threading.local):
    """Measurements of the call that is running in this thread: nanoseconds and bytes."""

    kernel = 0
    measuring = 0
    sizes: tuple[int, int] = (0, 0)


class NodeClock:
    """A clock for the calls of one node.

    Parameters
    ----------
    record : callable
        Called with each `Call` when it has ended, in its thread.

    Attributes
    ----------
    kernel : callable
        Returns a timed version of a kernel.
    """

    def __init__(self, record: Callable[[Call], None]) -> None:
        self.record = record
        self._running = _InProgress()
        # Cached, so that one kernel always gives the same timed kernel (engines compare kernels by identity).
        self.kernel = functools.cache(self._timed)

    def call(self, compute: Callable[[Any], Any], argument: Any) -> Any:
        """Return ``compute(argument)`` and record the call."""
        running = self._running
        running.kernel, running.measuring, running.sizes = 0, 0, (0, 0)
        began = perf_counter_ns()
        try:
            return compute(argument)
        finally:
            around = perf_counter_ns() - began - running.kernel - running.measuring
            self.record(Call(running.kernel, around, *running.sizes))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*inputs: Any, **attributes: Any) -> Any:
            running, result = self._running, None
            began = perf_counter_ns()
            try:
                result = function(*inputs, **attributes)
            finally:
                ended = perf_counter_ns()
                results = result if isinstance(result, tuple) else (result,)
                # Set after the call: a session that the kernel ran may have called this same node meanwhile.
                running.kernel = ended - began
                running.sizes = sum(map(_size, inputs)), sum(map(_size, results))
                running.measuring = perf_counter_ns() - ended
            return result

        return timed


def _size(value: Any) -> int:
    """Return the number of bytes of an array's elements; strings count as UTF-8."""
    if isinstance(value, np.ndarray) and value.dtype == STRING:
        return sum(len(item.encode()) for item in value.flat if isinstance(item, str))
    return int(getattr(value, "nbytes", 0))


class TimedOp(Op[..., Any]):
    """A view of an op whose kernels are timed; everything else is shared with the op."""

    __slots__ = ("_clock",)

    def __init__(self, op: AnyOp, clock: NodeClock) -> None:
        self.__dict__ = op.__dict__
        self._clock = clock

    @property
    def kernels(self) -> dict[str, Callable[..., Any]]:  # type: ignore[override] # read alone
        """Return the op's kernels, timed, by device type."""
        return {device: self._clock.kernel(function) for device, function in self.__dict__["kernels"].items()}


class Nodes(Generic[Key]):
    """The nodes of one session.

    Parameters
    ----------
    computes : mapping
        The engine's lookup table of `compute` functions, shared by all sessions.
    keys : list
        The session's keys; nodes of some of them may be gone.
    """

    def __init__(self, computes: MutableMapping[Key, Callable[[Any], Any]], keys: list[Key]) -> None:
        self._computes = computes
        self._keys = keys
        self._free = threading.Lock()
        self._originals: dict[Key, Callable[[Any], Any]] = {}

    def __iter__(self) -> Iterator[tuple[str, AnyOp]]:
        """Yield the name and op of each node."""
        for _, node in self.living():
            yield node.name, node.op

    def living(self) -> Iterator[tuple[Key, Any]]:
        """Yield the key and node of each node that still exists.

        Each engine has its own class of nodes. All have a `name`, an `op`, a method `compute`, and `timed`: a context
        manager that takes a `NodeClock` and returns what to call in place of `compute`.
        """
        for key in self._keys:
            compute: Any = self._originals.get(key) or self._computes.get(key)
            if compute is not None:  # else ONNX Runtime folded it to a constant when it created the session
                yield key, compute.__self__

    @contextmanager
    def timed(self, clock_for: Callable[[str, AnyOp], NodeClock]) -> Iterator[None]:
        """Time the calls of every node within the block, with ``clock_for(name, op)``.

        The session must outlive the block.

        Raises
        ------
        PyopsError
            The nodes are already being timed.
        """
        if not self._free.acquire(blocking=False):
            raise PyopsError("the session is already being profiled; use the existing profile")
        with ExitStack() as stack:
            stack.callback(self._free.release)
            stack.callback(self._restore)
            for key, node in list(self.living()):
                timed = stack.enter_context(node.timed(clock_for(node.name, node.op)))
                self._originals[key], self._computes[key] = self._computes[key], timed
            yield

    def _restore(self) -> None:
        self._computes.update(self._originals)
        self._originals.clear()
