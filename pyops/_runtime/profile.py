"""Profiling of the nodes that ops compute."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any

from .._files import write_text
from .._ops.op import AnyOp
from .._tables import Part, Shown
from ..errors import PyopsError
from .calls.timing import Call, NodeClock
from .session import InferenceSession

_MOST_CALLS = 1_000_000  # ONNX Runtime's profiler has the same limit
# Linux thread ids are below 2**22: with this offset our slices get tracks of their own beside ONNX Runtime's.
_OUR_THREADS = 2**22
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

    def _add(self, call: Call) -> None:
        kernel, whole = call.kernel[1] - call.kernel[0], call.ended - call.began
        self.calls += 1
        self.kernel_seconds += kernel / 1e9
        around = None if call.is_machine_code else (whole - kernel - call.measuring) / 1e9
        self.around_seconds = _sum(self.around_seconds, around)
        self.bytes_in = _sum(self.bytes_in, call.bytes_in)
        self.bytes_out = _sum(self.bytes_out, call.bytes_out)

    def _row(self) -> list[str]:
        around, calls = self.around_seconds, max(self.calls, 1)
        times = [self.kernel_seconds, around, self.kernel_seconds / calls, None if around is None else around / calls]
        sizes = [self.bytes_in, self.bytes_out]
        row = [self.name, self.op.signature.qualified_name, f"{self.calls:,}", *map(_spell_seconds, times)]
        return [*row, *("?" if size is None else f"{size:,}" for size in sizes)]


class Profile(Shown):
    """The result of `profile`: a table in a terminal or notebook, and a trace for Perfetto.

    Attributes
    ----------
    nodes : tuple of NodeProfile
        One per node that an op computes, in the order in which ONNX Runtime created them.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.nodes: tuple[NodeProfile, ...] = ()
        self._calls: list[tuple[NodeProfile, Call]] = []
        self._lock = threading.Lock()
        # The origin of ONNX Runtime's trace timestamps, on the clock of `time_ns`; 0 if the session does not profile.
        self._session_start = session.get_profiling_start_time_ns()
        self._clock_difference = _clock_difference()
        self._start = time_ns()

    def save_trace(self, path: str | os.PathLike[str], beside: str | os.PathLike[str] | None = None) -> None:
        """Write the calls as a Chrome trace, for https://ui.perfetto.dev or ``chrome://tracing``.

        Each call is a slice that contains its kernel, on one track per thread.

        Parameters
        ----------
        path : str or os.PathLike
            The file to write.
        beside : str or os.PathLike, optional
            A file of ONNX Runtime's profiler to merge into the trace: ``session.end_profiling()`` of the same
            session, created with ``SessionOptions.enable_profiling``.

        Raises
        ------
        PyopsError
            `beside` is not a file of ONNX Runtime's profiler, or the session was created without
            ``enable_profiling``.
        OSError
            `path` cannot be written (an existing file is left unchanged), or `beside` cannot be read.
        """
        events = self._events(self._session_start or self._start)
        if beside is not None:
            events = self._ort_events(Path(beside)) + events
        write_text(path, json.dumps(events))

    def _ort_events(self, path: Path) -> list[Any]:
        if not self._session_start:
            raise PyopsError(
                "the session was created without profiling; create it with options = onnxruntime.SessionOptions(); "
                "options.enable_profiling = True"
            )
        events = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(events, list):
            raise PyopsError(f"{str(path)!r} is not a file of ONNX Runtime's profiler; pass session.end_profiling()")
        return events

    def _events(self, start: int) -> list[dict[str, Any]]:
        process = os.getpid()
        with self._lock:
            calls = list(self._calls)
        events: list[dict[str, Any]] = [
            {
                "ph": "M",
                "name": "thread_name",
                "pid": process,
                "tid": _OUR_THREADS + thread,
                "args": {"name": f"pyops in thread {thread}"},
            }
            for thread in sorted({call.thread for _, call in calls})
        ]
        for node, call in calls:
            track = {"ph": "X", "cat": "pyops", "pid": process, "tid": _OUR_THREADS + call.thread}
            args = {"op": str(node.op.signature), "bytes in": call.bytes_in, "bytes out": call.bytes_out}
            args |= {"raised": call.raised} if call.raised else {}
            slices = [(node.name or node.op.name, call.began, call.ended, args)]
            if call.kernel[0] != call.kernel[1]:
                slices.append((f"kernel {node.op.__name__}", *call.kernel, {"source": node.op.location}))
            for name, began, ended, details in slices:
                at = (began + self._clock_difference - start) / 1e3
                events.append(track | {"name": name, "ts": at, "dur": (ended - began) / 1e3, "args": details})
        return events

    def _clock_for(self, name: str, op: AnyOp) -> NodeClock:
        node = NodeProfile(name, op)
        self.nodes += (node,)

        def record(call: Call) -> None:
            with self._lock:
                node._add(call)
                if len(self._calls) < _MOST_CALLS:
                    self._calls.append((node, call))

        return NodeClock(record)

    def parts(self) -> list[Part]:
        """Return the table of nodes and a note if the trace is incomplete."""
        if not self.nodes:
            return ["no node of the session is computed by a declared op"]
        cut_off = sum(node.calls for node in self.nodes) > len(self._calls)
        rows = [list(_HEADER), *(node._row() for node in self.nodes)]
        return [rows, *([f"the trace has the first {_MOST_CALLS:,} calls"] if cut_off else [])]


@contextmanager
def profile(session: InferenceSession) -> Iterator[Profile]:
    """Time the calls of a session's ops within the block.

    Parameters
    ----------
    session : InferenceSession

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
    if not isinstance(session, InferenceSession):
        raise PyopsError(
            f"expected a pyops.InferenceSession, got {type(session).__qualname__}; call pyops.patch_onnxruntime() "
            "before another library creates the session"
        )
    found = Profile(session)
    with session._nodes.timed(found._clock_for):
        yield found


def _clock_difference() -> int:
    """Return ``time_ns() - perf_counter_ns()`` in nanoseconds.

    Of ten readings the one taken in the shortest time counts.
    """
    readings = [(perf_counter_ns(), time_ns(), perf_counter_ns()) for _ in range(10)]
    before, now, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return now - (before + after) // 2


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def _spell_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e3, "ms")) if seconds * s >= 1), (1e6, "µs"))
    return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:,.0f} {unit}"
