"""The CUDA kernel against the CPU kernel."""

from __future__ import annotations

from .. import cupy_arrays, devices, kernel
from ..device_arrays import on_host, returning_cupy
from ..errors import DeviceError, MissingDependencyError
from .case import Case, NotRun, is_installed, quiet


def cuda(case: Case) -> str:
    """The CUDA kernel gives what the CPU kernel gives, called and in a CUDA session."""
    op, signature = case.op, case.signature
    if "cuda" not in op.kernels:
        raise NotRun("no CUDA kernel is registered")
    if "cpu" not in op.device_types:
        raise NotRun("there is no CPU kernel to hold the CUDA kernel against")
    try:
        cupy = devices.cupy_with_gpu("the CUDA kernel")
    except (MissingDependencyError, DeviceError) as error:
        raise NotRun(str(error)) from None
    stay = on_host(signature, len(case.arrays), op.host_inputs)
    arrays = [
        x if x is None or stays else cupy_arrays.asarray(cupy, x) for x, stays in zip(case.arrays, stay, strict=True)
    ]
    outputs = kernel.call(signature, returning_cupy(signature, op.kernels["cuda"]), arrays, case.attributes)
    case.compare(list(map(cupy_arrays.asnumpy, outputs)), case.outputs, "the CUDA kernel gives other outputs")
    problem = _why_no_session()
    if problem:
        return f"called; in no session: {problem}"
    from ..session import InferenceSession

    with quiet():
        session = InferenceSession(case.sample.model(), providers=[devices.CUDA_PROVIDER, "CPUExecutionProvider"])
        results = session.run(None, case.sample.feed)
    case.compare(results, case.outputs, "in a CUDA session it gives other outputs")
    return "called, and in a CUDA session"


def _why_no_session() -> str | None:
    if not is_installed("onnxruntime"):
        return "ONNX Runtime is not installed"
    import onnxruntime

    available = devices.CUDA_PROVIDER in onnxruntime.get_available_providers()
    return None if available else f"this onnxruntime has no {devices.CUDA_PROVIDER}"
