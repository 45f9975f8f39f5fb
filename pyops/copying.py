"""What runs on the CPU where an op has a CUDA kernel alone: that kernel, between copies."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .cupy_arrays import asarray, asnumpy
from .device_arrays import check_returned, on_host
from .devices import cupy_with_gpu
from .errors import DeviceCopyWarning
from .signature import Signature


class CopyingKernel:
    """A CUDA kernel that takes and returns NumPy arrays.

    Each call copies the inputs to the GPU and the outputs back; that is said once.

    Parameters
    ----------
    signature : Signature
        The op's.
    function : callable
        The CUDA kernel.
    host_inputs : sequence of str
        The inputs that it takes as NumPy arrays.
    """

    def __init__(self, signature: Signature, function: Callable[..., Any], host_inputs: Sequence[str]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._signature = signature
        self._name = signature.qualified_name
        self._host_inputs = host_inputs
        self._lock = threading.Lock()
        self._said = False

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        """Run the kernel on NumPy arrays.

        Raises
        ------
        MissingDependencyError
            CuPy is not installed.
        DeviceError
            There is no GPU.
        """
        cupy = cupy_with_gpu(f"{self._name}, which has a CUDA kernel alone,")
        self._say()
        attributes.pop("out", None)  # memory that the kernel cannot write to
        stay = on_host(self._signature, len(inputs), self._host_inputs)
        given = [x if x is None or stays else asarray(cupy, x) for x, stays in zip(inputs, stay, strict=True)]
        result = self.function(*given, **attributes)
        check_returned(self._signature, result)
        if not isinstance(result, tuple):
            return asnumpy(result)
        outputs = map(asnumpy, result)
        return type(result)(*outputs) if hasattr(result, "_fields") else tuple(outputs)

    def _say(self) -> None:
        with self._lock:
            said, self._said = self._said, True
        if not said:
            warnings.warn(
                f"{self._name} has a CUDA kernel alone and is run on the CPU: its inputs are copied to the GPU and its "
                'outputs back. Run it in a session with providers=["CUDAExecutionProvider"], or register a kernel for '
                'the CPU: register_kernel("cpu")',
                DeviceCopyWarning,
                stacklevel=3,
            )
