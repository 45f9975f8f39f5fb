"""Profiling of the nodes that ops compute, active only while requested.

Engines look up the function that computes a node by a key; while a session is profiled, a timing wrapper is stored
under that key.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

import numpy as np
import onnxruntime

from ..._ops.op import AnyOp, Op
from ..._schema.dtypes import STRING
from ..._tables import Part, Shown
from ...errors import PyopsError

Key = TypeVar("Key")

_HEADER = ("node", "op", "calls", "kernel", "around", "kernel a call", "around a call", "bytes in", "bytes out")


class NodeProfile:
    """Time and memory traffic of one node, summed over all calls.

    Attributes
    ----------
    name : str
        The node's name in the model; may be empty.
    op : Op
    calls : int
    kernel_seconds : float
        Time in the kernel; for machine code (``compile=True``) time in the whole node, which is one function.
    around_seconds : float or None
        Overhead around the kernel: wrapping tensors as arrays, checks, copying results. None for machine code.
    bytes_in, bytes_out : int or None
        Bytes read and written; None for machine code.
    """

    def __init__(self, name: str, op: AnyOp) -> None:
        self.name = name
        self.op = op
        self.calls = 0
        self.kernel_seconds = 0.0
        self.around_seconds: float | None = 0.0
        self.bytes_in: int | None = 0
        self.bytes_out: int | None = 0

    def _row(self) -> list[str]:
        around, calls = self.around_seconds, max(self.calls, 1)
        times = [self.kernel_seconds, around, self.kernel_seconds / calls, None if around is None else around / calls]
        sizes = [self.bytes_in, self.bytes_out]
        row = [self.name, self.op.signature.qualified_name, f"{self.calls:,}", *map(_spell_seconds, times)]
        return [*row, *("?" if size is None else f"{size:,}" for size in sizes)]


class _InProgress(threading.local):
    """Measurements of the call that is running in this thread: nanoseconds and bytes."""

    kernel = 0
    measuring = 0
    sizes: tuple[int, int] = (0, 0)


class NodeClock(NodeProfile):
    """The profile of one node while it grows: times the calls.

    Attributes
    ----------
    kernel : callable
        Returns a timed version of a kernel.
    """

    def __init__(self, name: str, op: AnyOp) -> None:
        super().__init__(name, op)
        self._lock = threading.Lock()
        self._running = _InProgress()
        # Cached, so that one kernel always gives the same timed kernel (engines compare kernels by identity).
        self.kernel = functools.cache(self._timed)

    def record_machine_code(self, nanoseconds: int) -> None:
        """Add a call of machine code, of which only the time of the whole node is known."""
        with self._lock:
            self.calls += 1
            self.kernel_seconds += nanoseconds / 1e9
            self.around_seconds = self.bytes_in = self.bytes_out = None

    def call(self, compute: Callable[[Any], Any], argument: Any) -> Any:
        """Return ``compute(argument)`` and add the call."""
        running = self._running
        running.kernel, running.measuring, running.sizes = 0, 0, (0, 0)
        began = perf_counter_ns()
        try:
            return compute(argument)
        finally:
            around = perf_counter_ns() - began - running.kernel - running.measuring
            with self._lock:
                self.calls += 1
                self.kernel_seconds += running.kernel / 1e9
                self.around_seconds = (self.around_seconds or 0) + around / 1e9
                self.bytes_in = (self.bytes_in or 0) + running.sizes[0]
                self.bytes_out = (self.bytes_out or 0) + running.sizes[1]

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
        """Time the calls of every node within the block by a clock that ``clock_for(name, op)`` returns.

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


class Profile(Shown):
    """The result of `profile`: a table in a terminal or notebook.

    Attributes
    ----------
    nodes : tuple of NodeProfile
        One per node that an op computes, in the order in which ONNX Runtime created them.
    """

    def __init__(self) -> None:
        self.nodes: tuple[NodeProfile, ...] = ()

    def _clock_for(self, name: str, op: AnyOp) -> NodeClock:
        clock = NodeClock(name, op)
        self.nodes += (clock,)
        return clock

    def parts(self) -> list[Part]:
        """Return the table of nodes."""
        if not self.nodes:
            return ["no node of the session is computed by a declared op"]
        return [[list(_HEADER), *(node._row() for node in self.nodes)]]


@contextmanager
def profile(session: onnxruntime.InferenceSession) -> Iterator[Profile]:
    """Time the calls of a session's ops within the block.

    Parameters
    ----------
    session : InferenceSession
        One of pyops.

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
    >>> [(node.op.name, node.calls, node.bytes_in, node.bytes_out) for node in profile.nodes]
    [('Twice', 1, 12, 12)]
    """
    nodes: Nodes[Any] | None = getattr(session, "_nodes", None)
    if nodes is None:
        raise PyopsError(
            f"expected a pyops.InferenceSession, got {type(session).__qualname__}; call pyops.patch_onnxruntime() "
            "before another library creates the session"
        )
    found = Profile()
    with nodes.timed(found._clock_for):
        yield found


def _spell_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e3, "ms")) if seconds * s >= 1), (1e6, "µs"))
    return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:,.0f} {unit}"
