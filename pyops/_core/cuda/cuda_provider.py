"""A session's providers; of CUDA, whether it started and why not, its graphs, and the ops on the CPU beside it."""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import onnxruntime

from ...errors import DeviceCopyWarning, DeviceError, InputError, MissingDependencyError, did_you_mean, warn
from ..ops.op import AnyOp
from . import devices

_CPU_PROVIDER = "CPUExecutionProvider"
_FAILURE = re.compile(r"CUDA failure (?P<status>\d+): .*?(?= ; |$)")
_REFUSED_OPTION = re.compile(r"(?P<status>)(?:Unknown provider option|Failed to parse provider option).*")
# The run option that says which graph a run is captured as.
_GRAPH_ID, _NO_GRAPH = "gpu_graph_id", "-1"
# Ops already reported as running on the CPU in sessions with a GPU.
_warned: weakref.WeakSet[AnyOp] = weakref.WeakSet()


def check_available(providers: Any) -> None:
    """Raise an error if a provider does not exist, or CUDA is requested and this ONNX Runtime lacks it.

    ONNX Runtime would print a banner, and run the model on the CPU.

    Raises
    ------
    InputError
        The providers are not a list, or one is not a name, or a name that ONNX Runtime does not know.
    MissingDependencyError
        The CUDA execution provider is requested, and this onnxruntime has none.
    """
    if isinstance(providers, str):
        raise InputError(f"providers is the str {providers!r}; pass a list: providers=[{providers!r}]")
    devices_of_plugins: Any = getattr(onnxruntime, "get_ep_devices", list)()
    known = [*onnxruntime.get_all_providers(), *(device.ep_name for device in devices_of_plugins)]
    for name in _names(providers):
        if name not in known:
            raise InputError(
                f"there is no execution provider {name!r}{did_you_mean(str(name), known)}; this onnxruntime has "
                f"{', '.join(onnxruntime.get_available_providers())}"
            )
    if _asks_for_cuda(providers) and devices.CUDA_PROVIDER not in onnxruntime.get_available_providers():
        raise MissingDependencyError(
            "CUDAExecutionProvider was requested, but this onnxruntime lacks it: on a machine with an NVIDIA GPU, "
            'pip uninstall onnxruntime, then pip install "onnx-pyops[cuda]"'
        )


def check_started(providers: Any, started: Collection[str]) -> None:
    """Raise an error if CUDA was requested and not started; ONNX Runtime would continue without it.

    Raises
    ------
    DeviceError
        ONNX Runtime has not started the CUDA execution provider.
    """
    if _asks_for_cuda(providers) and devices.CUDA_PROVIDER not in started:
        raise _not_started("there is no usable GPU")


def without_fallback(providers: Any) -> dict[str, int]:
    """Return the keyword argument that makes session creation raise when CUDA cannot start.

    By default ONNX Runtime prints the reason and creates a session on the CPU. With TensorRT among the providers the
    default stays, because TensorRT falls back to CUDA.
    """
    only_cuda = {*_names(providers), _CPU_PROVIDER} == {devices.CUDA_PROVIDER, _CPU_PROVIDER}
    return {"enable_fallback": 0} if only_cuda else {}


def _asks_for_cuda(providers: Any) -> bool:
    return devices.CUDA_PROVIDER in _names(providers)


def _names(providers: Any) -> list[str]:
    return [item[0] if isinstance(item, tuple) and item else item for item in providers or ()]


def explained(error: Exception) -> DeviceError | None:
    """Translate ONNX Runtime's failure to start the CUDA provider; return None for any other error."""
    found = _FAILURE.search(str(error)) or _REFUSED_OPTION.search(str(error))
    if found is None:
        return None
    is_broken = found["status"] and int(found["status"]) in devices.BREAKING_STATUSES
    refusal = _not_started(devices.broken(found[0]) if is_broken else found[0])
    refusal.__cause__ = error
    return refusal


def _not_started(reason: str) -> DeviceError:
    return DeviceError(
        f"{devices.CUDA_PROVIDER} was requested, but ONNX Runtime could not start it: {reason.rstrip('.')}. Its "
        "options are at https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html; python -m pyops "
        "doctor shows which GPU, driver, CUDA and cuDNN there are, and which this onnxruntime-gpu needs; to run on the "
        'CPU, pass providers=["CPUExecutionProvider"]'
    )


def on_cpu(ops: Iterable[AnyOp], engine: str) -> Iterator[tuple[AnyOp, str, str]]:
    """Yield each op that runs on the CPU in a session with a GPU, with the reason and the fix."""
    for op in ops:
        if engine == "extensions":
            yield op, "is hosted by the extensions engine", 'engine="native"'
        elif "cuda" not in op.kernels:
            yield op, "has no CUDA kernel", f'@{op.__name__}.register_kernel("cuda")'


def warn_copies(ops: Iterable[AnyOp], engine: str) -> None:
    """Warn once per op that runs on the CPU in a session with a GPU."""
    for op, reason, fix in on_cpu(ops, engine):
        if op not in _warned:
            _warned.add(op)
            warn(
                f"{op.signature.qualified_name} {reason} and runs on the CPU in this CUDA session, between copies "
                f"to and from the GPU; to avoid them: {fix}",
                DeviceCopyWarning,
            )


def check_not_captured(run_options: Any) -> None:
    """Check that a run without bound memory is not captured as a CUDA graph, nor replays one.

    A replay writes to the memory of the captured run, and ONNX Runtime would return an empty list.

    Raises
    ------
    InputError
        The run is captured, or replays a graph.
    """
    try:
        graph = "" if run_options is None else run_options.get_run_config_entry(_GRAPH_ID)
    except RuntimeError:  # there is no such entry
        graph = ""
    if graph != _NO_GRAPH:
        raise InputError(
            "the session captures its runs as CUDA graphs (enable_cuda_graph), which read and write the same memory in "
            "every run: bind inputs and outputs on the GPU and call run_with_iobinding, or run without a graph: "
            f'run_options.add_run_config_entry("{_GRAPH_ID}", "{_NO_GRAPH}")'
        )
