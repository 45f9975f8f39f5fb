"""Profiling of the nodes that ops compute, active only while requested.

Engines look up the function that computes a node by a key; while a session is profiled, a timing wrapper is stored
under that key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

import onnxruntime

from ..._support.locks import RLock, TryLock
from ..._support.text_tables import Displayable, Part
from ...errors import PyopsError
from ..ops.op import AnyOp

Key = TypeVar("Key")

_HEADER = ("node", "op", "calls", "kernel", "overhead", "kernel a call", "overhead a call")


class NodeProfile:
    """Times of one node, summed over all calls, which it times itself.

    Attributes
    ----------
    name : str
        The node's name in the model; may be empty.
    op : Op
        The op that computes it.
    calls : int
        The number of calls.
    kernel_seconds : float
        Time in the kernel.
    overhead_seconds : float
        Overhead around the kernel: wrapping tensors as arrays, checks, copying results.
    """

    def __init__(self, name: str, op: AnyOp) -> None:
        self.name = name
        self.op = op
        self.calls = 0
        self.kernel_seconds = 0.0
        self.overhead_seconds = 0.0
        self._lock = RLock()
        # Of the call that is running in this thread: the nanoseconds that its kernel took.
        self._running = threading.local()

    def _row(self) -> list[str]:
        totals = self.kernel_seconds, self.overhead_seconds
        times = *totals, *(seconds / max(self.calls, 1) for seconds in totals)
        return [self.name, self.op.signature.qualified_name, f"{self.calls:,}", *map(_format_seconds, times)]

    def call(self, compute: Callable[[Any], Any], argument: Any) -> Any:
        """Return ``compute(argument)`` and add its times to the profile."""
        self._running.kernel = 0
        began = perf_counter_ns()
        try:
            return compute(argument)
        finally:
            whole, kernel = perf_counter_ns() - began, self._running.kernel
            with self._lock:
                self.calls += 1
                self.kernel_seconds += kernel / 1e9
                self.overhead_seconds += (whole - kernel) / 1e9

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a version of a kernel that adds the time it takes."""

        def timed(*inputs: Any, **attributes: Any) -> Any:
            began = perf_counter_ns()
            try:
                return function(*inputs, **attributes)
            finally:
                # Set after the call: a session that the kernel ran may have called this same node meanwhile.
                self._running.kernel = perf_counter_ns() - began

        return timed


class SessionNodes(Generic[Key]):
    """The nodes of one session.

    Parameters
    ----------
    computes : mapping
        The engine's lookup table of `compute` functions, shared by all sessions.
    keys : iterable
        The session's keys; some of their nodes may no longer exist.
    """

    def __init__(self, computes: MutableMapping[Key, Callable[[Any], Any]], keys: Iterable[Key]) -> None:
        self._computes = computes
        self._keys = keys
        self._lock = TryLock(lambda: PyopsError("the session is already being profiled; use the existing profile"))
        self._originals: dict[Key, Callable[[Any], Any]] = {}

    def __iter__(self) -> Iterator[tuple[str, AnyOp]]:
        """Yield the name and op of each node."""
        for _, node in self.living():
            yield node.name, node.op

    def living(self) -> Iterator[tuple[Key, Any]]:
        """Yield the key and node of each node that still exists.

        Each engine has its own class of nodes. All have a `name`, an `op`, a method `compute`, and `timed`, which
        takes a `NodeProfile` and returns what to call in place of `compute`, or None for machine code.
        """
        for key in self._keys:
            compute: Any = self._originals.get(key) or self._computes.get(key)
            if compute is not None:  # else ONNX Runtime folded it to a constant when it created the session
                yield key, compute.__self__

    @contextmanager
    def timed(self) -> Iterator[Profile]:
        """Time the calls of every node within the block; the session must outlive it.

        Yields
        ------
        Profile
            With the clock of each node, and the number of nodes that are machine code and have none.

        Raises
        ------
        PyopsError
            The nodes are already being timed.
        """
        clocks, compiled = [], 0
        with self._lock:
            try:
                for key, node in list(self.living()):
                    clock = NodeProfile(node.name, node.op)
                    if (timed := node.timed(clock)) is None:
                        compiled += 1
                    else:
                        self._originals[key], self._computes[key] = self._computes[key], timed
                        clocks.append(clock)
                yield Profile(clocks, compiled)
            finally:
                self._computes.update(self._originals)
                self._originals.clear()


class Profile(Displayable):
    """The result of `profile`: a table in a terminal or notebook.

    Attributes
    ----------
    nodes : tuple of NodeProfile
        One per node that a kernel in Python computes, in the order in which ONNX Runtime created them.
    """

    def __init__(self, nodes: Sequence[NodeProfile], compiled: int) -> None:
        self.nodes = tuple(nodes)
        self._compiled = compiled

    def parts(self) -> list[Part]:
        """Return the table of nodes, and how many are not in it."""
        notes = [] if self.nodes else ["no node of the session is computed by a declared op in Python"]
        if self._compiled:
            notes.append(f"nodes that run as machine code, which ONNX Runtime's own profiler times: {self._compiled}")
        return [[_HEADER, *(node._row() for node in self.nodes)], *notes]


def profile(session: onnxruntime.InferenceSession) -> AbstractContextManager[Profile]:
    """Time the calls of a session's ops within the block, except for compiled kernels.

    Parameters
    ----------
    session : InferenceSession
        A `pyops.InferenceSession`.

    Returns
    -------
    context manager of Profile
        The profile, updated as the session runs, in any thread.

    Raises
    ------
    PyopsError
        `session` is not a `pyops.InferenceSession`, or is already being profiled.

    Examples
    --------
    >>> import numpy as np, onnx
    >>> from numpy.typing import NDArray
    >>> import pyops
    >>> @pyops.onnx_op("profiling::Twice")
    ... def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x + x
    >>> session = pyops.InferenceSession(onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "profiling": 1]>
    ... main (float[n] x) => (float[n] y) { y = profiling.Twice(x) }'''))
    >>> with pyops.profile(session) as profile:
    ...     _ = session.run(None, {"x": np.ones(3, np.float32)})
    >>> [(node.op.name, node.calls) for node in profile.nodes]
    [('Twice', 1)]
    """
    nodes: SessionNodes[Any] | None = getattr(session, "_nodes", None)
    if nodes is None:
        raise PyopsError(
            f"expected a pyops.InferenceSession, got {type(session).__qualname__}; call pyops.patch_onnxruntime() "
            "before another library creates the session"
        )
    return nodes.timed()


def _format_seconds(seconds: float) -> str:
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e3, "ms")) if seconds * s >= 1), (1e6, "µs"))
    return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:,.0f} {unit}"
