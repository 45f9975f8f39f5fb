"""The GPU of a session: whether what is asked for is there, and which ops make no use of it."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

import onnxruntime

from .._ops.op import AnyOp
from .._schema import devices
from ..errors import DeviceCopyWarning, DeviceError, MissingDependencyError
from .provider_refusals import not_started, provider_names

_CPU_PROVIDER = "CPUExecutionProvider"
_NODE_FAILED = "Non-zero status code returned while running"
# The ops of which it is said already that they run on the CPU in sessions with a GPU.
_said: weakref.WeakSet[AnyOp] = weakref.WeakSet()


def check_available(providers: Any) -> None:
    """Refuse providers that this ONNX Runtime lacks, before there is a session.

    Raises
    ------
    MissingDependencyError
        The CUDA execution provider is among them, and not in this onnxruntime.
    """
    if _asks_for_cuda(providers) and devices.CUDA_PROVIDER not in onnxruntime.get_available_providers():
        raise MissingDependencyError(
            "CUDAExecutionProvider is asked for and this onnxruntime has none: on a machine with an NVIDIA GPU, "
            'pip uninstall onnxruntime, then pip install "onnx-pyops[cuda]"'
        )


def check_started(providers: Any, started: Collection[str]) -> None:
    """Refuse a session that has not started the GPU that it was asked for; ONNX Runtime goes on without.

    Raises
    ------
    DeviceError
        There is none that it can use.
    """
    if _asks_for_cuda(providers) and devices.CUDA_PROVIDER not in started:
        raise not_started()


def without_fallback(providers: Any) -> dict[str, int]:
    """Return the argument that has a session raise why CUDA cannot be started.

    Otherwise ONNX Runtime prints it, and makes a session on the CPU, which `check_started` refuses. Where TensorRT is
    asked for too, it falls back to CUDA.
    """
    only_cuda = {*provider_names(providers), _CPU_PROVIDER} == {devices.CUDA_PROVIDER, _CPU_PROVIDER}
    return {"enable_fallback": 0} if only_cuda else {}


def _asks_for_cuda(providers: Any) -> bool:
    return devices.CUDA_PROVIDER in provider_names(providers)


def refuse_part_of_graph() -> NoReturn:
    """Refuse to run a session that may keep a part of a CUDA graph.

    Raises
    ------
    DeviceError
        Always.
    """
    raise DeviceError(
        "a node of this session failed where it may have been captured into a CUDA graph (enable_cuda_graph), and "
        "ONNX Runtime would replay the part before it, with old numbers; make a new session"
    )


def keeps_part_of_graph(error: Exception, failed: Collection[BaseException | None], options: Any) -> bool:
    """Return whether ONNX Runtime may replay a part of a CUDA graph after the error of a run.

    Parameters
    ----------
    error : Exception
        ONNX Runtime's. Where it is that of a capture's end, nothing is kept.
    failed : collection
        What CUDA nodes raised in the run: exceptions within a capture, None otherwise. Nodes of somebody else's do
        not say.
    options : dict
        Of the session's providers.
    """
    captures = options.get(devices.CUDA_PROVIDER, {}).get("enable_cuda_graph") == "1"
    return captures and _NODE_FAILED in str(error) and None not in failed


def tell_copies(ops: Iterable[AnyOp], engine: str) -> None:
    """Warn once of each op of a session on a GPU that runs on the CPU."""
    native = engine == "native"
    for op in ops:
        if not (native and "cuda" in op.kernels) and op not in _said:
            _said.add(op)
            reason = "has no CUDA kernel" if native else "is hosted by the extensions engine"
            fix = f'@{op.__name__}.register_kernel("cuda")' if native else 'engine="native"'
            warnings.warn(
                f"{op.signature.qualified_name} {reason} and runs on the CPU in this CUDA session, between copies "
                f"that ONNX Runtime makes; to avoid them: {fix}",
                DeviceCopyWarning,
                stacklevel=3,
            )
