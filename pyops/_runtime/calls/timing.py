"""The time that the nodes of a session take, measured only while somebody asks.

Engines look up what computes a node by a key; while a session is timed, something else stands there.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from time import perf_counter_ns
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ..._ops.op import AnyOp, Op
from ..._schema.dtypes import STRING
from ...errors import PyopsError

Key = TypeVar("Key")


class Call(NamedTuple):
    """One call of a node.

    Attributes
    ----------
    began, ended : int
        By `time.perf_counter_ns`.
    kernel : tuple of two int
        The same of the kernel alone; both `began` where the kernel was not reached.
    measuring : int
        Nanoseconds between `began` and `ended` in which sizes were counted.
    bytes_in, bytes_out : int or None
        None where it is not known.
    thread : int
        As the operating system calls it.
    raised : str
        The type of the exception that ended the call; empty if none did.
    is_machine_code : bool
        The kernel is then all of it.
    """

    began: int
    ended: int
    kernel: tuple[int, int]
    measuring: int
    bytes_in: int | None
    bytes_out: int | None
    thread: int
    raised: str = ""
    is_machine_code: bool = False


class _InProgress(threading.local):
    """What is known of the call that is running in this thread."""

    kernel: tuple[int, int] | None = None
    sizes: tuple[int, int] = (0, 0)
    measuring = 0
    raised = ""


class NodeClock:
    """Times the calls of one node.

    Parameters
    ----------
    record : callable
        Gets each call when it has ended, in the thread that it ran in.

    Attributes
    ----------
    kernel : callable
        Makes a timed kernel of a kernel.
    """

    def __init__(self, record: Callable[[Call], None]) -> None:
        self._record = record
        self._running = _InProgress()
        # For one function always the same.
        self.kernel = functools.cache(self._timed)

    def call(self, compute: Callable[[Any], Any], argument: Any) -> Any:
        """``compute(argument)``, recorded."""
        running = self._running
        running.kernel, running.sizes, running.measuring, running.raised = None, (0, 0), 0, ""
        began = perf_counter_ns()
        try:
            return compute(argument)
        except BaseException as error:  # an interrupt ends the call as well
            running.raised = type(error).__name__
            raise
        finally:
            ended = perf_counter_ns()
            kernel = running.kernel or (began, began)
            measured = running.measuring, *running.sizes, threading.get_native_id(), running.raised
            self._record(Call(began, ended, kernel, *measured))

    def record_machine_code(self, began: int, ended: int, bytes_in: int, bytes_out: int | None) -> None:
        """Record a call that was all machine code."""
        thread = threading.get_native_id()
        self._record(Call(began, ended, (began, ended), 0, bytes_in, bytes_out, thread, is_machine_code=True))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*inputs: Any, **attributes: Any) -> Any:
            running, result = self._running, None
            began = perf_counter_ns()
            try:
                result = function(*inputs, **attributes)
            except BaseException as error:  # not every engine lets it out of the node
                running.raised = type(error).__name__
                raise
            finally:
                ended = perf_counter_ns()
                # A session that the kernel ran may have called this node meanwhile.
                running.kernel = began, ended
                results = result if isinstance(result, tuple) else (result,)
                running.sizes = sum(map(size, inputs)), sum(map(size, results))
                running.measuring = perf_counter_ns() - ended
            return result

        return timed


def size(value: Any) -> int:
    """The bytes of an array's elements; those of strings in UTF-8."""
    if isinstance(value, np.ndarray) and value.dtype == STRING:
        return sum(len(item.encode()) for item in value.flat if isinstance(item, str))
    return int(getattr(value, "nbytes", 0))


class TimedOp(Op[..., Any]):
    """An op and all that is ever registered for it, but with a kernel that is timed."""

    __slots__ = ("_clock",)

    def __init__(self, op: AnyOp, clock: NodeClock) -> None:
        self.__dict__ = op.__dict__
        self._clock = clock

    @property
    def kernels(self) -> dict[str, Callable[..., Any]]:  # type: ignore[override] # read alone
        """As of the op."""
        return {device: self._clock.kernel(function) for device, function in self.__dict__["kernels"].items()}


class Node(Protocol):
    """A node of a session, as an engine has it."""

    @property
    def name(self) -> str:
        """As in the model; may be empty."""

    @property
    def op(self) -> AnyOp:
        """What computes it."""

    def compute(self, argument: Any) -> Any:
        """Compute it."""

    def timed(self, clock: NodeClock) -> TimedNode:
        """What is called in its place."""


class TimedNode:
    """What is called in place of a node while it is timed: `node`, whose kernel is timed too.

    Attributes
    ----------
    aliases : mapping
        What is looked up beside it, by other keys, until the node is gone.
    """

    aliases: Mapping[Any, Callable[[Any], Any]] = MappingProxyType({})

    def __init__(self, node: Node, clock: NodeClock) -> None:
        self._node, self._clock = node, clock

    def compute(self, argument: Any) -> Any:
        """In place of the node's own."""
        return self._clock.call(self._node.compute, argument)

    def stop(self) -> None:
        """It is no longer called."""


class Nodes(Generic[Key]):
    """The nodes of one session.

    Parameters
    ----------
    computes : mapping
        Where the engine looks up nodes' `compute`; others' too.
    keys : list
        Of the session; it may have keys of nodes that are gone.
    """

    def __init__(self, computes: MutableMapping[Key, Callable[[Any], Any]], keys: list[Key]) -> None:
        self._computes = computes
        self._keys = keys
        self._free = threading.Lock()
        self._set_aside: dict[Key, Callable[[Any], Any]] = {}

    def __iter__(self) -> Iterator[tuple[str, AnyOp]]:
        """Name and op of each node."""
        for _, node in self.living():
            yield node.name, node.op

    def living(self) -> Iterator[tuple[Key, Node]]:
        """Key and node of each."""
        for key in self._keys:
            compute: Any = self._set_aside.get(key) or self._computes.get(key)
            if compute is not None:  # else ONNX Runtime computed it when it made the session
                yield key, compute.__self__

    @contextmanager
    def timed(self, clock_for: Callable[[str, AnyOp], NodeClock]) -> Iterator[None]:
        """Within it, calls of each node go by the clock that `clock_for` gives for its name and op.

        The session must live as long.

        Raises
        ------
        PyopsError
            They are timed already.
        """
        if not self._free.acquire(blocking=False):
            raise PyopsError("the session is being profiled already; use the profile that there is")
        stops: list[Callable[[], None]] = []
        try:
            for key, node in list(self.living()):
                timed = node.timed(clock_for(node.name, node.op))
                stops.append(timed.stop)
                for alias, other in timed.aliases.items():
                    self._computes[alias] = other
                    weakref.finalize(node, self._computes.pop, alias, None).atexit = False
                self._set_aside[key], self._computes[key] = self._computes[key], timed.compute
            yield
        finally:
            self._computes.update(self._set_aside)
            self._set_aside.clear()
            for stop in stops:
                stop()
            self._free.release()
