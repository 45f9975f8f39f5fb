"""What errors of CUDA mean that come out of a kernel, where their own words do not say."""

from __future__ import annotations

import contextlib
from typing import Any

from ..devices import BREAKING_STATUSES, OUT_OF_MEMORY
from ..errors import PyopsError

_CAPTURE = range(900, 909)  # of cudaError_t

_CAPTURING = (
    "the session captures a CUDA graph (enable_cuda_graph), and this node cannot be captured: within a capture nothing "
    "may wait for the GPU, nor be copied to the host (cupy.asnumpy, .get(), float(x), x.item(), an if on an array's "
    "value, synchronize()). Compute it on the GPU, or take enable_cuda_graph from the provider's options"
)
_LATE = (
    "CUDA tells of such an error when the GPU gets to it, so that an earlier node may have made it; set "
    "CUDA_LAUNCH_BLOCKING=1 before the process starts to have it raised where it is made. This process can use the GPU "
    "no more"
)
_FULL = "the session's arena is full; gpu_mem_limit in the CUDA provider's options says how large it may grow"


def explanation(error: BaseException, captured: bool) -> str | None:
    """What to say of a kernel's exception besides; None where it is none of CUDA's, or says all itself.

    Parameters
    ----------
    captured : bool
        The kernel was called within a capture.
    """
    if type(error).__module__.partition(".")[0] in ("cupy", "cupy_backends"):
        status = getattr(error, "status", None)
        if isinstance(error, MemoryError) or status == OUT_OF_MEMORY:
            return _FULL
        if status in _CAPTURE:
            return _CAPTURING
        return _LATE if status in BREAKING_STATUSES else None
    # CuPy refuses most of what cannot be captured before CUDA sees it, and torch all: a RuntimeError without status.
    refused = isinstance(error, RuntimeError) and not isinstance(error, PyopsError)
    return _CAPTURING if refused and captured else None


def is_capturing(stream: Any) -> bool:
    """Return whether a stream of CuPy is being captured, into a graph that may be void by now."""
    try:
        return bool(stream.is_capturing())
    except (
        RuntimeError
    ) as error:  # CuPy's answer where the capture is no longer valid; or CUDA's, to whatever it is asked
        return getattr(error, "status", None) is None


def void_capture(cupy: Any, stream: Any) -> None:
    """Make the graph that a stream is being captured into void.

    ONNX Runtime ends a capture in which a node failed like any other, and replays what is in it from then on. Of a
    void capture CUDA makes no graph: its end is an error, and the next run captures anew.
    """
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.streamSynchronize(stream.ptr)  # which no captured stream may do
