"""The CUDA kernel against the CPU kernel."""

from __future__ import annotations

from .. import kernel
from .case import Case, NotRun, is_installed


def cuda(case: Case) -> None:
    """The CUDA kernel gives what the CPU kernel gives."""
    if "cuda" not in case.op.kernels:
        raise NotRun("no CUDA kernel is registered")
    if not is_installed("cupy"):
        raise NotRun('CuPy is not installed: pip install "onnx-pyops[cuda]" on a machine with an NVIDIA GPU')
    import cupy

    if not cupy.cuda.is_available():
        raise NotRun("there is no NVIDIA GPU here")
    arrays = [None if array is None else cupy.asarray(array) for array in case.arrays]
    outputs = kernel.call(case.signature, case.op.kernel("cuda"), arrays, case.attributes)
    case.compare([cupy.asnumpy(output) for output in outputs], case.outputs, "the CUDA kernel gives other outputs")
