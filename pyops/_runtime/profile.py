"""Profiling of the nodes that ops compute."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._ops.op import AnyOp
from .._tables import Part, Shown
from ..errors import PyopsError
from .calls.timing import Call, NodeClock
from .session import InferenceSession

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
        self.calls += 1
        self.kernel_seconds += call.kernel / 1e9
        self.around_seconds = _sum(self.around_seconds, None if call.around is None else call.around / 1e9)
        self.bytes_in = _sum(self.bytes_in, call.bytes_in)
        self.bytes_out = _sum(self.bytes_out, call.bytes_out)

    def _row(self) -> list[str]:
        around, calls = self.around_seconds, max(self.calls, 1)
        times = [self.kernel_seconds, around, self.kernel_seconds / calls, None if around is None else around / calls]
        sizes = [self.bytes_in, self.bytes_out]
        row = [self.name, self.op.signature.qualified_name, f"{self.calls:,}", *map(_spell_seconds, times)]
        return [*row, *("?" if size is None else f"{size:,}" for size in sizes)]


class Profile(Shown):
    """The result of `profile`: a table in a terminal or notebook.

    Attributes
    ----------
    nodes : tuple of NodeProfile
        One per node that an op computes, in the order in which ONNX Runtime created them.
    """

    def __init__(self) -> None:
        self.nodes: tuple[NodeProfile, ...] = ()
        self._lock = threading.Lock()

    def _clock_for(self, name: str, op: AnyOp) -> NodeClock:
        node = NodeProfile(name, op)
        self.nodes += (node,)

        def record(call: Call) -> None:
            with self._lock:
                node._add(call)

        return NodeClock(record)

    def parts(self) -> list[Part]:
        """Return the table of nodes."""
        if not self.nodes:
            return ["no node of the session is computed by a declared op"]
        return [[list(_HEADER), *(node._row() for node in self.nodes)]]


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
    found = Profile()
    with session._nodes.timed(found._clock_for):
        yield found


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def _spell_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e3, "ms")) if seconds * s >= 1), (1e6, "µs"))
    return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:,.0f} {unit}"
